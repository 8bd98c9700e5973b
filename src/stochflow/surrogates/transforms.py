"""From scores to what a Gaussian process is fitted to, and back."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stochflow.surrogates.base import Prediction, unit_of, wide_deviation

Transform = Literal["log", "identity"]
FLOOR = 1e-6  # of the largest score: the smallest one that has a logarithm of its own
_MAX_LOG = 700.0  # its exponential is finite


@dataclass(frozen=True)
class Standardisation:
    """z = (y − centre)/scale with y = log(score) or y = score/unit.

    >>> scores = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]).double()
    >>> standard = Standardisation.of(scores, "log", 0.25)
    >>> standard.mean(torch.zeros(1).double())
    tensor([2.], dtype=torch.float64)
    >>> standard.mean(standard.targets(scores)).round(decimals=6)
    tensor([ 1.,  2.,  4.,  8., 16.], dtype=torch.float64)

    Attributes:
        transform: "log" or "identity".
        unit: of the scores: of "identity" a power of two near the largest, so that squares neither overflow nor vanish;
            of "log" the smallest score that is told from zero.
        centre: the prior mean of y, a quantile of it.
        scale: root mean square of y − centre; wide where all scores are equal.
    """

    transform: Transform
    unit: float
    centre: float
    scale: float

    @classmethod
    def of(cls, scores: Tensor, transform: Transform, prior: float) -> "Standardisation":
        """From the fitted scores, [num]; `prior` is which quantile of them an unknown design is expected to have."""
        unit = FLOOR * float(scores.max()) if transform == "log" else unit_of(scores)
        plain = cls(transform, unit or 1.0, 0.0, 1.0)
        values = plain.targets(scores)
        centre = float(values.quantile(prior)) if len(values) < 2**24 else float(values.median())
        scale = float((values - centre).square().mean().sqrt())
        if float(values.max()) == float(values.min()):
            scale = 1.0 if transform == "log" else wide_deviation(values)
        return cls(transform, plain.unit, centre, scale)

    def targets(self, scores: Tensor) -> Tensor:
        """z of scores, float64; any shape."""
        scores = scores.double()
        values = scores.clamp(min=self.unit).log() if self.transform == "log" else scores / self.unit
        return (values - self.centre) / self.scale

    def noise(self, scores: Tensor, variances: Tensor | None) -> Tensor:
        """Variance of z of noisy scores; of a logarithm that of a log-normal score with this mean and variance."""
        if variances is None:
            return torch.zeros_like(scores, dtype=torch.float64)
        unit = scores.double().clamp(min=self.unit) if self.transform == "log" else self.unit
        relative = (variances.double().sqrt() / unit).square()
        return (relative.log1p() if self.transform == "log" else relative) / self.scale**2

    def mean(self, targets: Tensor) -> Tensor:
        """Scores of z: the inverse of `targets`; any shape."""
        values = targets * self.scale + self.centre
        return values.clamp(max=_MAX_LOG).exp() if self.transform == "log" else values * self.unit

    def prediction(self, targets: Tensor, deviations: Tensor) -> Prediction:
        """Predictive distribution of scores from that of z, [num] each."""
        mean, spread = self.mean(targets), deviations * self.scale
        if self.transform == "log":
            return Prediction(mean, mean * spread.expm1(), spread)
        return Prediction(mean, spread * self.unit)
