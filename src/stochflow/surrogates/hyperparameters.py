"""Hyperparameters of a Gaussian process by leave-one-out error, in closed form."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.surrogates.kernels import Mixture
from stochflow.surrogates.posterior import leave_one_out

# what is tried; rates are relative to the distance of two sequences that differ everywhere
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MIXINGS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.05)
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
START = (3, 2, 3)
_LEAST_AMPLITUDE = 1e-6

Choice = tuple[int, int, int]  # places in the three lists


@dataclass(frozen=True)
class Gram:
    """What the kernel matrix of some rows is made of.

    Attributes:
        distances, spectrum: of all pairs, [num, num].
        reach: distance of two sequences that differ everywhere, in which rates are measured.
        targets: z, [num].
        noise: variance of the noise in each, [num].
    """

    distances: Tensor
    spectrum: Tensor
    reach: float
    targets: Tensor
    noise: Tensor

    def error(self, choice: Choice) -> float:
        """Mean squared leave-one-out error, rows weighted by 1/(1 + noise); infinite where rounding prevents it."""
        errors, _ = self._leave_one_out(choice)
        weights = 1.0 / (1.0 + self.noise)
        return float((weights * errors.square()).sum() / weights.sum())

    def amplitude(self, choice: Choice) -> float:
        """Factor of all variances that makes leave-one-out errors as large as their deviations."""
        errors, variances = self._leave_one_out(choice)
        ratio = float((errors.square() / variances).mean())
        return max(ratio, _LEAST_AMPLITUDE) if math.isfinite(ratio) else 1.0

    def _leave_one_out(self, choice: Choice) -> tuple[Tensor, Tensor]:
        mixture, nugget = hyperparameters(choice, self.reach)
        covariance = mixture(self.distances, self.spectrum)
        covariance.diagonal().add_(self.noise + nugget)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            return torch.full_like(self.targets, math.inf), torch.ones_like(self.targets)
        return leave_one_out(factor, self.targets)


def hyperparameters(choice: Choice, reach: float) -> tuple[Mixture, float]:
    """The kernel, and the variance of what it cannot resolve relative to its own."""
    rate, mixing, noise = choice
    return Mixture(RATES[rate] / reach, MIXINGS[mixing]), NOISES[noise]


def descend(error: Callable[[Choice], float], start: Choice, mixed: bool = True) -> Choice:
    """A choice that no neighbour improves on, reached from `start` by steps to the best neighbour.

    Args:
        mixed: False to leave the mixing as it is.
    """
    known, best = {start: error(start)}, start
    while True:
        around = [choice for choice in _neighbours(best) if mixed or choice[1] == start[1]]
        known |= {choice: error(choice) for choice in around if choice not in known}
        nearby = min([best, *around], key=lambda choice: known[choice])
        if nearby == best:
            return best
        best = nearby


def _neighbours(choice: Choice) -> list[Choice]:
    """One step along one of the three lists."""
    rate, mixing, noise = choice
    return [
        *((other, mixing, noise) for other in _beside(rate, RATES)),
        *((rate, other, noise) for other in _beside(mixing, MIXINGS)),
        *((rate, mixing, other) for other in _beside(noise, NOISES)),
    ]


def _beside(place: int, numbers: tuple[float, ...]) -> list[int]:
    return [other for other in (place - 1, place + 1) if 0 <= other < len(numbers)]
