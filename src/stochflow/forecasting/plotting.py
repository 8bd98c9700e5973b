"""One HTML page with the fan chart of each forecast. It carries everything it needs and loads nothing."""

from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.output import MODEL
from stochflow.reports.html import markup
from stochflow.reports.html.figure import Figure, band, line
from stochflow.reports.html.page import assemble, made_with, plotly_js, write_page

MAX_SERIES = 50
# per cent of the probability in each band, widest first, so that the narrow ones are drawn on top
BANDS = (95, 80, 50)
_MIN_HISTORY = 60
_HISTORY_PER_STEP = 5


def fan_page(
    history: pd.DataFrame, forecasts: pd.DataFrame, columns: Columns, path: Path, title: str, command: str = ""
) -> None:
    """Write the page: per series the last part of the history, the median and bands of 50, 80 and 95 per cent.

    Args:
        history: as of `StochflowForecaster.history`.
        forecasts: as of `StochflowForecaster.predict` with the levels `BANDS`.
        columns: names of the columns of both.
        path: where the page is written, whole or not at all.
        title: heading of the page.
        command: what was run to make it, for the foot.
    """
    plotly = plotly_js()
    past, ahead = (
        {str(uid): rows for uid, rows in table.groupby(columns.id, sort=False)} for table in (history, forecasts)
    )
    charts, drawn = markup.Charts(), list(ahead)[:MAX_SERIES]
    fans = [charts.place(fan_figure(uid, past[uid], ahead[uid], columns)) for uid in drawn]
    note = f"{len(drawn)} of {len(ahead)} series are drawn, the first in the order of the forecasts."
    body = [
        markup.heading(title, 1),
        markup.paragraph(note) if len(drawn) < len(ahead) else "",
        f'<div class="fan">{markup.choices("series", {"Series": drawn}, fans)}</div>',
        markup.heading("Make it again"),
        markup.code(command),
        markup.paragraph(made_with()),
    ]
    write_page(path, assemble(title, "\n".join(body), charts.figures, plotly))


def fan_figure(uid: str, history: pd.DataFrame, forecast: pd.DataFrame, columns: Columns) -> Figure:
    """Chart of one series: bands from wide to narrow, history, median.

    Bands and median start at the last value seen, so that even one step has an area.
    """
    shown = history.tail(max(_MIN_HISTORY, _HISTORY_PER_STEP * len(forecast)))
    times, values = _times(shown[columns.time]), shown[columns.target].tolist()
    x = times[-1:] + _times(forecast[columns.time])

    def ahead(name: str) -> list[float]:
        return values[-1:] + forecast[name].tolist()

    bounds = {share: (ahead(f"{MODEL}-lo-{share}"), ahead(f"{MODEL}-hi-{share}")) for share in BANDS}
    hover = "".join(
        f"<br>{share} %: %{{customdata[{2 * number}]:.6~g}} to %{{customdata[{2 * number + 1}]:.6~g}}"
        for number, share in enumerate(bounds)
    )
    median = line("median", x, ahead(MODEL), "--median") | {
        "customdata": list(zip(*(side for pair in bounds.values() for side in pair), strict=True)),
        "hovertemplate": f"%{{y:.6~g}}{hover}<extra>median</extra>",
    }
    bands = [
        band(f"{share} %", x, low, high, f"--band{share}") | {"showlegend": True}
        for share, (low, high) in bounds.items()
    ]
    layout = {"hovermode": "x", "legend": {"orientation": "h", "y": -0.15, "traceorder": "reversed"}}
    text = "History and forecast with bands of 50, 80 and 95 per cent."
    return Figure(uid, text, [*bands, line("history", times, values, "--text"), median], layout)


def _times(column: "pd.Series[Any]") -> list[Any]:
    """Dates as text, numbers as they are."""
    return column.tolist() if pd.api.types.is_numeric_dtype(column) else [time.isoformat() for time in column]
