"""What a comparison shows: one row per run, medians with bootstrap intervals, and winners that deserve the name."""

import io
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stochflow.core.errors import ConfigError
from stochflow.core.files import write_atomically
from stochflow.evaluation.bootstrap import LEVEL, MIN_VALUES, median_interval
from stochflow.evaluation.summary import Summary
from stochflow.experiments.sweep.config import RUNS
from stochflow.experiments.sweep.specification import PlannedRun
from stochflow.experiments.sweep.worker import cpu_seconds, finished_summary

CSV, PARQUET = "results.csv", "results.parquet"
_FIRST = ["run", "task", "method", "noise", "seed", "status", "error"]
_LAST = ["log_z_error", "cpu_seconds"]
COLUMNS = [*_FIRST, *(name for name in Summary.model_fields if name not in _FIRST), *_LAST]
_TEXT = {"run", "task", "method", "status", "reward_noise", "reward_mean", "feedback", "world", "surrogate", "error"}


class Results:
    """The table of a comparison, kept up to date on disk while runs finish."""

    def __init__(self, path: Path, runs: Sequence[PlannedRun]) -> None:
        self._path, self._runs = path, {run.name: run for run in runs}
        self._rows: dict[str, dict[str, Any]] = {}
        for name in self._runs:
            self._read(name)

    @property
    def failures(self) -> dict[str, str]:
        """The sentence of each run that failed."""
        return {name: row["error"] for name, row in self._rows.items() if row["status"] == "failed"}

    @property
    def missing(self) -> list[str]:
        """Runs that have not finished, failed ones included."""
        return [name for name in self._runs if name not in self._rows or self._rows[name]["status"] == "failed"]

    def seconds(self, run: PlannedRun) -> float | None:
        """Median training time of finished runs of the same task and method."""
        rows = [row for row in self._rows.values() if (row["task"], row["method"]) == (run.task, run.method)]
        times = [row["seconds"] for row in rows if row["status"] == "finished"]
        return float(np.median(times)) if times else None

    def seconds_per_update(self) -> float:
        """Median over finished runs; 1 before there are any, which puts runs in the order of their updates."""
        finished = [row for row in self._rows.values() if row["status"] == "finished"]
        return float(np.median([row["seconds"] / self._runs[row["run"]].num_updates for row in finished] or [1.0]))

    def finish(self, name: str) -> None:
        """Take in a run that has finished."""
        self._read(name)
        self.write()

    def fail(self, name: str, error: str) -> None:
        """Take in a run that cannot go on."""
        self._rows[name] = self._label(name) | {"status": "failed", "error": error}
        self.write()

    def frame(self) -> pd.DataFrame:
        """One row per finished or failed run, in the order of the plan."""
        frame = pd.DataFrame([self._rows[name] for name in self._runs if name in self._rows], columns=COLUMNS)
        return frame.astype({name: _dtype(name, frame[name]) for name in COLUMNS})

    def write(self) -> None:
        """Replace results.csv and, where pyarrow is installed, results.parquet."""
        frame = self.frame()
        self._replace(CSV, frame.to_csv(index=False).encode())
        buffer = io.BytesIO()
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            warnings.warn(f"{PARQUET} needs pyarrow; run `pip install 'stochflow[parquet]'`", stacklevel=2)
            return
        self._replace(PARQUET, buffer.getvalue())

    def _replace(self, name: str, content: bytes) -> None:
        path = self._path / name
        try:
            write_atomically(path, content)
        except OSError as error:
            raise ConfigError(
                f"cannot write {path} ({error.strerror}); free the space or remove what is in its place, and go on"
            ) from None

    def _read(self, name: str) -> None:
        path = self._path / RUNS / name
        summary = finished_summary(path)
        if summary is None:
            return
        values = summary.model_dump()
        log_z, log_z_true = values["log_z"], values["log_z_true"]
        added = {
            "log_z_error": None if log_z is None or log_z_true is None else log_z - log_z_true,
            "cpu_seconds": cpu_seconds(path),
        }
        self._rows[name] = values | added | self._label(name) | {"error": None}

    def _label(self, name: str) -> dict[str, Any]:
        run = self._runs[name]
        return {"run": name} | {key: getattr(run, key) for key in ("task", "method", "noise", "seed", "feedback")}


