"""A chart with its caption, and the traces that charts share, as plotly JSON.

Colours are CSS variables of the page, so that charts follow light and dark mode. Plotly interprets tags in labels, so
text that is not constant is escaped.
"""

import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stochflow.core.arrays import Array

Trace = dict[str, Any]
NUM_COLOURS = 7
_LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"}


@dataclass(frozen=True)
class Figure:
    """A chart with its caption.

    Attributes:
        title: heading, plain text.
        text: caption, plain text.
    """

    title: str
    text: str
    traces: list[Trace]
    layout: dict[str, Any] = field(default_factory=dict)


def line(name: str, x: list[Any], y: list[Any], colour: str, dash: str = "solid") -> Trace:
    """A line, with a marker where it has one point only."""
    style = {"color": colour, "width": 2, "dash": dash}
    mode = "lines" if len(x) > 1 else "lines+markers"
    return {"type": "scatter", "mode": mode, "name": label(name), "x": x, "y": y, "line": style}


def band(name: str, x: list[Any], low: list[Any], high: list[Any], colour: str) -> Trace:
    """The area between two lines, which belongs to the line of the same name in the legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(name),
        "legendgroup": label(name),
        "x": x + x[::-1],
        "y": high + low[::-1],
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Layout of an axis."""
    return {"title": {"text": title}, **more}


def axes(x_axis: dict[str, Any], y_axis: dict[str, Any], showlegend: bool) -> dict[str, Any]:
    """Layout of a chart, its legend above it."""
    return {"xaxis": x_axis, "yaxis": y_axis, "legend": _LEGEND, "showlegend": showlegend}


def series_colour(number: int) -> str:
    """Colour of a series."""
    return f"--s{number % NUM_COLOURS + 1}"


def numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, with five significant digits unless integer; None for those that are not finite.

    >>> numbers([2.0, 1 / 3, float("nan")])
    [2, 0.33333, None]
    """
    return [_short(float(value)) if np.isfinite(value) else None for value in values]


def evenly_spaced(num: int, most: int) -> Array:
    """At most `most` evenly spaced indices from 0 to num − 1, both ends included."""
    return np.unique(np.linspace(0, num - 1, min(num, most)).round().astype(int)) if num else np.empty(0, dtype=int)


def label(text: str) -> str:
    """Text escaped for plotly."""
    return html.escape(text, quote=False)


def _short(value: float) -> float:
    return int(value) if value.is_integer() else float(f"{value:.5g}")
