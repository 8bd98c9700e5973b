"""What a surrogate is: a regression model of the score that is fitted to paid designs and predicts unpaid ones."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.rewards import Reward

State = dict[str, Tensor]
INTERVAL = 0.8  # share of the scores that an interval should hold
_FAR = 10.0  # deviations beyond which an error is not told from a larger one
# Gauss–Hermite rule for expectations under a normal distribution
NODES, WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(7))


@dataclass(frozen=True)
class Prediction:
    """Predictive distributions of scores, normal or log-normal.

    >>> prediction = Prediction(torch.tensor([0.5]).double(), torch.tensor([0.1]).double())
    >>> lower, upper = prediction.interval(0.8)
    >>> print(round(lower.item(), 3), round(upper.item(), 3))
    0.372 0.628

    Attributes:
        mean: expected score, float64, [num]; of a log-normal error its median exp(E[log score]).
        deviation: standard deviation of the score, float64, [num]; of a log-normal error the distance from the median
            to the quantile one deviation above it.
        log_deviation: standard deviation of the log score, [num]; None where the error is normal.
    """

    mean: Tensor
    deviation: Tensor
    log_deviation: Tensor | None = None

    def __getitem__(self, rows: Tensor | slice) -> "Prediction":
        spread = self.log_deviation
        return Prediction(self.mean[rows], self.deviation[rows], None if spread is None else spread[rows])

    def at(self, deviations: Tensor | float) -> Tensor:
        """Scores so many deviations above the mean, or below it; broadcasts against [num]."""
        if self.log_deviation is None:
            return self.mean + deviations * self.deviation
        return self.mean * (deviations * self.log_deviation).exp()

    def interval(self, share: float = INTERVAL) -> tuple[Tensor, Tensor]:
        """Bounds that hold this share of the scores in the middle, [num] each."""
        reach = NormalDist().inv_cdf((1.0 + share) / 2.0)
        return self.at(-reach), self.at(reach)

    def standardised(self, scores: Tensor) -> Tensor:
        """How many deviations scores lie above the mean, at most ten either way; [num] → [num]."""
        if self.log_deviation is None:
            errors = (scores - self.mean) / self.deviation
        else:
            errors = (scores / self.mean).log() / self.log_deviation
        return errors.clamp(min=-_FAR, max=_FAR)

    def widened(self, factor: float | Tensor) -> "Prediction":
        """The same means with deviations that are so many times as large; one factor, or one per row, [num]."""
        if self.log_deviation is None:
            return Prediction(self.mean, factor * self.deviation)
        spread = factor * self.log_deviation
        return Prediction(self.mean, self.mean * spread.expm1(), spread)

    def expected_log_reward(self, reward: Reward, step: int | None = None) -> Tensor:
        """E[log R] under the predictive distribution, float64, [num].

        KL(P_π‖R/Z) is linear in log R, so under uncertainty its minimiser is that of the expected log R.
        """
        scores = torch.stack([self.at(float(node)) for node in NODES], dim=-1)
        return reward.log_reward(scores, step) @ (WEIGHTS / WEIGHTS.sum())


@dataclass(frozen=True)
class HeldOut:
    """Predictions of scores by a surrogate that did not see them.

    >>> prediction = Prediction(torch.tensor([0.2, 0.9]).double(), torch.tensor([0.1, 0.2]).double())
    >>> held_out = HeldOut(torch.tensor([0, 1]), torch.tensor([0.0, 1.0]).double(), prediction)
    >>> round(held_out.r_squared, 3), held_out.coverage(0.8)
    (0.9, 0.5)

    Attributes:
        rows: which rows of the last `fit` they are, ascending, [num].
        scores: that were measured, [num].
        prediction: of each from the others, [num].
    """

    rows: Tensor
    scores: Tensor
    prediction: Prediction

    @property
    def errors(self) -> Tensor:
        """Measured minus predicted, [num]."""
        return self.scores - self.prediction.mean

    @property
    def r_squared(self) -> float:
        """1 − squared error / variance of the scores; NaN where all scores are equal."""
        if len(self.scores) == 0:
            return float("nan")
        unit = float(self.scores.abs().max()) or 1.0  # squares neither overflow nor vanish
        total = ((self.scores - self.scores.mean()) / unit).square().sum()
        return float(1.0 - (self.errors / unit).square().sum() / total) if total > 0.0 else float("nan")

    def coverage(self, share: float = INTERVAL) -> float:
        """Share of the scores inside the intervals that should hold `share` of them."""
        low, high = self.prediction.interval(share)
        return float(((low <= self.scores) & (self.scores <= high)).double().mean())


class Surrogate(ABC):
    """A regression model of the score.

    It is fitted again whenever scores have arrived, each time to all rows, oldest first. Scores that are all equal, or
    a single one, are predicted as they are, with a wide deviation; before the first fit everything is 0 ± 1.
    """

    @abstractmethod
    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        """Fit to paid designs.

        Args:
            tokens: int64, [num_rows, L].
            scores: float64, finite and not negative, [num_rows].
            variances: of the noise in each score, [num_rows]; None for scores without noise, or of unknown noise.

        Raises:
            DataError: a score is NaN, infinite or negative, or there is no row.
        """

    @abstractmethod
    def predict(self, tokens: Tensor) -> Prediction:
        """Predictive distributions of the scores of any designs, in blocks of bounded memory; [num, L] → [num].

        The deviation covers everything that the surrogate cannot resolve, but not the noise given as `variances`.
        """

    def predict_mean(self, tokens: Tensor) -> Tensor:
        """`predict(tokens).mean`, faster where deviations are expensive; [num, L] → [num]."""
        return self.predict(tokens).mean

    @abstractmethod
    def leave_one_out(self) -> HeldOut:
        """Every fitted row predicted from the others, at the hyperparameters of the fit."""

    @abstractmethod
    def state_dict(self) -> State:
        """Tensors from which `load_state_dict` restores the same predictions and the same next fit."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""


