"""Plates in colour: what was predicted and measured in every well, and which wells failed."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stochflow.campaigns.goals import SCORE
from stochflow.campaigns.history import History
from stochflow.campaigns.plates import Plate, plate_for
from stochflow.reports.html.figure import Figure, Trace, axis, label, numbers

MAX_PLATES = 40
_WELL = re.compile(r"([A-P])0*([1-9][0-9]?)")
_SCORES = [[0, "--line"], [0.5, "--heat1"], [1, "--heat2"]]
_MARKS = {"failed": ("x", "--s2"), "pending": ("circle-open", "--quiet"), "control": ("square-open", "--s3")}
_SHOWN_LETTERS = 60


@dataclass(frozen=True)
class PlateMap:
    """One plate.

    Attributes:
        name: as it was ordered or told.
        wells: one row per well: row, column (from 0), text, score, predicted (NaN where unknown), and state (measured,
            failed, pending or control).
        num_elsewhere: wells whose names no plate has.
    """

    name: str
    wells: pd.DataFrame
    num_elsewhere: int

    def shape(self, batch: int) -> Plate:
        """The plate of the campaign, or a larger one if the wells need it."""
        plate = plate_for(batch)
        fits = (self.wells["row"] < plate.num_rows) & (self.wells["column"] < plate.num_columns)
        return plate if fits.all() else plate_for(plate.num_rows * plate.num_columns + 1)


def plate_maps(history: History) -> list[PlateMap]:
    """Every plate that was ordered or told, the latest first."""
    wells = pd.concat([_told(history), _pending(history)], ignore_index=True)
    return [_plate_map(str(name), part) for name, part in wells.groupby("plate", sort=False)][::-1]


def score_range(plates: list[PlateMap]) -> tuple[float, float]:
    """Lowest and highest score or prediction, the ends of the colour scale of all plates."""
    found = np.concatenate([[], *(plate.wells[["score", "predicted"]].to_numpy().ravel() for plate in plates)])
    found = found[np.isfinite(found)]
    return (float(found.min()), float(found.max())) if len(found) else (0.0, 1.0)


def plate_figures(plate: PlateMap, batch: int, ends: tuple[float, float]) -> list[Figure]:
    """Maps of the predicted and of the measured scores, as far as there are any."""
    shape = plate.shape(batch)
    words = "Crosses are failed wells, circles pending ones, squares controls."
    figures = []
    if plate.wells["predicted"].notna().any():
        figures.append(_figure(plate, "predicted", shape, ends, f"{plate.name}: predicted", "As it was when asked."))
    return [*figures, _figure(plate, "score", shape, ends, f"{plate.name}: measured", words)]


def _told(history: History) -> pd.DataFrame:
    """Wells with results, replicates joined."""
    rows = history.results
    rows = rows[rows["plate"].notna() & rows["well"].notna() & (rows["property"] == SCORE)]
    wells = rows.groupby(["plate", "well"], sort=False, as_index=False).agg(
        design=("design", "first"), score=("value", "mean"), control=("control", "max")
    )
    state = np.where(wells["control"] == 1, "control", np.where(wells["score"].isna(), "failed", "measured"))
    predicted = wells["design"].map(history.orders.set_index("design")["predicted"])
    return wells.assign(state=state, predicted=predicted.where(wells["control"] == 0)).drop(columns="control")


def _pending(history: History) -> pd.DataFrame:
    return history.pending[["plate", "well", "design", "predicted"]].assign(score=np.nan, state="pending")


def _plate_map(name: str, rows: pd.DataFrame) -> PlateMap:
    places = [_place(str(well)) for well in rows["well"]]
    there = [place is not None for place in places]
    found = np.array([place for place in places if place is not None], dtype=int).reshape(-1, 2)
    wells = rows[there].assign(row=found[:, 0], column=found[:, 1])
    text = wells["well"] + ": " + wells["design"].str.slice(0, _SHOWN_LETTERS)
    wells = wells.assign(text=text).astype({"score": float, "predicted": float})
    return PlateMap(name, wells, len(rows) - len(wells))


def _place(well: str) -> tuple[int, int] | None:
    """Row and column from 0 of a well such as A1 or H07; None for another name.

    >>> _place("B03"), _place("A99")
    ((1, 2), None)
    """
    found = _WELL.fullmatch(well.strip().upper())
    if found is None or int(found[2]) > 24:
        return None
    return ord(found[1]) - ord("A"), int(found[2]) - 1


def _figure(plate: PlateMap, column: str, shape: Plate, ends: tuple[float, float], title: str, caption: str) -> Figure:
    """A map of one column, with marks at wells without a measurement where that is the column."""
    wells = plate.wells
    traces = [_heat_map(wells[column], wells, shape, ends)]
    if column == SCORE:
        traces += [
            _marks(wells[wells["state"] == state], state, shape) for state in _MARKS if state in set(wells["state"])
        ]
    squares = {"showgrid": False, "constrain": "domain"}
    edge = {"range": [-0.5, shape.num_columns - 0.5], "side": "top", "tickvals": list(range(shape.num_columns))}
    x = axis("", **squares, **edge, ticktext=[str(number + 1) for number in range(shape.num_columns)])
    rows = {"tickvals": list(range(shape.num_rows)), "ticktext": list(shape.rows), "scaleanchor": "x"}
    y = axis("", **squares, **rows, range=[shape.num_rows - 0.5, -0.5])
    return Figure(title, caption, traces, {"xaxis": x, "yaxis": y, "showlegend": False})


def _heat_map(values: "pd.Series[float]", wells: pd.DataFrame, shape: Plate, ends: tuple[float, float]) -> Trace:
    grid = np.full((shape.num_rows, shape.num_columns), np.nan)
    texts = np.full(grid.shape, "", dtype=object)
    grid[wells["row"], wells["column"]] = values
    texts[wells["row"], wells["column"]] = [label(text) for text in wells["text"]]
    low, high = ends
    return {
        "type": "heatmap",
        "z": [numbers(row) for row in grid],
        "text": texts.tolist(),
        "colorscale": _SCORES,
        "zmin": low,
        "zmax": high if high > low else low + 1.0,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "hovertemplate": "%{text}<br>%{z:.4g}<extra></extra>",
    }


def _marks(wells: pd.DataFrame, state: str, shape: Plate) -> Trace:
    symbol, colour = _MARKS[state]
    size = 10 if shape.num_columns <= 12 else 6
    return {
        "type": "scatter",
        "mode": "markers",
        "name": state,
        "x": wells["column"].tolist(),
        "y": wells["row"].tolist(),
        "text": [label(text) for text in wells["text"]],
        "marker": {"symbol": symbol, "color": colour, "size": size, "line": {"width": 1.5}},
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }
