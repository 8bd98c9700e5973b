"""Learning curves on the long tasks as SVG files, one per family of tasks, drawn with the standard library and pandas.

python -m benchmarks.long_spaces_plot      # docs/explanation/long-sequences-FAMILY.svg from long_spaces_curves.csv
python -m benchmarks.long_spaces_plot --families motifs --out build

One column per task, noise and number of calls; above J, below the best score paid for, against paid calls. Lines are
medians over seeds, a band reaches from the lowest to the highest seed, and a dotted line is the ceiling where one is
known.
"""

import argparse
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.long_spaces import METHODS
from benchmarks.sweep import RESULTS
from stochflow.environments.registry import score_bound

DOCS = Path(__file__).parents[1] / "docs/explanation"
FAMILIES = ("motifs", "rna-fold", "rna-bind", "bits", "ehrlich")
CASE = ["task", "noise", "calls"]
MEASURES = {"j": "J (nats)", "best_paid": "best score paid for"}
COLUMNS = 3
# Okabe and Ito, in the order of `METHODS`
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#999999", "#e69f00", "#56b4e9", "#cc79a7", "#8c6bb1", "#a6761d")
COLOURS = dict(zip(METHODS, _COLOURS, strict=True))
WIDTH, HEIGHT = 240, 150  # of a panel
LEFT, TOP, GAP = 52, 26, 44
LEGEND = 24
STYLE = """
text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold }
.grid { stroke: #ddd; stroke-width: 1 } .ceiling { stroke: #333; stroke-width: 1.5; stroke-dasharray: 2 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .grid { stroke: #444 } .ceiling { stroke: #ddd }
}
"""


class Scale(NamedTuple):
    """A linear map from values to places on the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=RESULTS / "long_spaces_curves.csv")
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the pictures")
    given = parser.parse_args()
    rows = pd.read_csv(given.curves)
    rows = rows[rows["method"].isin(METHODS)]
    for family in given.families:
        found = rows[rows["task"].str.partition(":")[0] == family]
        if len(found):
            path = given.out / f"long-sequences-{family}.svg"
            path.write_text(picture(found), encoding="utf-8")
            print(path)


def picture(rows: pd.DataFrame) -> str:
    """An SVG of the curves of all cases, with one legend."""
    cases = list(rows.groupby(CASE))
    lines = -(-len(cases) // COLUMNS)
    wide = LEFT + min(len(cases), COLUMNS) * (WIDTH + GAP)
    high = LEGEND + lines * len(MEASURES) * (HEIGHT + TOP + GAP)
    methods = [method for method in METHODS if method in set(rows["method"])]
    parts = [_legend(methods, bool(rows["j_ceiling"].notna().any()))]
    for number, (key, case) in enumerate(cases):
        line, column = divmod(number, COLUMNS)
        for below, measure in enumerate(MEASURES):
            x = LEFT + column * (WIDTH + GAP)
            y = LEGEND + (line * len(MEASURES) + below) * (HEIGHT + TOP + GAP) + TOP
            title = "" if below else _title(key)
            name = "" if column else MEASURES[measure]
            parts.append(f'<g transform="translate({x} {y})">{panel(case, measure, title, name)}</g>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def panel(case: pd.DataFrame, measure: str, title: str, name: str) -> str:
    """Axes and curves of one case and measure; `name` is that of the vertical axis."""
    top = ceiling(case, measure)
    values = [*case[measure], *([] if top is None else [top])]
    low, high = min(values), max(values)
    room = 0.05 * (high - low or 1.0)
    along, up = Scale(0, case["calls"].max(), 0, WIDTH), Scale(low - room, high + room, HEIGHT, 0)
    parts = [f'<text class="title" x="0" y="-10">{escape(title)}</text>', _axes(along, up, name)]
    if top is not None:
        parts.append(f'<line class="ceiling" x1="0" x2="{WIDTH}" y1="{up(top):.1f}" y2="{up(top):.1f}"/>')
    for method, rows in case.groupby("method"):
        parts.append(curve(rows, measure, along, up, COLOURS[str(method)]))
    return "".join(parts)


def curve(rows: pd.DataFrame, measure: str, along: Scale, up: Scale, colour: str) -> str:
    """The median over seeds, interpolated between their points, and a band from the lowest to the highest."""
    seeds = [seed.sort_values("paid") for _, seed in rows.groupby("seed")]
    x = np.unique(rows["paid"].to_numpy(dtype=float))
    table = np.stack([np.interp(x, seed["paid"], seed[measure], left=np.nan, right=np.nan) for seed in seeds])
    middle, low, high = np.nanmedian(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0)

    def places(y: Sequence[float], order: int = 1) -> str:
        pairs = list(zip(x, y, strict=True))[::order]
        return " ".join(f"{along(one):.1f},{up(other):.1f}" for one, other in pairs)

    drawn = f'<polyline points="{places(middle)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
    if len(seeds) > 1:
        drawn = f'<polygon points="{places(high)} {places(low, -1)}" fill="{colour}" fill-opacity="0.15"/>' + drawn
    return drawn


def ceiling(case: pd.DataFrame, measure: str) -> float | None:
    """The largest J that any policy can have, or the score that no design exceeds; None where it is not known."""
    if measure == "j":
        known = case["j_ceiling"].dropna()
        return float(known.iloc[0]) if len(known) else None
    return score_bound(str(case["task"].iloc[0]))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most so many round numbers between two values."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(along: Scale, up: Scale, name: str) -> str:
    parts = []
    for value in ticks(up.low, up.high, 4):
        y = up(value)
        parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="-5" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(along.low, along.high, 4):
        parts.append(f'<text x="{along(value):.1f}" y="{HEIGHT + 14}" text-anchor="middle">{value:,.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT + 30}" text-anchor="middle">paid calls</text>')
    parts.append(f'<text transform="translate(-38 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{name}</text>')
    return "".join(parts)


def _legend(methods: Sequence[str], with_ceiling: bool) -> str:
    marks = {method: f'<path d="M0 12h16" stroke="{COLOURS[method]}" stroke-width="3"/>' for method in methods}
    if with_ceiling:
        marks["ceiling"] = '<path class="ceiling" d="M0 12h16"/>'
    parts, x = [], LEFT
    for name, mark in marks.items():
        parts.append(f'<g transform="translate({x} 0)">{mark}<text x="20" y="16">{escape(name)}</text></g>')
        x += 34 + 7 * len(name)
    return "".join(parts)


def _title(case: Any) -> str:
    task, noise, _ = case  # how many calls there are, the axis says
    return f"{task}, α = {noise:g}"


if __name__ == "__main__":
    main()
