"""Distribution of standardised residuals: a piecewise linear empirical distribution function."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stochflow.forecasting.data.series import Array

NUM_KNOTS = 201


@dataclass(frozen=True)
class ResidualDistribution:
    """Piecewise linear distribution function G through `knots` [N] at probabilities `levels` [N], from 0 to 1."""

    knots: Tensor
    levels: Tensor

    def cdf(self, values: Tensor) -> Tensor:
        """G(value), same shape; differentiable, with the density as slope."""
        right = torch.bucketize(values.detach().contiguous(), self.knots).clamp(1, len(self.knots) - 1)
        x0, x1 = self.knots[right - 1], self.knots[right]
        g0, g1 = self.levels[right - 1], self.levels[right]
        return (g0 + (values - x0) * (g1 - g0) / (x1 - x0)).clamp(0.0, 1.0)

    def partial_means(self) -> tuple[Tensor, Tensor]:
        """∫ x dG below zero and above it, two scalars whose sum is the mean."""
        left, right = self.knots[:-1], self.knots[1:]
        density = self.levels.diff() / (right - left)
        below = density * (right.clamp(max=0).square() - left.clamp(max=0).square()) / 2
        above = density * (right.clamp(min=0).square() - left.clamp(min=0).square()) / 2
        return below.sum(), above.sum()

    def quantile(self, probabilities: Tensor) -> Tensor:
        """G⁻¹, same shape."""
        right = torch.bucketize(probabilities.contiguous(), self.levels).clamp(1, len(self.levels) - 1)
        g0, g1 = self.levels[right - 1], self.levels[right]
        share = ((probabilities - g0) / (g1 - g0).clamp(min=1e-12)).clamp(0.0, 1.0)
        return self.knots[right - 1] + share * (self.knots[right] - self.knots[right - 1])


def fit_residuals(residuals: Array, weights: Array) -> ResidualDistribution:
    """Weighted empirical distribution of residuals [n], its support slightly wider than their range."""
    order = np.argsort(residuals, kind="stable")
    values, mass = residuals[order], weights[order] / weights.sum()
    middle = np.cumsum(mass) - mass / 2
    reach = np.log(2 * len(values))  # levels by the logistic curve: as fine in the tails as the points allow
    levels = 1 / (1 + np.exp(-np.linspace(-reach, reach, NUM_KNOTS)))
    levels[0], levels[-1] = 0.0, 1.0
    knots = np.interp(levels, middle, values)
    margin = 0.25 * (values[-1] - values[0]) / np.sqrt(len(values)) + 1e-6
    knots[0], knots[-1] = values[0] - margin, values[-1] + margin
    knots = knots + 1e-9 * np.arange(NUM_KNOTS)  # strictly increasing even where values repeat
    return ResidualDistribution(torch.as_tensor(knots), torch.as_tensor(levels))
