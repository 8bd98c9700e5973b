"""Where measurements are kept: one JSON file, part by part, and what is made from it."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.processes import Row
from benchmarks.peers.tables import ground_table, quality_table, regret_table, step_table

Parts = dict[str, list[Row]]

# what stands between them in a page is made from the measurements
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
CURVE_COLUMNS = ("part", "system", "seed", "iterations", "trajectories", "cpu_seconds", "wall_seconds", "tv", "regret")

# section → the parts it needs, and what it says
SECTIONS: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "A training step of trajectory balance on TFBind8 without noise, one core; medians and extremes over rounds": (
        ("steps",),
        step_table,
    ),
    "The same on 120 bits, eight at a time from left to right; both peers are asked to be no faster than ours": (
        ("steps-bits",),
        ground_table,
    ),
    "The same on a grid of four dimensions and side eight; both peers are asked to be no faster than ours": (
        ("steps-hypergrid",),
        ground_table,
    ),
    "Time to quality without noise": (("quality-gfnx", "quality-ours"), quality_table),
    "Time to regret at α = 0.25": (("regret-ours", "regret-reference"), regret_table),
}


def read(path: Path) -> Parts:
    """All parts measured so far."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(path: Path, part: str, rows: list[Row]) -> Parts:
    """Replace one part and keep the others; gives back all."""
    parts = {**read(path), part: rows}
    # one row per line: a difference between two files can be read
    bodies = [(name, ",\n".join(map(json.dumps, parts[name]))) for name in sorted(parts)]
    text = ",\n".join(f"{json.dumps(name)}: [\n{body}\n]" for name, body in bodies)
    path.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    return parts


def write_curves(path: Path, parts: Parts) -> None:
    """Every checkpoint of every run as one row of a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, CURVE_COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        for part, rows in sorted(parts.items()):
            if not part.startswith("steps"):
                table.writerows({"part": part, **row} for row in rows)


def report(parts: Parts) -> str:
    """All tables for which everything was measured; the others are named."""
    texts = []
    for title, (needed, table) in SECTIONS.items():
        missing = [part for part in needed if part not in parts]
        body = f"not measured yet: {', '.join(missing)}" if missing else table(*(parts[part] for part in needed))
        texts.append(f"{title}\n\n{body}")
    return "\n\n\n".join(texts) + "\n"


def insert(page: Path, text: str) -> None:
    """Put the tables between the two marks of a Markdown page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n```text\n{text}```\n{END}{after}", encoding="utf-8")