@dataclass(frozen=True)
class Entry:
    """One method under one task, noise and feedback.

    Attributes:
        runs, planned: finished runs, and how many there are to be.
        median, low, high: of the metric over the finished runs; None without any.
    """

    method: str
    runs: int
    planned: int
    median: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Standing:
    """All methods under one task, noise and feedback, best median first.

    Attributes:
        metric: `regret`; `j` for a task whose optimum is not known; `mean_score` where designs have no score yet.
        interval: what low and high are: a bootstrap interval, or the lowest and highest of too few runs.
        winner: the method whose interval lies clear of all others; None if there is none.
        verdict: the same as a sentence.
    """

    task: str
    noise: float | str
    metric: str
    interval: str
    entries: list[Entry]
    winner: str | None
    verdict: str
    feedback: str = "step"


def standings(frame: pd.DataFrame, runs: Sequence[PlannedRun]) -> list[Standing]:
    """The comparison, one standing per task, noise and feedback in the order of the plan."""
    cases: dict[tuple[str, float | str, str], list[PlannedRun]] = {}
    for run in runs:
        cases.setdefault((run.task, run.noise, run.feedback), []).append(run)
    return [_standing(frame, of_case) for of_case in cases.values()]


def _standing(frame: pd.DataFrame, runs: list[PlannedRun]) -> Standing:
    names = [run.name for run in runs]
    finished = frame[frame["run"].isin(names) & (frame["status"] == "finished")]
    metric = next((name for name in ("regret", "j") if finished[name].notna().all()), "mean_score")
    methods = dict.fromkeys(run.method for run in runs)
    entries = [
        _entry(method, finished.loc[finished["method"] == method, metric], len(runs) // len(methods))
        for method in methods
    ]
    sign = 1.0 if metric == "regret" else -1.0
    entries.sort(key=lambda entry: math.inf if entry.median is None else sign * entry.median)
    few = any(entry.runs < MIN_VALUES for entry in entries)
    described = "lowest and highest" if few else f"{LEVEL:.0%} bootstrap"
    winner, verdict = _verdict(entries, sign)
    case = runs[0]
    return Standing(case.task, case.noise, metric, described, entries, winner, verdict, case.feedback)


def _entry(method: str, values: pd.Series, planned: int) -> Entry:
    if values.empty:
        return Entry(method, 0, planned, None, None, None)
    numbers = values.astype(float).tolist()
    return Entry(method, len(numbers), planned, float(np.median(numbers)), *median_interval(numbers))


def _verdict(entries: list[Entry], sign: float) -> tuple[str | None, str]:
    """The winner, if there is one, and why or why not. Lower is better for sign 1, higher for −1."""
    if len(entries) < 2:
        return None, "One method: nothing to compare."
    incomplete = [entry.method for entry in entries if entry.runs < entry.planned]
    if incomplete:
        return None, f"No clear winner yet: runs of {_listed(incomplete)} are missing."
    if entries[0].planned < MIN_VALUES:
        return None, f"No clear winner: fewer than {MIN_VALUES} seeds; shown are the lowest and the highest."
    best, *others = entries
    close = [entry.method for entry in others if not _clear(best, entry, sign)]
    if close:
        return None, f"No clear winner: the interval of {best.method} meets that of {_listed(close)}."
    return best.method, f"Winner: {best.method}; its interval lies clear of all others."


def _clear(best: Entry, other: Entry, sign: float) -> bool:
    assert best.low is not None
    assert best.high is not None
    assert other.low is not None
    assert other.high is not None
    return best.high < other.low if sign > 0 else best.low > other.high


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _dtype(name: str, column: pd.Series) -> Any:
    """Whole numbers stay whole and gaps stay gaps; noise is a number as long as every channel has one."""
    if name == "noise":
        return "float64" if all(isinstance(value, int | float) for value in column) else "str"
    if name in _TEXT:
        return "str"
    field = Summary.model_fields.get(name)
    return "Int64" if name == "seed" or (field is not None and field.annotation is int) else "Float64"
