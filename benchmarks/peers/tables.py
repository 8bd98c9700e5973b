"""From rows to tables and verdicts."""

import math
from statistics import median
from typing import NamedTuple

from benchmarks.peers.processes import Row
from benchmarks.peers.settings import (
    BATCHES,
    REGRET_RATIO,
    REGRET_TARGET,
    STEP_TARGETS,
    SYSTEMS,
    TV_RATIO,
    TV_TARGET,
)


class Spread(NamedTuple):
    """Median with the smallest and the largest."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}–{self.high:.2f})"


def spread_of(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def of(rows: list[Row], **wanted: object) -> list[Row]:
    """Rows with these fields."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def ratios(rows: list[Row], peer: str, batch: int, field: str) -> Spread:
    """Peer over ours, round by round: what runs at the same time meets the same machine."""
    ours = {row["round"]: row[field] for row in of(rows, system="ours", batch=batch)}
    theirs = {row["round"]: row[field] for row in of(rows, system=peer, batch=batch)}
    return spread_of([theirs[number] / ours[number] for number in sorted(ours.keys() & theirs.keys())])


def verdict(ratio: float, target: float) -> str:
    """Met or missed, with both figures."""
    return f"{'met' if ratio >= target else 'MISSED'}: {ratio:.2f}×, asked for {target:g}×"


def ground_table(rows: list[Row]) -> str:
    """The same where nothing more than being ahead was asked for."""
    return step_table(rows, dict.fromkeys(STEP_TARGETS, dict.fromkeys(BATCHES, 1.0)))


def step_table(rows: list[Row], asked: dict[str, dict[int, float]] = STEP_TARGETS) -> str:
    """Milliseconds per iteration of every system and batch, ratios to ours, and whether they are what was asked for."""
    lines = [
        _columns("batch", "system", "weights", "CPU ms (min–max)", "wall ms (min–max)", "CPU / ours", "wall / ours")
    ]
    for batch in BATCHES:
        for system in SYSTEMS:
            mine = of(rows, system=system, batch=batch)
            if not mine:
                continue
            spreads = [spread_of([row[field] for row in mine]) for field in ("cpu_ms", "wall_ms")]
            if system != "ours":
                spreads += [ratios(rows, system, batch, field) for field in ("cpu_ms", "wall_ms")]
            lines.append(_columns(batch, system, f"{mine[0]['parameters']:,}", *spreads))
    lines.append("")
    for peer, targets in asked.items():
        for batch, target in targets.items():
            if not of(rows, batch=batch):
                continue
            lines.append(
                f"{peer} / ours at batch {batch}: {verdict(ratios(rows, peer, batch, 'cpu_ms').middle, target)}"
            )
    return "\n".join(lines)


def _columns(batch: object, system: str, weights: str, *figures: object) -> str:
    return f"{batch:>5}  {system:<9} {weights:>8}" + "".join(f"  {figure!s:<22}" for figure in figures).rstrip()


def time_to(curve: list[Row], field: str, target: float) -> float:
    """CPU seconds at the first checkpoint whose figure is at or below the target; infinite where none is."""
    reached = [row["cpu_seconds"] for row in curve if row[field] <= target]
    return min(reached, default=math.inf)


def seeds_of(rows: list[Row]) -> list[list[Row]]:
    """One list of rows per seed."""
    return [of(rows, seed=seed) for seed in sorted({row["seed"] for row in rows})]


def times_to(rows: list[Row], field: str, target: float) -> list[float]:
    """CPU seconds to the target, one per seed."""
    return [time_to(curve, field, target) for curve in seeds_of(rows)]


def race(ours: list[Row], theirs: list[Row], field: str, target: float, asked: float) -> str:
    """Verdict on the medians over seeds; a bound where the rival did not get there."""
    mine, rival = (median(times_to(rows, field, target)) for rows in (ours, theirs))
    if math.isinf(mine):
        return f"MISSED: ours does not reach {field} {target:g}"
    if math.isinf(rival):
        spent = median(max(row["cpu_seconds"] for row in curve) for curve in seeds_of(theirs))
        bound = spent / mine
        word = "met" if bound >= asked else "OPEN"
        return (
            f"{word}: the rival did not reach {field} {target:g} in {spent:.0f} CPU s, so more than {bound:.1f}×, "
            f"asked for {asked:g}×"
        )
    return verdict(rival / mine, asked)


def curve_table(rows: list[Row], field: str, target: float) -> str:
    """Per system and seed: CPU seconds to the target, and where the run ended."""
    lines = [f"system             seed  CPU s to {field} ≤ {target:g}  final {field}  CPU s in all  iterations"]
    for system in dict.fromkeys(row["system"] for row in rows):
        for curve in seeds_of(of(rows, system=system)):
            last, reached = curve[-1], time_to(curve, field, target)
            shown = "not reached" if math.isinf(reached) else f"{reached:.2f}"
            lines.append(
                f"{system:<18} {last['seed']:>4}  {shown:>{18 + len(field)}}  {last[field]:>{6 + len(field)}.4f}  "
                f"{last['cpu_seconds']:>12.1f}  {last['iterations']:>10,}"
            )
    return "\n".join(lines)


def quality_table(gfnx: list[Row], ours: list[Row]) -> str:
    """Time to the TV that is asked for, without noise."""
    lines = [curve_table([*gfnx, *ours], "tv", TV_TARGET), ""]
    for system in dict.fromkeys(row["system"] for row in ours):
        lines.append(f"gfnx / {system}: {race(of(ours, system=system), gfnx, 'tv', TV_TARGET, TV_RATIO)}")
    compiling = median(curve[0]["compile_seconds"] for curve in seeds_of(gfnx))
    lines.append(f"compiling gfnx's loop takes {compiling:.1f} CPU s more, not counted above")
    return "\n".join(lines)


def regret_table(ours: list[Row], reference: list[Row]) -> str:
    """Time to the regret that is asked for, under noise; the faster of the reference's budgets counts."""
    lines = [curve_table([*ours, *reference], "regret", REGRET_TARGET), ""]
    for system in dict.fromkeys(row["system"] for row in reference):
        result = race(ours, of(reference, system=system), "regret", REGRET_TARGET, REGRET_RATIO)
        lines.append(f"{system} / sgfn-kl: {result}")
    return "\n".join(lines)
