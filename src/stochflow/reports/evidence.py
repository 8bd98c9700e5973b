"""Section of a run whose scores are predicted from a table: how well that works on held-out rows."""

import pandas as pd
import torch

from stochflow.reports.figures import NUM_POINTS
from stochflow.reports.html import markup
from stochflow.reports.html.figure import Figure, Trace, axis, line
from stochflow.reports.html.markup import Charts
from stochflow.reports.reader import RunRecord
from stochflow.surrogates.base import HeldOut, Prediction
from stochflow.surrogates.table_evidence import LITTLE, explained_by_distance


def evidence_section(run: RunRecord, charts: Charts) -> str:
    """Held-out errors of the prediction behind a run; empty where scores are known."""
    if not len(run.held_out):
        return ""
    shown = charts.row([held_out_scatter(run.held_out), explained_bars(run.held_out)])
    return markup.heading("What the table says") + markup.paragraph(_words(run)) + shown


def held_out_scatter(rows: pd.DataFrame) -> Figure:
    """Predicted against measured scores of rows that the prediction had not seen."""
    rows = rows.iloc[:: max(1, -(-len(rows) // NUM_POINTS))]
    ends = [float(rows["measured"].min()), float(rows["measured"].max())]
    points: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "measured sequences",
        "x": rows["measured"].tolist(),
        "y": rows["predicted"].tolist(),
        "customdata": rows[["low", "high", "distance"]].to_numpy().tolist(),
        "marker": {"color": "--s1", "size": 5, "line": {"width": 0}},
        "hovertemplate": "measured %{x:.4g}, predicted %{y:.4g} (80 %: %{customdata[0]:.4g} to %{customdata[1]:.4g}), "
        "%{customdata[2]} letters from the nearest other<extra></extra>",
    }
    text = "Every measured sequence, predicted from the others; on the line a prediction is right."
    layout = {"xaxis": axis("measured score"), "yaxis": axis("predicted score"), "showlegend": False}
    return Figure("Predicted and measured", text, [points, line("equal", ends, ends, "--s2", "dash")], layout)


def explained_bars(rows: pd.DataFrame) -> Figure:
    """R² of held-out rows by their distance to the nearest other measured sequence."""
    predicted, scores, distances = (
        torch.tensor(rows[name].to_numpy()) for name in ("predicted", "measured", "distance")
    )
    held_out = HeldOut(torch.arange(len(rows)), scores, Prediction(predicted, torch.ones_like(predicted)))
    explained = explained_by_distance(held_out, distances)
    counts = [int((distances == distance).sum()) for distance in explained]
    bars: Trace = {
        "type": "bar",
        "x": list(explained),
        "y": [max(share, -1.0) for share in explained.values()],
        "customdata": [[count] for count in counts],
        "marker": {"color": "--s1"},
        "hovertemplate": "%{x} letters: R² %{y:.3f} of %{customdata[0]} sequences<extra></extra>",
    }
    text = (
        "1 − squared error / variance of all scores, of the measured sequences whose nearest other is so many letters "
        f"away, cut off at −1. Where it is below {LITTLE:g}, the table says little about designs that far away."
    )
    layout = {"xaxis": axis("letters to the nearest other", dtick=1), "yaxis": axis("R² held out"), "showlegend": False}
    return Figure("Error by distance", text, [bars], layout)


def _words(run: RunRecord) -> str:
    summary = run.summary
    if summary is None or summary.measured is None:
        return "Scores are predicted from the measured sequences of the table."
    figures = {
        "R²": summary.surrogate_r2,
        "rank correlation": summary.surrogate_rank_correlation,
        "share inside 80 % intervals": summary.surrogate_coverage,
    }
    known = ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if value is not None)
    return (
        f"Scores are predicted from {summary.measured:,} measured sequences by {summary.surrogate}. Held-out rows: "
        f"{known or 'too few to judge'}. Scores on this page run from 0 to 1, the smallest to the largest measured; "
        "samples.csv has predictions on the table's own scale."
    )
