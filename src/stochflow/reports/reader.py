"""Reader of run directories; missing or damaged files become sentences for the page instead of errors."""

import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from stochflow.config.schema import Config
from stochflow.core.errors import DataError, StochflowError
from stochflow.core.files import check_columns, read_limited
from stochflow.core.hashes import text_hashes
from stochflow.evaluation.summary import Summary
from stochflow.runs.directory import CONFIG, HELD_OUT, RunDirectory

_MOST_BYTES = 128 * 2**20
SAMPLE_NUMBERS = ("score", "log_reward", "log_prob")
HELD_OUT_NUMBERS = ("measured", "predicted", "low", "high", "distance")


@dataclass(frozen=True)
class RunRecord:
    """Content of one run directory.

    Attributes:
        metrics: one row per training step, numbers only; empty when nothing was logged.
        samples: distinct designs, best first; `sequence`, `score`, `log_reward`, `log_prob` and the count `drawn`.
        problems: missing or damaged files, one sentence each.
        held_out: measured rows of a table and their predictions from the others; empty where scores are known.
    """

    path: Path
    name: str
    config: Config
    summary: Summary | None
    metrics: pd.DataFrame
    samples: pd.DataFrame
    versions: dict[str, str]
    problems: tuple[str, ...]
    held_out: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def noise(self) -> str:
        """Slip probability, or the name of the channel; and that it acts on whole orders, where it does."""
        channel = self._channel
        return f"{channel}, orders" if self.config.feedback == "none" and channel not in ("0", "none") else channel

    @property
    def _channel(self) -> str:
        if self.summary is not None:
            noise = self.summary.noise
            return f"{noise:g}" if isinstance(noise, float) else noise
        channel = self.config.channel
        if channel.kind == "uniform-slip" and isinstance(channel.noise, float):
            return f"{channel.noise:g}"
        return channel.kind

    @property
    def title(self) -> str:
        config = self.config
        return f"{config.task}, {config.method}, noise {self.noise}, seed {config.seed}"

    def latest(self, name: str) -> float | None:
        """Value of a metric in the summary, or the last one that training logged; None where there is none."""
        if self.summary is not None:
            value = getattr(self.summary, name, None)
            return None if value is None else float(value)
        known = self.logged(name)
        return float(known.iloc[-1]) if len(known) else None

    def logged(self, name: str) -> "pd.Series[float]":
        """Values of a metric at the steps that logged it."""
        return self.metrics[name].dropna() if name in self.metrics else pd.Series(dtype=float)


@dataclass(frozen=True)
class Source:
    """Runs of a report: one run, or those of a sweep.

    Attributes:
        problems: runs that could not be read, one sentence each.
    """

    path: Path
    runs: list[RunRecord]
    is_sweep: bool
    problems: list[str] = field(default_factory=list)


def read_source(path: Path) -> Source:
    """Read the run in a folder, or all runs in its `runs/`; unreadable runs of a sweep become `problems`."""
    if os.path.isfile(path / CONFIG):
        return Source(path, [read_run(path)], is_sweep=False)
    if not os.path.isdir(path):
        raise DataError(
            f"{path} is not a folder; give a run directory of `stochflow train`, or a sweep that holds runs/"
        )
    folders = sorted(found.parent for found in path.glob(f"runs/*/{CONFIG}"))
    if not folders:
        raise DataError(
            f"{path} holds no run: there is neither {CONFIG} nor runs/*/{CONFIG}; "
            "give a run directory of `stochflow train`, or a sweep that holds runs/"
        )
    runs, problems = [], []
    root = os.path.realpath(path)
    for folder in folders:
        try:
            if not Path(os.path.realpath(folder)).is_relative_to(root):
                raise DataError(f"it leads out of {path}; put the run itself there")
            runs.append(read_run(folder))
        except StochflowError as error:
            problems.append(f"The run {folder.name} is left out: {error}.")
    if not runs:
        raise DataError(f"none of the {len(folders)} runs in {path} can be read; the first says: {problems[0]}")
    return Source(path, runs, is_sweep=True, problems=problems)


def read_run(path: Path) -> RunRecord:
    """Read one run; only its config is required."""
    directory = RunDirectory.open(path)
    config = directory.config()
    problems: list[str] = []
    summary = _summary(directory, problems)
    held_out = _held_out(path / HELD_OUT, problems) if config.table.world == "measured" else pd.DataFrame()
    return RunRecord(
        path=path,
        name=path.resolve().name,
        config=config,
        summary=summary,
        metrics=_metrics(directory, problems),
        samples=_samples(path / "samples.csv", problems),
        versions=_versions(path / "versions.json", problems),
        problems=tuple(problems),
        held_out=held_out,
    )


