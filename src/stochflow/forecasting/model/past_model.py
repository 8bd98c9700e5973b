"""How features known only up to now go on: ridge autoregressions whose residuals are drawn together.

A forecast of several steps needs lags of a feature that lie in the future. Each column is regressed on its own lags;
the residuals of all columns at one time are drawn together, so that what moves together in the data does so in the
paths.
"""

from dataclasses import dataclass

import numpy as np
import torch

from stochflow.forecasting.data.series import Array, Index
from stochflow.forecasting.model.effects import past_lags
from stochflow.forecasting.model.seasonality import Seasonality

_PENALTY = 1.0


@dataclass(frozen=True)
class PastModel:
    """Autoregressions of U columns.

    Attributes:
        lags: of effects, and of the regressions as far as their weights are not zero, [L].
        weights: of each column on its own lags, [U, L].
        intercept: [U].
        residuals: of all columns at each time, [rows, U].
        low, high: bounds of each column, [U].
    """

    lags: Index
    weights: Array
    intercept: Array
    residuals: Array
    low: Array
    high: Array

    @classmethod
    def fit(cls, past: Array, seasonality: Seasonality) -> "PastModel":
        """Regressions of columns [n, U]; lags beyond a third of their length get no weight."""
        lags = past_lags(seasonality)
        used = lags[lags <= max(len(past) // 3, 1)]
        rows = np.arange(used[-1], len(past))
        inputs = past[rows[:, None] - used].transpose(2, 0, 1)
        middle, centre = inputs.mean(axis=1), past[rows].mean(axis=0)
        inputs, targets = inputs - middle[:, None], (past[rows] - centre).T[..., None]
        gram = inputs.swapaxes(1, 2) @ inputs + _PENALTY * np.eye(len(used))
        found = np.linalg.solve(gram, inputs.swapaxes(1, 2) @ targets)
        residuals = (targets - inputs @ found)[..., 0].T
        weights = np.zeros((past.shape[1], len(lags)))
        weights[:, : len(used)] = found[..., 0]
        intercept = centre - (middle * found[..., 0]).sum(axis=1)
        return cls(lags, weights, intercept, residuals, past.min(axis=0), past.max(axis=0))

    def lagged_ahead(self, past: Array, origins: Index, horizon: int, generator: torch.Generator) -> Array:
        """Each column at each lag before each step ahead, columns of `past` [n, U] first, [rows, horizon, U · L].

        What lies before an origin [rows] is known, what comes later is drawn.
        """
        longest, num = int(self.lags[-1]), len(origins)
        before = origins[:, None] + np.arange(-longest, 0)
        values = np.zeros((num, longest + horizon, past.shape[1]))
        values[:, :longest] = np.where(before[..., None] < 0, 0.0, past[np.maximum(before, 0)])
        drawn = torch.randint(len(self.residuals), (num, horizon), generator=generator).numpy()
        for step in range(horizon):
            now = longest + step
            linear = np.einsum("rlu,ul->ru", values[:, now - self.lags], self.weights) + self.intercept
            values[:, now] = np.clip(linear + self.residuals[drawn[:, step]], self.low, self.high)
        index = np.arange(horizon)[:, None] + longest - self.lags
        return values[:, index].transpose(0, 1, 3, 2).reshape(num, horizon, -1)
