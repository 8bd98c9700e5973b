"""Statistics of a training run, updated record by record, in memory that does not grow with the number of steps."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from stochflow.config.schema import BudgetConfig, Config

NUM_WINDOWS = 100
NUM_FIRST = 3
_WINDOWS_PER_CHECK = 5
_COUNTABLE = 1e300
StepRecord = Mapping[str, Any]  # one line of metrics.jsonl


@dataclass
class Window:
    """Sums over the training steps in one hundredth of the budget.

    Attributes:
        num, num_losses: steps, and steps that have a loss.
        score: sum of the mean scores of the batches.
        change: sum of the squared differences between the mean scores of consecutive batches.
        loss, largest: sum of the losses, and the largest absolute loss.
        num_imitation, imitation, divergence: steps that have an imitation loss, its sum, and that of their KL losses.
    """

    num: int = 0
    score: float = 0.0
    change: float = 0.0
    num_losses: int = 0
    loss: float = 0.0
    largest: float = 0.0
    num_imitation: int = 0
    imitation: float = 0.0
    divergence: float = 0.0


@dataclass(frozen=True)
class PolicyEvaluation:
    """One evaluation of the policy during training; None for what cannot be computed.

    Attributes:
        share: of the budget that was spent.
        regret, entropy_gap: exact, for enumerable tasks.
        spread: share of positions in which two intended designs of a batch differ, for other tasks.
        j: from draws, for other tasks whose scores are known.
    """

    share: float
    regret: float | None
    entropy_gap: float | None
    spread: float | None
    j: "Estimate | None" = None


class Estimate(NamedTuple):
    """A mean over draws and its standard error."""

    mean: float
    error: float

    def noise(self, other: "Estimate") -> float:
        """Three standard errors of the difference to another estimate."""
        return 3.0 * math.hypot(self.error, other.error)


class History:
    """Statistics of a run from which the alarms are computed.

    Attributes:
        share: share of the budget that is spent.
        num_steps, num_losses: steps so far, and steps that have a loss.
        start_regret, start_j: of the untrained policy, if known.
        first_scores: mean scores of the first batches, drawn by the untrained policy.
        windows: statistics per hundredth of the budget, by its number; only of those that had a step.
        evaluations: of the policy, in order.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.share = 0.0
        self.num_steps = self.num_losses = 0
        self.start_regret: float | None = None
        self.start_j: Estimate | None = None
        self.first_scores: list[float] = []
        self._last_score = 0.0
        self._num_zero = 0
        self._last_check = -1
        self.windows: dict[int, Window] = {}
        self.evaluations: list[PolicyEvaluation] = []

    def add(self, record: StepRecord, share: float) -> bool:
        """Add the record of a step; returns True when the alarms should be checked again."""
        number = min(int(share * NUM_WINDOWS), NUM_WINDOWS - 1)
        due, self._last_check = number // _WINDOWS_PER_CHECK != self._last_check, number // _WINDOWS_PER_CHECK
        window = self.windows.setdefault(number, Window())
        self.share = share
        self._count(window, record)
        start = _number(record, "start_regret")
        if start is not None:
            self.start_regret = start
        self.start_j = self.start_j or _estimate(record, "start_j")
        regret, spread, j = _number(record, "regret"), _number(record, "intended_spread"), _estimate(record, "j")
        if regret is None and spread is None and j is None:
            return due
        self.evaluations.append(PolicyEvaluation(share, regret, _number(record, "entropy_gap"), spread, j))
        return True

    def _count(self, window: Window, record: StepRecord) -> None:
        window.num += 1
        self.num_steps += 1
        known = _number(record, "batch_score")  # none where nothing was sampled
        score = known or 0.0
        window.score += score
        change = score - self._last_score if self.first_scores else 0.0
        window.change += change * change  # not `** 2`, which raises where the product overflows to infinity
        self._last_score = score
        self._num_zero += known == 0.0
        if len(self.first_scores) < NUM_FIRST:
            self.first_scores.append(score)
        loss = _number(record, "loss")
        if loss is not None:
            window.num_losses += 1
            self.num_losses += 1
            window.loss += loss
            window.largest = max(window.largest, abs(loss))
        imitation = _number(record, "imitation_loss")
        if imitation is not None:
            window.num_imitation += 1
            window.imitation += imitation
            window.divergence += _number(record, "kl_loss") or 0.0

    def largest_loss(self, since: float) -> float:
        """The largest absolute loss of the steps after a share of the budget."""
        return max((window.largest for window in self._between(since, 1.0)), default=0.0)

    def mean_loss(self, low: float, high: float) -> float | None:
        """Mean loss of the steps between two shares of the budget; None without any."""
        found = self._between(low, high)
        num = sum(window.num_losses for window in found)
        return sum(window.loss for window in found) / num if num else None

    def mean_imitation(self, low: float, high: float) -> tuple[float, float] | None:
        """Mean imitation loss and mean KL loss of the steps between two shares of the budget; None without any."""
        found = self._between(low, high)
        num = sum(window.num_imitation for window in found)
        if not num:
            return None
        return sum(window.imitation for window in found) / num, sum(window.divergence for window in found) / num

    def scores(self, low: float, high: float) -> tuple[float, float, int]:
        """Mean and variance of the batch scores between two shares of the budget, and the number of batches.

        The variance is half the mean squared difference of consecutive batches, so that a trend does not enter it.
        """
        found = self._between(low, high)
        num = sum(window.num for window in found)
        mean = sum(window.score for window in found) / max(num, 1)
        return mean, sum(window.change for window in found) / (2.0 * max(num, 1)), num

    @property
    def zero_share(self) -> float:
        """Share of the steps whose whole batch scored zero."""
        return self._num_zero / max(self.num_steps, 1)

    def _between(self, low: float, high: float) -> list[Window]:
        return [window for number, window in self.windows.items() if low * NUM_WINDOWS <= number < high * NUM_WINDOWS]


def records_of(frame: pd.DataFrame) -> Iterator[StepRecord]:
    """The rows of a table of metrics as records."""
    names = [str(name) for name in frame.columns]
    return (dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None))


def history_of(config: Config, records: Iterable[StepRecord]) -> History:
    """The history of a run from all its records, in order."""
    history = History(config)
    for record in records:
        history.add(record, share_spent(config.budget, record))
    return history


def share_spent(budget: BudgetConfig, record: StepRecord) -> float:
    """Share of the budget that was spent after a step, in [0, 1]."""
    if budget.trajectories is not None:
        spent, limit = _number(record, "trajectories"), float(budget.trajectories)
    elif budget.steps is not None:
        spent, limit = _number(record, "step"), float(budget.steps)
    elif budget.oracle_calls is not None:
        spent, limit = _number(record, "oracle_calls"), float(min(budget.oracle_calls, _COUNTABLE))
    else:
        spent, limit = _number(record, "seconds"), 60.0 * (budget.minutes or math.inf)
    return min(max((spent or 0.0) / limit, 0.0), 1.0)


def _estimate(record: StepRecord, name: str) -> Estimate | None:
    """A mean of a record with its standard error; None without either."""
    mean, error = _number(record, name), _number(record, f"{name}_se")
    return None if mean is None or error is None else Estimate(mean, error)


def _number(record: StepRecord, name: str) -> float | None:
    """A finite number of a record, or None; a damaged file may hold any type."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
