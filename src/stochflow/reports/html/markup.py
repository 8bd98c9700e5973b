"""HTML elements. Text is escaped here and nowhere else."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from stochflow.reports.html.figure import Figure
from stochflow.reports.html.page import script_json


@dataclass
class Charts:
    """Figures of a page, numbered in the order of their placeholders, into which the script draws them.

    Attributes:
        size: characters of JSON of all figures.
    """

    figures: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def place(self, figure: Figure) -> str:
        """Caption of a figure and the placeholder of its chart."""
        chart = {"traces": figure.traces, "layout": figure.layout}
        self.figures.append(chart)
        self.size += len(script_json(chart))
        title, text = html.escape(figure.title), html.escape(figure.text)
        return (
            f"<figure><figcaption><h3>{title}</h3><p>{text}</p></figcaption>"
            f'<div class="plot" data-figure="{len(self.figures) - 1}" role="img" aria-label="{title}: {text}"></div>'
            "</figure>"
        )

    def row(self, figures: Iterable[Figure], three: bool = False) -> str:
        """Figures side by side on wide screens."""
        return f'<div class="grid{" three" if three else ""}">{"".join(self.place(figure) for figure in figures)}</div>'


@dataclass(frozen=True)
class Column:
    """Heading and format of a table column. Text columns hold strings, others numbers."""

    heading: str
    is_text: bool = False
    is_mono: bool = False
    digits: int = 4


def table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], sorted_by: int, label: str) -> str:
    """A table sortable by its headings, initially in descending order of one column."""
    heads = "".join(
        f'<th scope="col"{_classes(column)}{_sorting(number == sorted_by)}>'
        f'<button type="button">{html.escape(column.heading)}</button></th>'
        for number, column in enumerate(columns)
    )
    body = "".join(
        "<tr>" + "".join(_cell(column, value) for column, value in zip(columns, row, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def choices(switch: str, lists: Mapping[str, Sequence[str]], contents: Sequence[str]) -> str:
    """Drop-down lists by label, and the content for each combination of their options, one of which is visible.

    The contents are in lexicographic order; `switch` is a name for these lists that is unique on the page. A list with
    one option is hidden.
    """
    controls = "".join(_select(label, switch, options) for label, options in lists.items())
    places = product(*(range(len(options)) for options in lists.values()))
    parts = [_part(switch, place, content) for place, content in zip(places, contents, strict=True)]
    return f'<div class="controls">{controls}</div>{"".join(parts)}'


def _select(label: str, switch: str, options: Sequence[str]) -> str:
    listed = "".join(f'<option value="{number}">{html.escape(text)}</option>' for number, text in enumerate(options))
    hidden = " hidden" if len(options) < 2 else ""
    return f'<label{hidden}>{html.escape(label)} <select data-switch="{html.escape(switch)}">{listed}</select></label>'


def _part(switch: str, place: Sequence[int], content: str) -> str:
    choice, hidden = "-".join(map(str, place)), " hidden" if any(place) else ""
    return f'<div data-part="{html.escape(switch)}" data-choice="{choice}"{hidden}>{content}</div>'


def tile(title: str, value: str, unit: str, meaning: str) -> str:
    """A headline figure with its definition."""
    shown = html.escape(value) + (f" <small>{html.escape(unit)}</small>" if unit else "")
    return f'<div class="tile"><h3>{html.escape(title)}</h3><b>{shown}</b><p>{html.escape(meaning)}</p></div>'


def notes(sentences: Sequence[str]) -> str:
    """List of problems; empty without any."""
    if not sentences:
        return ""
    listed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f'<div class="notes" role="note">Not everything is here:<ul>{listed}</ul></div>'


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{html.escape(text)}</h{level}>"


def code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def folded(summary: str, content: str) -> str:
    """Content that a click on its summary unfolds."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def shown(value: float | None, digits: int = 3) -> str:
    """A number with a given number of significant digits, trailing zeros included; a dash for None or NaN.

    >>> shown(0.25), shown(None)
    ('0.250', '–')
    """
    return "–" if value is None or math.isnan(value) else f"{value:#.{digits}g}".removesuffix(".")


def _cell(column: Column, value: Any) -> str:
    if column.is_text:
        return f"<td{_classes(column)}>{html.escape(str(value))}</td>"
    if isinstance(value, int):
        return f'<td data-value="{value}">{value:,}</td>'
    return f'<td data-value="{float(value)!r}">{shown(value, column.digits)}</td>'


def _classes(column: Column) -> str:
    names = ["text"] * column.is_text + ["mono"] * column.is_mono
    return f' class="{" ".join(names)}"' if names else ""


def _sorting(is_sorted: bool) -> str:
    return ' aria-sort="descending"' if is_sorted else ""
