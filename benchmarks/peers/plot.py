"""Curves of quality against CPU time as one SVG file.

python -m benchmarks.peers.plot peers_curves.csv performance.svg
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

from benchmarks.peers.settings import REGRET_TARGET, TV_TARGET

# part prefix → figure, its target, title
PANELS = {
    "quality": ("tv", TV_TARGET, "exact TV, no noise"),
    "regret": ("regret", REGRET_TARGET, "regret (nats), α = 0.25"),
}
COLOURS = {
    "gfnx": "#d55e00",
    "gfn-tb": "#56b4e9",
    "sgfn-kl": "#0072b2",
    "sgfn-kl-noise": "#0072b2",
    "sgfn-db-5000": "#cc79a7",
    "sgfn-db-20000": "#e69f00",
}
LABELS = {
    "gfnx": "gfnx TB, its defaults",
    "gfn-tb": "stochflow gfn-tb, settings of gfnx",
    "sgfn-kl": "stochflow sgfn-kl",
    "sgfn-kl-noise": "stochflow sgfn-kl",
    "sgfn-db-5000": "sgfn-db as the reference, 5,000 iterations",
    "sgfn-db-20000": "sgfn-db as the reference, 20,000 iterations",
}


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    # the same figures give the same file
    mpl.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(1, len(PANELS), figsize=(9, 3.4), layout="constrained")
    for panel, (prefix, (field, asked, title)) in zip(axes, PANELS.items(), strict=True):
        draw(panel, [row for row in rows if row["part"].startswith(prefix)], field)
        panel.axhline(asked, color="#777777", linewidth=0.8, linestyle="--")
        panel.set(xscale="log", yscale="log", xlabel="CPU seconds of training", title=title)
    figure.savefig(target, metadata={"Date": None, "Creator": None})


def draw(panel: Any, rows: list[dict[str, str]], field: str) -> None:
    """One thin line per seed, one colour per system."""
    curves = defaultdict(list)
    for row in rows:
        curves[row["system"], row["seed"]].append((float(row["cpu_seconds"]), float(row[field])))
    named: set[str] = set()
    for (system, _), points in curves.items():
        label = None if system in named else LABELS[system]
        named.add(system)
        panel.plot(*zip(*points, strict=True), color=COLOURS[system], linewidth=1.1, label=label)
    if curves:
        panel.legend(frameon=False, fontsize=8)


if __name__ == "__main__":
    main()
