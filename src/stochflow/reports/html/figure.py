"""A chart with its caption, and the traces that charts share, as plotly JSON.

Colours are CSS variables of the page, so that charts follow light and dark mode. Plotly interprets tags in labels, so
text that is not constant is escaped.
"""

import html
from dataclasses import dataclass, field
from typing import Any

Trace = dict[str, Any]


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


def label(text: str) -> str:
    """Text escaped for plotly."""
    return html.escape(text, quote=False)