def check_rows(tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
    """Refuse rows that no surrogate can be fitted to, by a DataError."""
    if tokens.ndim != 2 or scores.shape != tokens.shape[:1] or len(scores) == 0:
        raise DataError(
            f"tokens {list(tokens.shape)} and scores {list(scores.shape)} cannot be fitted; give tokens [rows, L] and "
            "scores [rows] with at least one row"
        )
    for name, numbers in (("scores", scores), ("variances", variances)):
        if numbers is not None and (
            numbers.shape != scores.shape or not bool((numbers.isfinite() & (numbers >= 0)).all())
        ):
            raise DataError(f"{name} of a surrogate must be finite and not negative, one per row; leave out the others")


def unfitted(num_rows: int) -> Prediction:
    """0 ± 1 for every row: what is predicted before the first fit."""
    return Prediction(torch.zeros(num_rows, dtype=torch.float64), torch.ones(num_rows, dtype=torch.float64))


def nothing_held_out() -> HeldOut:
    """No rows: what is held out before the first fit."""
    return HeldOut(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64), unfitted(0))


def unit_of(scores: Tensor) -> float:
    """A power of two, which costs no precision, in whose units squares of the scores neither overflow nor vanish."""
    return 2.0 ** (math.frexp(float(scores.max()))[1] - 1)


def row_weights(scores: Tensor, variances: Tensor) -> Tensor:
    """Weight of each row: the variance of the scores over the same with the row's noise; [num] → [num] in (0, 1]."""
    unit = unit_of(scores)
    signal = float((scores / unit).var(correction=0)) or 1.0
    return signal / (signal + (variances.sqrt() / unit).square())


def wide_deviation(scores: Tensor) -> float:
    """Deviation where the scores say nothing about it because they are all equal: as large as they are, or 1."""
    return float(scores.max()) or 1.0


def window_rows(scores: Tensor, size: int) -> Tensor:
    """At most `size` rows, one half the best and the other the newest, ascending; [num_rows] → [at most size].

    >>> window_rows(torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0]), 4)
    tensor([0, 2, 3, 4])
    """
    if len(scores) <= size:
        return torch.arange(len(scores))
    best = scores.argsort(descending=True, stable=True)[: size // 2]
    rest = torch.ones(len(scores), dtype=torch.bool).index_fill(0, best, False).nonzero().squeeze(1)
    return torch.cat([best, rest[len(rest) - (size - len(best)) :]]).sort().values
