"""The course of a run, from its records, in a size that does not grow with the number of steps."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from stochflow.config.schema import BudgetConfig, Config

NUM_STRETCHES = 100
NUM_FIRST = 3
_STRETCHES_PER_LOOK = 5
_COUNTABLE = 1e300
Record = Mapping[str, Any]


@dataclass
class Stretch:
    """What the steps of one hundredth of the budget had in common.

    Attributes:
        num, num_losses: steps, and those with a loss.
        score, change: sums of the mean score of each batch, and of the square of its change from step to step.
        loss, largest: sum of the losses, and the largest in size.
    """

    num: int = 0
    score: float = 0.0
    change: float = 0.0
    num_losses: int = 0
    loss: float = 0.0
    largest: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """What was known of the policy after a share of the budget; None where it cannot be computed."""

    share: float
    regret: float | None
    entropy_gap: float | None
    spread: float | None


class Course:
    """Everything that the alarms look at.

    Attributes:
        share: of the budget that is spent.
        num_steps, num_losses: steps so far, and those with a loss.
        start_regret: regret of the untrained policy, if known.
        first_scores: mean scores of the first batches, which chance has made.
        stretches: hundredths of the budget, as far as there were steps in them.
        judged: in order.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.share = 0.0
        self.num_steps = self.num_losses = 0
        self.start_regret: float | None = None
        self.first_scores: list[float] = []
        self._last_score = 0.0
        self._num_zero = 0
        self._looks = -1
        self.stretches: dict[int, Stretch] = {}
        self.judged: list[Judgement] = []

    def add(self, record: Record, share: float) -> bool:
        """Take a step's record in; True when it is worth looking for alarms again."""
        number = min(int(share * NUM_STRETCHES), NUM_STRETCHES - 1)
        due, self._looks = number // _STRETCHES_PER_LOOK != self._looks, number // _STRETCHES_PER_LOOK
        stretch = self.stretches.setdefault(number, Stretch())
        self.share = share
        self._count(stretch, record)
        start = _number(record, "start_regret")
        if start is not None:
            self.start_regret = start
        regret, spread = _number(record, "regret"), _number(record, "intended_spread")
        if regret is None and spread is None:
            return due
        self.judged.append(Judgement(share, regret, _number(record, "entropy_gap"), spread))
        return True

    def _count(self, stretch: Stretch, record: Record) -> None:
        stretch.num += 1
        self.num_steps += 1
        score = _number(record, "batch_score") or 0.0
        stretch.score += score
        change = score - self._last_score if self.first_scores else 0.0
        stretch.change += change * change  # a power would be an error where a product is only infinite
        self._last_score = score
        self._num_zero += score == 0.0
        if len(self.first_scores) < NUM_FIRST:
            self.first_scores.append(score)
        loss = _number(record, "loss")
        if loss is not None:
            stretch.num_losses += 1
            self.num_losses += 1
            stretch.loss += loss
            stretch.largest = max(stretch.largest, abs(loss))

    def largest_loss(self, since: float) -> float:
        """The largest of any step from a share of the budget on, in size."""
        return max((stretch.largest for stretch in self._between(since, 1.0)), default=0.0)

    def mean_loss(self, low: float, high: float) -> float | None:
        """Mean loss of the steps between two shares of the budget; None without any."""
        found = self._between(low, high)
        num = sum(stretch.num_losses for stretch in found)
        return sum(stretch.loss for stretch in found) / num if num else None

    def scores(self, low: float, high: float) -> tuple[float, float, int]:
        """Mean score of the batches between two shares, its variance by chance, and how many there are.

        The variance is half the mean square of a change from step to step, so that a trend is not taken for chance.
        """
        found = self._between(low, high)
        num = sum(stretch.num for stretch in found)
        mean = sum(stretch.score for stretch in found) / max(num, 1)
        return mean, sum(stretch.change for stretch in found) / (2.0 * max(num, 1)), num

    @property
    def zero_share(self) -> float:
        """Share of the steps whose whole batch scored zero."""
        return self._num_zero / max(self.num_steps, 1)

    def _between(self, low: float, high: float) -> list[Stretch]:
        return [
            stretch
            for number, stretch in self.stretches.items()
            if low * NUM_STRETCHES <= number < high * NUM_STRETCHES
        ]


def records_of(frame: pd.DataFrame) -> Iterator[Record]:
    """The rows of a table of metrics."""
    names = [str(name) for name in frame.columns]
    return (dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None))


def course_of(config: Config, records: Iterable[Record]) -> Course:
    """The course that records of a run describe."""
    course = Course(config)
    for record in records:
        course.add(record, share_spent(config.budget, record))
    return course


def share_spent(budget: BudgetConfig, record: Record) -> float:
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


def _number(record: Record, name: str) -> float | None:
    """A finite number of a record, or None: files may hold anything."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
