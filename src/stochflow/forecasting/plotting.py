"""One HTML page with the fan of each forecast. It carries everything it needs and loads nothing."""

import html
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from stochflow.core.errors import DataError
from stochflow.forecasting.data.columns import require_table
from stochflow.forecasting.data.split import to_numbers
from stochflow.forecasting.plotting_template import BODY, SCRIPT, STYLE
from stochflow.reports.html.page import assemble, plotly_js, versions, write_page

MAX_SERIES = 50
# per cent of the probability in each band, widest first, so that the narrow ones are drawn on top
BANDS = (95, 80, 50)
_MIN_HISTORY = 60
_HISTORY_PER_STEP = 5


def fan_page(
    history: pd.DataFrame,
    forecasts: pd.DataFrame | Mapping[str, pd.DataFrame],
    path: Path | str,
    title: str,
    command: str = "",
) -> None:
    """Write the page: per series the last part of the history, the median and bands of 50, 80 and 95 per cent.

    Args:
        history: rows of `unique_id`, `ds`, `y`.
        forecasts: rows of `unique_id`, `ds` and one column per quantile, labelled by its level (0.1, or "0.1" as text);
            or a mapping from id to rows of `ds` and such columns. Levels in between are interpolated; a band that
            reaches beyond the outermost levels is left out. Other columns are ignored.
        path: where the page is written, whole or not at all.
        title: heading of the page.
        command: what was run to make it, for the foot.
    """
    plotly = plotly_js("the page of fans")
    tables = _by_series(forecasts)
    _require(history, "table of the history", ("unique_id", "ds", "y"))
    values = {str(uid): rows for uid, rows in history.groupby("unique_id", sort=False)}
    drawn = dict(list(tables.items())[:MAX_SERIES])
    fans = [{"id": uid, "traces": fan_traces(uid, values.get(uid), rows)} for uid, rows in drawn.items()]
    note = ""
    if len(tables) > len(drawn):
        note = f"{len(drawn)} of {len(tables)} series are drawn, the first in the order of the forecasts."
    body = Template(BODY).substitute(
        title=html.escape(title),
        note=html.escape(note),
        selector=_selector(list(drawn)),
        command=html.escape(command),
        versions=html.escape(versions()),
    )
    write_page(Path(path), assemble(title, style=STYLE, body=body, data=fans, script=SCRIPT, plotly=plotly))


def fan_traces(uid: str, history: pd.DataFrame | None, forecast: pd.DataFrame) -> list[dict[str, Any]]:
    """Traces of one series: bands from wide to narrow, history, median; `meta` says which, colours come on the page.

    Bands and median start at the last value seen, so that even one step has an area.
    """
    levels, quantiles = _quantiles(uid, forecast)
    forecast_times = _times(forecast["ds"])
    seen_x: list[Any] = []
    seen_y: list[float | None] = []
    start: tuple[Any, float] | None = None
    if history is not None and len(history):
        shown = history.sort_values("ds").tail(max(_MIN_HISTORY, _HISTORY_PER_STEP * len(forecast)))
        seen_x, seen_y = _times(shown["ds"]), _plain(to_numbers(shown["y"])[0])
        known = [(time, value) for time, value in zip(seen_x, seen_y, strict=True) if value is not None]
        start = known[-1] if known else None
    x = ([start[0]] if start else []) + forecast_times
    first = [start[1]] if start else []

    def at(level: float) -> list[float | None]:
        return first + _plain(np.array([np.interp(level, levels, row) for row in quantiles]))

    shares = [(band, (0.5 - band / 200, 0.5 + band / 200)) for band in BANDS]
    shares = [
        (band, (low, high)) for band, (low, high) in shares if levels[0] <= low + 1e-9 and high - 1e-9 <= levels[-1]
    ]
    bounds = {band: (at(low), at(high)) for band, (low, high) in shares}
    traces: list[dict[str, Any]] = []
    for band, (lower, upper) in bounds.items():
        outline = {"x": x + x[::-1], "y": upper + lower[::-1], "fill": "toself", "mode": "lines", "hoverinfo": "skip"}
        traces.append({"type": "scatter", "name": f"{band} %", "meta": f"band{band}", **outline})
    traces.append({"type": "scatter", "name": "history", "meta": "history", "x": seen_x, "y": seen_y, "mode": "lines"})
    hover = "".join(
        f"<br>{band} %: %{{customdata[{2 * number}]:.6~g}} to %{{customdata[{2 * number + 1}]:.6~g}}"
        for number, band in enumerate(bounds)
    )
    edges = [[side[step] for pair in bounds.values() for side in pair] for step in range(len(x))]
    median = {"x": x, "y": at(0.5), "customdata": edges, "hovertemplate": f"%{{y:.6~g}}{hover}<extra>median</extra>"}
    traces.append({"type": "scatter", "name": "median", "meta": "median", "mode": "lines", **median})
    return traces


def _selector(uids: list[str]) -> str:
    if len(uids) == 1:
        return f"<h2>{html.escape(uids[0])}</h2>"
    options = "".join(f'<option value="{number}">{html.escape(uid)}</option>' for number, uid in enumerate(uids))
    return f'<label>Series <select id="choice">{options}</select></label>'


def _by_series(forecasts: pd.DataFrame | Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    if isinstance(forecasts, pd.DataFrame):
        _require(forecasts, "table of forecasts", ("unique_id", "ds"))
        tables = {str(uid): rows for uid, rows in forecasts.groupby("unique_id", sort=False)}
    else:
        tables = {str(uid): rows for uid, rows in forecasts.items()}
    if not tables:
        raise DataError("there are no forecasts to draw; forecast at least one series")
    for uid, rows in tables.items():
        _require(rows, f"forecast of series '{uid}'", ("ds",))
    return {uid: rows.sort_values("ds") for uid, rows in tables.items()}


def _require(table: pd.DataFrame, what: str, names: tuple[str, ...]) -> None:
    require_table(table, f"the {what}")
    for name in names:
        if (table.columns == name).sum() > 1:
            raise DataError(f"the {what} has two columns '{name}'; keep one of them")
        if name not in table.columns:
            there = ", ".join(map(str, table.columns))
            raise DataError(f"the {what} has no column '{name}'; the columns are: {there}")


def _quantiles(uid: str, forecast: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Levels in order, [L], and the quantiles of each step, [steps, L]."""
    found = sorted((level, name) for name in forecast.columns if (level := _level(name)) is not None)
    levels = np.array([level for level, _ in found])
    if not len(levels) or not levels[0] <= 0.5 <= levels[-1]:
        raise DataError(
            f"series '{uid}': the forecast has no median; give quantiles in columns such as 0.1, 0.5 and 0.9"
        )
    quantiles = forecast[[name for _, name in found]].to_numpy(dtype=np.float64)
    if not np.isfinite(quantiles).all():
        raise DataError(f"series '{uid}': the forecast has a quantile that is no finite number; forecast it again")
    return levels, quantiles


def _level(name: object) -> float | None:
    try:
        level = float(name)  # type: ignore[arg-type]  # whatever is no number raises
    except (TypeError, ValueError):
        return None
    return level if 0 < level < 1 else None


def _times(column: "pd.Series[Any]") -> list[Any]:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_list()
    return [time.isoformat() if hasattr(time, "isoformat") else str(time) for time in column]


def _plain(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, None where one is not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]
