"""Groups of runs that differ only in their seed, and statistics over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stochflow.core.arrays import Array
from stochflow.environments.registry import score_bound
from stochflow.reports.commands import peculiarities
from stochflow.reports.reader import RunRecord


@dataclass(frozen=True)
class Measure:
    """A metric by which samplers are compared.

    Attributes:
        key: its name in `summary.json` and `metrics.jsonl`.
        axis: axis label with the unit.
        meaning: definition in one sentence, shown on the page.
        from_zero: True where an axis that begins at zero shows how large a value is.
    """

    key: str
    title: str
    axis: str
    meaning: str
    is_logarithmic: bool = False
    from_zero: bool = True


MEASURES = (
    Measure(
        "regret",
        "Regret",
        "regret (nats)",
        "How far the sampler is from the best that any policy could do under this noise; 0 is that best.",
        is_logarithmic=True,
    ),
    Measure(
        "j",
        "J",
        "J (nats)",
        "log Z minus the divergence of what is drawn from what should be drawn; higher is better, by as many nats as "
        "the divergence is smaller.",
        from_zero=False,
    ),
    Measure(
        "tv",
        "Total variation",
        "total variation",
        "The share of probability that lies on the wrong sequences, from 0 to 1.",
    ),
    Measure("mean_score", "Expected score", "expected score", "The mean score of the designs that the sampler draws."),
    Measure(
        "best_paid",
        "Best paid score",
        "best score paid for",
        "The best of all scores that were paid for so far, whatever the policy draws.",
        from_zero=False,
    ),
    Measure(
        "top100_paid",
        "100 best paid scores",
        "mean of the 100 best scores paid for",
        "The mean of the 100 best of all scores that were paid for so far; of all of them while they are fewer.",
        from_zero=False,
    ),
)
PAID = ("best_paid", "top100_paid")
# where E[score] is not evaluated during training
BATCH_SCORE = Measure(
    "batch_score", "Score of training batches", "mean score of a batch", "The mean score of what training sampled."
)


@dataclass(frozen=True)
class Group:
    """Runs of one condition and one method that differ only in their seed.

    Attributes:
        condition: task and noise, under which methods are compared.
        method: name of the method, with the settings that differ within the sweep.
    """

    condition: str
    method: str
    runs: tuple[RunRecord, ...]

    @property
    def label(self) -> str:
        return f"{self.method}, {self.condition}"

    def values(self, key: str) -> list[float]:
        """Final values of a metric, of the runs that have ended and have it."""
        found = [run.latest(key) for run in self.runs if run.summary is not None]
        return [value for value in found if value is not None and np.isfinite(value)]

    def typical(self) -> RunRecord:
        """The run with the median regret, or J where no regret is known (the better of two medians), or the first."""
        for key, sign in (("regret", 1.0), ("j", -1.0)):
            known = [(sign * value, at) for at, run in enumerate(self.runs) if (value := run.latest(key)) is not None]
            if known:
                return self.runs[sorted(known)[(len(known) - 1) // 2][1]]
        return self.runs[0]


def grouped(runs: Sequence[RunRecord]) -> list[Group]:
    """Groups by condition and method, sorted by name."""
    details = {run.path: peculiarities(run.config) for run in runs}
    common = set.intersection(*(set(found) for found in details.values()))
    tasks = {run.config.task for run in runs}
    members: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        condition = f"noise {run.noise}" if len(tasks) == 1 else f"{run.config.task}, noise {run.noise}"
        own = [text for text in details[run.path] if text not in common]
        members.setdefault((condition, " ".join([run.config.method, *own])), []).append(run)
    return [Group(*key, tuple(found)) for key, found in sorted(members.items())]


@dataclass(frozen=True)
class Curve:
    """Median, minimum and maximum over seeds along a common axis; all [points]."""

    x: Array
    median: Array
    low: Array
    high: Array


def curve(runs: Sequence[RunRecord], key: str, along: str) -> Curve | None:
    """Curve of a metric over seeds along another, such as `seconds`; each point is over the runs that reach it."""
    lines = []
    for run in runs:
        if {key, along} <= set(run.metrics.columns):
            known = run.metrics[[along, key]].dropna().sort_values(along)
            known = known[np.isfinite(known[key])]
            if len(known):
                lines.append((known[along].to_numpy(dtype=float), known[key].to_numpy(dtype=float)))
    if not lines:
        return None
    x = np.unique(np.concatenate([line[0] for line in lines]))
    table = np.stack([np.interp(x, *line, left=np.nan, right=np.nan) for line in lines])
    return Curve(x, np.nanmedian(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0))


def ceiling(run: RunRecord, key: str) -> float | None:
    """What no policy or design can exceed in a measure; None where that is not known.

    Of J it is that of the policy with the smallest KL: log Z − min KL, which is J plus regret in every record.
    """
    if key in PAID:
        return score_bound(run.config.task)
    if key != "j" or not {"j", "regret"} <= set(run.metrics.columns):
        return None
    known = (run.metrics["j"] + run.metrics["regret"]).dropna()
    return float(known.iloc[-1]) if len(known) and np.isfinite(known.iloc[-1]) else None


def counted_in(runs: Sequence[RunRecord]) -> str:
    """What learning curves go along beside seconds: oracle calls where paid scores were logged, or trajectories."""
    return "oracle_calls" if any(len(run.logged(key)) for run in runs for key in PAID) else "trajectories"


def measures_of(runs: Sequence[RunRecord]) -> list[Measure]:
    """Measures that at least one run has logged; the score of training batches where E[score] was not."""
    known = [measure for measure in MEASURES if any(len(run.logged(measure.key)) for run in runs)]
    if any(measure.key == "mean_score" for measure in known):
        return known
    return known + [BATCH_SCORE] * any(len(run.logged(BATCH_SCORE.key)) for run in runs)
