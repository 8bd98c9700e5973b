"""How far a comparison is, read from its run directories: the same for every engine, on every machine."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stochflow.experiments.sweep.config import RUNS

_TAIL = 8192
_EVERY = 0.5


@dataclass(frozen=True)
class State:
    """A moment of a comparison.

    Attributes:
        done, total: runs that ended, and all of them.
        running: share of the budget and last record of each run that moved since the comparison was started.
    """

    done: int
    total: int
    running: dict[str, tuple[float, dict[str, float]]]


class Watch:
    """Looks at the runs that have not ended, at most twice a second."""

    def __init__(self, path: Path, trajectories: int, total: int) -> None:
        self._path, self._trajectories, self._total = path, trajectories, total
        self._since, self._next = time.time(), 0.0

    def look(self, unfinished: Iterable[str]) -> State | None:
        """The state now; None if the last look was only a moment ago."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + _EVERY
        return self.state(unfinished)

    def state(self, unfinished: Iterable[str]) -> State:
        names = list(unfinished)
        running = {}
        for name in names:
            record = self._last_record(self._path / RUNS / name / "metrics.jsonl")
            if record is not None:
                running[name] = (min(record["trajectories"] / self._trajectories, 1.0), record)
        return State(self._total - len(names), self._total, running)

    def _last_record(self, path: Path) -> dict[str, float] | None:
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mtime < self._since:
                    return None  # of an earlier session: it waits
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                lines = file.read().splitlines()
            return dict(json.loads(lines[-1]))
        except (OSError, ValueError, IndexError):
            return None  # not there yet, or its last line is being written


class Board:
    """A live line per running run and one for the whole; silent where nobody watches."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._lines: dict[str, TaskID] = {}
        self._latest: dict[str, dict[str, float]] = {}
        self._whole = self._progress.add_task("all runs", total=1.0, numbers="")

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, state: State) -> None:
        """Draw a state; lines of runs that have ended disappear."""
        self._progress.start()
        for name in set(self._lines) - set(state.running):
            self._progress.remove_task(self._lines.pop(name))
        for name, (share, record) in state.running.items():
            if name not in self._lines:
                self._lines[name] = self._progress.add_task(escape(name), total=1.0, numbers="")
            latest = self._latest[name] = self._latest.get(name, {}) | record  # not every step is judged
            self._progress.update(self._lines[name], completed=share, numbers=figures(latest))
        spent = state.done + sum(share for share, _ in state.running.values())
        self._progress.update(
            self._whole, completed=spent / max(state.total, 1), numbers=f"{state.done} of {state.total} runs"
        )


def figures(latest: Mapping[str, float]) -> str:
    """What a line says of a run: its rate, loss and regret, or J without one, as far as they are known."""
    parts = []
    if latest.get("seconds", 0.0) > 0.0:
        parts.append(f"{latest['trajectories'] / latest['seconds']:,.0f} trajectories/s")
    parts += [f"loss {latest['loss']:.4f}"] if "loss" in latest else []
    parts += [f"regret {latest['regret']:.4f}"] if "regret" in latest else []
    parts += [f"J {latest['j']:.3f}"] if "j" in latest and "regret" not in latest else []
    return "  ".join(parts)
