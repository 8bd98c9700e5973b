"""Rehearsal: a campaign played on known scores, before the first well is paid for."""

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.core.errors import DataError
from stochflow.environments.registry import make_task
from stochflow.environments.sequences.lookup_task import MeasuredTask, Measurements
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.user_table import TableColumns, read_user_table

TOP = 10
Source = str | Path | pd.DataFrame | Task
Ask = Callable[[], pd.DataFrame]
Tell = Callable[[pd.DataFrame], object]


def known_scores(source: Source, space: DesignSpace) -> Task:
    """The task of a name, or behind a CSV or DataFrame with `sequence` and `score`; it must have the same designs."""
    task = source if isinstance(source, Task) else _task(source, space)
    if task.length != space.length or task.alphabet.letters != space.alphabet.letters:
        raise DataError(
            f"{task.name} has designs of {task.length} letters of {task.alphabet.letters} and the campaign of "
            f"{space.length} of {space.alphabet.letters}; give a table of the same designs"
        )
    return task


def play(task: Task, space: DesignSpace, ask: Ask, tell: Tell, rounds: int, seed: int) -> pd.DataFrame:
    """Ask, let the channel act on whole orders, look up the scores of what comes, tell, and ask again.

    Returns:
        one row per round: wells, measured (outcomes that the table knows), mean of the round, best, and `top_10`, the
        mean of the ten best distinct outcomes so far.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: dict[str, float] = {}
    rows = []
    for number in range(1, rounds + 1):
        plate = ask()
        outcomes = space.realised(space.alphabet.encode(plate["order"].tolist()), generator)
        sequences, scores = space.alphabet.decode(outcomes), _scores(task, outcomes)
        tell(pd.DataFrame({"id": plate["id"], "observed": sequences, "score": scores}))
        measured = scores.dropna()
        seen |= {sequence: score for sequence, score in zip(sequences, scores, strict=True) if not math.isnan(score)}
        best = sorted(seen.values(), reverse=True)[:TOP]
        figures = {"mean": measured.mean(), "best": max(best, default=float("nan"))}
        top = sum(best) / len(best) if best else float("nan")
        rows.append({"round": number, "wells": len(plate), "measured": len(measured), **figures, f"top_{TOP}": top})
    return pd.DataFrame(rows)


def _scores(task: Task, tokens: Tensor) -> "pd.Series[float]":
    """Scores; NaN where a table has none."""
    scores = task.score(tokens).double()
    if isinstance(task, MeasuredTask):
        scores = scores.where(task.is_measured(tokens), float("nan"))
    return pd.Series(scores.numpy())


def _task(source: str | Path | pd.DataFrame, space: DesignSpace) -> Task:
    if isinstance(source, pd.DataFrame):
        if not {"sequence", "score"} <= set(source):
            raise DataError("the table of known scores needs the columns sequence and score; name them so")
        means = source.groupby("sequence")["score"].mean()
        return _measured("the DataFrame", space, list(map(str, means.index)), torch.tensor(means.to_numpy()))
    if isinstance(source, str) and not Path(source).suffix and not Path(source).exists():
        return make_task(source)
    table = read_user_table(Path(source), TableColumns(), space.alphabet.letters)
    return _measured(str(source), space, list(table.sequences), torch.from_numpy(table.scores[:, 0]))


def _measured(name: str, space: DesignSpace, sequences: list[str], scores: Tensor) -> Task:
    measured = Measurements(space.alphabet.encode(sequences), scores.double().unsqueeze(-1))
    return MeasuredTask(name, space.alphabet, measured, "known scores", "the user")
