"""Effects of features: regression with dynamic errors.

In the transformed space z_t = β·x_t + n_t, and the linear ensemble describes n, not z: an event shifts the steps at
which x says that it takes place, and no lag carries it on. The best member's one-step operator A (differences, moving
averages and lags) turns n into white errors, A n = e. As A is linear, e = A z − (A x)·β, so that β follows from a
regression of A z on A x. A depends on n and n on β: `EffectRegression.step` is one round of their common least squares
(Gauss–Newton).

x_t holds the features known in advance at t and, of the features known only up to now, the values a few steps before.
"""

from dataclasses import dataclass

import numpy as np

from stochflow.forecasting.data.series import Array, Index, Series
from stochflow.forecasting.model.seasonality import Seasonality

# rounds of the common least squares, and the change of β at which they end
MAX_ROUNDS, TOLERANCE = 8, 1e-3
# candidates of the penalty on β, of which leave-one-out errors choose
_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
_MAX_LEVERAGE = 0.9
_NUM_PAST_LAGS = 6


def past_lags(seasonality: Seasonality) -> Index:
    """Lags at which features known only up to now have an effect: one to six steps and one season, [L]."""
    return np.unique([*range(1, _NUM_PAST_LAGS + 1), *([seasonality.season] * (seasonality.season > 1))])


def regressors_of(series: Series, seasonality: Seasonality) -> Array:
    """x of every step of a series: known features, then each used past column at each lag, [n, E]."""
    lags, past = past_lags(seasonality), series.past[:, series.used_past]
    padded = np.concatenate([np.zeros((lags[-1], past.shape[1])), past])
    index = np.arange(len(series))[:, None] + lags[-1] - lags
    lagged = padded[index].transpose(0, 2, 1).reshape(len(series), -1)
    return np.concatenate([series.known_features[: len(series)], lagged], axis=1)


@dataclass(frozen=True)
class EffectRegression:
    """One regression of n on its own past, the calendar and filtered features.

    Attributes:
        inputs: lags of n, calendar and a column of ones, centred, [rows, D].
        penalty: ridge penalty on their weights.
        targets: smoothed n, [rows].
        smoothed: the smoothing of the features, [rows, E].
        lagged: the lags of the features, [rows, E, lags], as `inputs` holds those of n in its first columns.
    """

    inputs: Array
    penalty: float
    targets: Array
    smoothed: Array
    lagged: Array

    def step(self, effects: Array) -> Array:
        """β after one more round from `effects`, [E]."""
        left, singular, right = np.linalg.svd(self.inputs, full_matrices=False)
        gain = singular / (singular**2 + self.penalty)
        weights = right.T @ (gain * (left.T @ self.targets))
        filtered = self.smoothed - self.lagged @ weights[: self.lagged.shape[-1]]
        filtered = filtered - filtered.mean(axis=0)
        targets = self.targets + filtered @ effects
        scaled = self.inputs / np.sqrt(self.penalty)
        found = [
            self._ridge(np.concatenate([scaled, filtered / np.sqrt(each)], axis=1), targets) for each in _PENALTIES
        ]
        best = int(np.argmin([error for error, _ in found]))
        answer: Array = found[best][1][scaled.shape[1] :] / np.sqrt(_PENALTIES[best])
        return answer

    @staticmethod
    def _ridge(inputs: Array, targets: Array) -> tuple[float, Array]:
        """Mean squared leave-one-out error and weights of a ridge regression with penalty 1."""
        left, singular, right = np.linalg.svd(inputs, full_matrices=False)
        shrink = singular**2 / (singular**2 + 1)
        projected = left.T @ targets
        leverage = np.minimum(left**2 @ shrink, _MAX_LEVERAGE)
        errors = (targets - left @ (shrink * projected)) / (1 - leverage)
        return float(np.square(errors).mean()), right.T @ (singular / (singular**2 + 1) * projected)
