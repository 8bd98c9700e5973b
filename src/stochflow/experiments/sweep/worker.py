"""What a worker does with one run, whichever engine it belongs to: start it, go on with it, or leave it alone."""

import os
import platform
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import BaseModel, Field

from stochflow.core.errors import DataError, StochflowError
from stochflow.core.files import write_atomically
from stochflow.evaluation.summary import Summary
from stochflow.experiments.launch import LaunchOptions, launch
from stochflow.experiments.sweep.config import RUNS
from stochflow.runs.directory import CONFIG, RunDirectory, recover

STOP = ".stop"
LOCKS = ".locks"
USAGE = "worker.json"
_PATIENCE = 60.0
_USAGE_EVERY = 5.0


@dataclass(frozen=True)
class Job:
    """One run as a worker needs it: plain values that can travel to another machine."""

    sweep: str
    name: str
    config: dict[str, Any]
    track: tuple[str, ...] = ()
    oracle: str | None = None

    @property
    def path(self) -> Path:
        return Path(self.sweep) / RUNS / self.name


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, interrupted or failed, and in the last case why."""

    name: str
    status: str
    error: str = ""
    warnings: tuple[str, ...] = ()


class Usage(BaseModel):
    """What `worker.json` of a run holds: who works on it, how often it was taken up, CPU time over all sessions."""

    host: str
    pid: int
    sessions: int = Field(ge=0)
    cpu_seconds: float = Field(ge=0, allow_inf_nan=False)


def execute(job: Job) -> Outcome:
    """Take a run to its end, from its checkpoint if it has one. Errors come back as a sentence, not as exceptions."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        status, error = _attempt(job)
    return Outcome(job.name, status, error, tuple(str(warning.message) for warning in caught))


def finished_summary(path: Path) -> Summary | None:
    """The summary of a run that used up its budget; None for any other."""
    try:
        summary = RunDirectory(path).summary()
    except DataError:
        return None
    return summary if summary.status == "finished" else None


def cpu_seconds(path: Path) -> float | None:
    """CPU time that all workers together spent on a run."""
    usage = _read_usage(path)
    return None if usage is None else usage.cpu_seconds


def lock(sweep: Path, name: str) -> FileLock:
    """One process at a time; the system lets go of it when the process ends, however it ends."""
    (sweep / LOCKS).mkdir(exist_ok=True)
    return FileLock(sweep / LOCKS / f"{name}.lock")


class Meter:
    """Keeps `worker.json` of a run: who works on it, and the CPU time so far, over all sessions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        before = _read_usage(path)
        self._spent, self._sessions = (0.0, 1) if before is None else (before.cpu_seconds, before.sessions + 1)
        self._started, self._next = time.process_time(), 0.0

    def listen(self, record: dict[str, float], progress: float) -> None:
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        self._next = time.monotonic() + _USAGE_EVERY
        usage = Usage(
            host=platform.node(),
            pid=os.getpid(),
            sessions=self._sessions,
            cpu_seconds=round(self._spent + time.process_time() - self._started, 3),
        )
        write_atomically(self._path / USAGE, usage.model_dump_json(indent=2) + "\n")


def _attempt(job: Job) -> tuple[str, str]:
    try:
        # after a crash, the worker before this one may need a moment to be gone
        with lock(Path(job.sweep), job.name).acquire(timeout=_PATIENCE):
            return _train(job), ""
    except Timeout:
        return "failed", "another process works on this run; end it and start again"
    except StochflowError as error:
        return "failed", str(error)
    except OSError as error:
        return "failed", f"{error.filename or 'a file'}: {error.strerror}; free the space or choose another --out"
    # one run that breaks in a way nobody foresaw must not take the others with it
    except Exception as error:
        return "failed", " ".join(f"{type(error).__name__}: {error}".split())


def _train(job: Job) -> str:
    path, stop = job.path, Path(job.sweep) / STOP
    if finished_summary(path) is not None:
        return "finished"
    if stop.exists():
        return "interrupted"
    recover(path)
    started = any((path / "checkpoint").glob("step-*.json"))
    meter = Meter(path)
    # killed before its first checkpoint: nothing to keep
    replaced = not started and (path / CONFIG).exists()
    launch(
        [job.config], job.oracle, path, LaunchOptions(started, replaced, job.track, False, meter.listen, stop.exists)
    )
    meter.write()
    return RunDirectory(path).summary().status


def _read_usage(path: Path) -> Usage | None:
    """None for a run that nobody has worked on yet, or whose file is damaged: the count begins anew."""
    try:
        return Usage.model_validate_json((path / USAGE).read_bytes())
    except (OSError, ValueError):
        return None