def _summary(directory: RunDirectory, problems: list[str]) -> Summary | None:
    if not (directory.path / "summary.json").exists():
        problems.append("There is no summary.json: training has not ended, so the figures are the last that it logged.")
        return None
    try:
        return directory.summary()
    except DataError:
        problems.append("The summary.json is damaged, so the figures are the last that training logged.")
        return None


def _metrics(directory: RunDirectory, problems: list[str]) -> pd.DataFrame:
    path = directory.path / "metrics.jsonl"
    try:
        num_lines = sum(bool(line.strip()) for line in read_limited(path, _MOST_BYTES).splitlines())
    except OSError:
        problems.append("There is no metrics.jsonl that can be read, so there are no curves.")
        return pd.DataFrame()
    try:
        frame = directory.metrics().apply(pd.to_numeric, errors="coerce")
    except OverflowError:
        problems.append("The metrics.jsonl holds a number too large to be one, so there are no curves.")
        return pd.DataFrame()
    num_damaged = num_lines - len(frame)
    if num_damaged:
        lines = "1 line" if num_damaged == 1 else f"{num_damaged} lines"
        problems.append(f"{lines} of metrics.jsonl cannot be read and {'is' if num_damaged == 1 else 'are'} left out.")
    if not len(frame):
        problems.append("The metrics.jsonl holds no training step yet, so there are no curves.")
    return frame


def _samples(path: Path, problems: list[str]) -> pd.DataFrame:
    """Distinct designs, best first, with the number of times that each was drawn."""
    columns = ["sequence", *SAMPLE_NUMBERS, "drawn"]
    try:
        # graphs have objects instead of sequences
        data = read_limited(path, _MOST_BYTES)
        check_columns(data)
        rows = pd.read_csv(io.BytesIO(data), dtype={"sequence": str, "object": str}, keep_default_na=False)
        rows = rows.rename(columns={"object": "sequence"})
        rows = rows[["sequence", *SAMPLE_NUMBERS]]
    except FileNotFoundError:
        problems.append("There is no samples.csv: designs are drawn when training ends.")
        return pd.DataFrame(columns=columns)
    except (OSError, ValueError, KeyError):  # what pandas raises for a broken table is a ValueError
        problems.append("The samples.csv is damaged, so there are no designs; draw them anew with `stochflow sample`.")
        return pd.DataFrame(columns=columns)
    for name in SAMPLE_NUMBERS:
        rows[name] = pd.to_numeric(rows[name], errors="coerce")
    num_unpaid = int((rows["score"].isna() & rows["log_prob"].notna()).sum())
    if num_unpaid:
        problems.append(f"{num_unpaid} of {len(rows)} designs have no score, so they are not ranked below.")
    rows["drawn"] = rows.groupby("sequence")["sequence"].transform("size")
    distinct = rows[rows["sequence"] != ""].drop_duplicates("sequence").dropna()
    # equal scores in an order that has nothing to do with the letters: a logo of the first would show the alphabet
    shuffled = distinct.iloc[text_hashes(distinct["sequence"].tolist()).argsort()]
    return shuffled.sort_values("score", ascending=False, kind="stable", ignore_index=True)


def _held_out(path: Path, problems: list[str]) -> pd.DataFrame:
    """Rows of held_out.csv that are numbers throughout."""
    try:
        data = read_limited(path, _MOST_BYTES)
        check_columns(data)
        rows = pd.read_csv(io.BytesIO(data), usecols=[*HELD_OUT_NUMBERS])
    except FileNotFoundError:
        return pd.DataFrame()  # written when training ends
    except (OSError, ValueError):
        problems.append(f"The {HELD_OUT} is damaged, so nothing is said of the prediction; train again to write it.")
        return pd.DataFrame()
    rows = rows.apply(pd.to_numeric, errors="coerce")
    return rows[np.isfinite(rows).all(axis=1)]


def _versions(path: Path, problems: list[str]) -> dict[str, str]:
    try:
        found = json.loads(read_limited(path, 2**20))
        return {str(name): str(version) for name, version in found.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        problems.append("The versions.json is missing or damaged, so the versions of training are not known.")
        return {}
