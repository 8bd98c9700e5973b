"""The runs and campaigns of a folder, and where each of them stands, from their files alone."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from stochflow.campaigns.campaign import Campaign
from stochflow.campaigns.status import Status
from stochflow.campaigns.store import FILE
from stochflow.core.errors import DataError, StochflowError
from stochflow.core.files import is_locked
from stochflow.environments.factory import title_of
from stochflow.reports.reader import RunRecord
from stochflow.runs.directory import CONFIG, LOCK, VERSIONS, RunDirectory
from stochflow.runs.monitor.history import StepRecord, records_of, share_spent

State = Literal["training", "finished", "interrupted", "unreadable"]
MAX_FOUND = 500
_DEPTH = 3  # a sweep in a folder of sweeps: sweeps/one/runs/first
_MARKS = (LOCK, VERSIONS, "metrics.jsonl")  # beside its config, one of them is in every run
_FIGURES = ("loss", "mean_score", "attainable_score", "kl", "min_kl", "regret", "j", "num_modes", "top100_mean")


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        state: `training` while a process holds the run; `interrupted` where none does and the budget is not spent.
        title: task, method, noise and seed.
        share: of the budget that is spent.
        seconds, left: of training so far, and an estimate of what remains; None before the first step.
        figures: the newest value of every headline metric that is known.
        problem: why the run cannot be read.
    """

    path: Path
    state: State
    title: str = ""
    share: float = 0.0
    step: int = 0
    trajectories: int = 0
    oracle_calls: int = 0
    seconds: float = 0.0
    left: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class CampaignStatus:
    """Where a campaign stands; `status` is None where it cannot be read, and `problem` says why."""

    path: Path
    status: Status | None
    problem: str = ""


@dataclass(frozen=True)
class Overview:
    """The runs and campaigns of a folder, in the order of their paths."""

    runs: list[RunStatus]
    campaigns: list[CampaignStatus]


def overview(folder: Path) -> Overview:
    """Where every run and campaign of a folder stands; the folder itself may be one, and three levels below are read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Campaign.create(f"{folder}/lab", length=6)
    ...     found = overview(Path(folder))
    >>> [(campaign.path.name, campaign.status.num_asks) for campaign in found.campaigns], found.runs
    ([('lab', 0)], [])
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one that holds runs or campaigns, or a run itself")
    found = list(_found(folder, _DEPTH))[:MAX_FOUND]
    runs = [run_status(path) for kind, path in found if kind == CONFIG]
    return Overview(runs, [campaign_status(path) for kind, path in found if kind == FILE])


def run_status(path: Path) -> RunStatus:
    """Where a run stands."""
    held = is_locked(path / LOCK)
    try:
        directory = RunDirectory.open(path)
        config = directory.config()
        summary = directory.summary() if (path / "summary.json").exists() and not held else None
        finished = summary is not None and summary.status == "finished"
        metrics = pd.DataFrame() if finished else directory.metrics().apply(pd.to_numeric, errors="coerce")
    except (StochflowError, OverflowError) as error:
        return RunStatus(path, "unreadable", problem=str(error))
    shown = config.model_copy(update={"task": title_of(config)})
    record = RunRecord(path, path.name, shown, summary, metrics, pd.DataFrame(), {}, ())
    figures = {name: value for name in _FIGURES if (value := record.latest(name)) is not None}
    state: State = "finished" if finished else "training" if held else "interrupted"
    if summary is not None and finished:
        last: StepRecord = summary.model_dump() | {"step": summary.steps}
        share = 1.0
    else:
        last = next(records_of(metrics.tail(1)), {})
        share = share_spent(config.budget, last)
    seconds = _number(last, "seconds")
    step, trajectories, calls = (int(_number(last, name)) for name in ("step", "trajectories", "oracle_calls"))
    left = seconds * (1.0 - share) / share if share else None
    return RunStatus(path, state, record.title, share, step, trajectories, calls, seconds, left, figures)


def campaign_status(path: Path) -> CampaignStatus:
    """Where a campaign stands."""
    try:
        return CampaignStatus(path, Campaign.open(path).status())
    except StochflowError as error:
        return CampaignStatus(path, None, str(error))


def _number(record: StepRecord, name: str) -> float:
    """A number of a record; 0 where a damaged file has none."""
    value = record.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _found(folder: Path, depth: int) -> Iterator[tuple[str, Path]]:
    """What runs and campaigns a folder holds; links and hidden folders are not followed."""
    if (folder / FILE).is_file():
        yield FILE, folder
        return
    if (folder / CONFIG).is_file() and any((folder / name).exists() for name in _MARKS):
        yield CONFIG, folder
        return
    if depth == 0:
        return
    try:
        inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # a folder that may not be read holds nothing for us
        return
    for entry in inside:
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _found(Path(entry.path), depth - 1)
