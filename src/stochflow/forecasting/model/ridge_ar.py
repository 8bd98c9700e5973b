"""Ridge autoregression with bootstrapped residuals: a baseline, and a second forecast of long series.

In standardised z (of the root of what lies above a floor, if there is one),

    z[t] = z[t−1] + z[t−m] − z[t−m−1] + b + w·(x_t − x̄) + e_t,

where x_t holds lags and Fourier terms, w = (X'X + λI)⁻¹X'r for the deviations r from the first three terms (the
seasonal random walk; only z[t−1] without a season), and b is their mean.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from stochflow.forecasting.data.series import Array, Index, Mask
from stochflow.forecasting.model.mixture import evenly_spaced, mix_paths
from stochflow.forecasting.model.seasonality import YEAR_IN_DAYS, Seasonality

PENALTY = 0.3
# bound of |z|: an unstable regression must not overflow
_LIMIT = 50.0


@dataclass(frozen=True)
class Ridge:
    """A fitted regression.

    Attributes:
        seasonality: season of the seasonal random walk, and Fourier terms.
        lags: those that are regressed on, [lags].
        floor: lower bound of y, −∞ if values can be negative.
        centre, spread: mean and standard deviation that make z.
        lag_weights, fourier_weights: w, [lags] and [terms].
        intercept: b − w·x̄.
        residuals: centred in-sample residuals e, [rows].
    """

    seasonality: Seasonality
    lags: Index
    floor: float
    centre: float
    spread: float
    lag_weights: Array
    fourier_weights: Array
    intercept: float
    residuals: Array

    @classmethod
    def fit(cls, y: Array, observed: Mask, seasonality: Seasonality, floor: float, penalty: float = PENALTY) -> "Ridge":
        """Least squares on y [n], gaps filled in where not `observed` [n], with lags up to a third of its length."""
        num = len(y)
        raw = _raw(y, floor)
        centre, spread = raw.mean(), raw.std() + 1e-9
        z = (raw - centre) / spread
        lags = np.array([lag for lag in seasonality.lags if lag < num / 3])
        window = _window(lags, seasonality)
        rows = np.arange(window, num)[observed[window:]]
        inputs = np.concatenate([z[rows[:, None] - lags], seasonality.fourier_terms(rows.astype(float))], axis=1)
        middle, deviation = inputs.mean(axis=0), z[rows] - naive_step(z, rows, seasonality.season)
        shift, inputs = deviation.mean(), inputs - middle
        gram = inputs.T @ inputs + penalty * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ (deviation - shift))
        residuals = deviation - shift - inputs @ weights
        return cls(
            seasonality=seasonality,
            lags=lags,
            floor=floor,
            centre=centre,
            spread=spread,
            lag_weights=weights[: len(lags)],
            fourier_weights=weights[len(lags) :],
            intercept=shift - middle @ weights,
            residuals=residuals - residuals.mean(),
        )

    def paths(self, y: Array, origins: Index, horizon: int, num_paths: int, generator: torch.Generator) -> Array:
        """Sampled futures of y [n], [origins, num_paths, horizon]; an origin indexes the first value to draw."""
        window = _window(self.lags, self.seasonality)
        drawn = torch.randint(len(self.residuals), (len(origins), num_paths, horizon), generator=generator).numpy()
        z = (_raw(y, self.floor) - self.centre) / self.spread
        path = np.zeros((len(origins), num_paths, window + horizon))
        path[:, :, :window] = z[origins[:, None] + np.arange(-window, 0)][:, None]
        ahead = (origins[:, None] + np.arange(horizon)).astype(float)
        offsets = self.intercept + self.seasonality.fourier_terms(ahead) @ self.fourier_weights
        for step, now in enumerate(range(window, window + horizon)):
            linear = path[:, :, now - self.lags] @ self.lag_weights + offsets[:, None, step]
            noise = self.residuals[drawn[:, :, step]]
            value = naive_step(path, now, self.seasonality.season) + linear + noise
            path[:, :, now] = np.clip(value, -_LIMIT, _LIMIT)
        raw = path[:, :, window:] * self.spread + self.centre
        return np.maximum(raw, 0.0) ** 2 + self.floor if np.isfinite(self.floor) else raw


def with_ridge_paths(paths: Array, share: float, ridge: Ridge | None, y: Array, generator: torch.Generator) -> Array:
    """Paths [P, steps] after the end of y [n] of which a `share` are replaced by paths of the ridge regression."""
    num = len(evenly_spaced(len(paths), share))
    if ridge is None or not num:
        return paths
    return mix_paths(paths, ridge.paths(y, np.array([len(y)]), paths.shape[1], num, generator)[0], share)


def main_season(seasonality: Seasonality) -> Seasonality:
    """The main season alone, with its Fourier terms."""
    return replace(seasonality, long_season=0, fourier=season_fourier(seasonality.season))


def season_fourier(season: int) -> tuple[tuple[float, int], ...]:
    """All harmonics of a season of up to twelve steps, three of a longer one; with days of the week also the year."""
    if season == 1:
        return ()
    main = (float(season), season // 2 if season <= 12 else 3)
    return (main, (YEAR_IN_DAYS, 2)) if season == 7 else (main,)


def naive_step(z: Array, now: int | Index, season: int) -> Array:
    """Seasonal random walk z[t−1] + z[t−m] − z[t−m−1] along the last axis; z[t−1] without a season."""
    last: Array = z[..., now - 1]
    return last if season == 1 else last + z[..., now - season] - z[..., now - season - 1]


def _window(lags: Index, seasonality: Seasonality) -> int:
    """Past steps that a one-step prediction reads."""
    return max(int(lags[-1]), seasonality.season + 1)


def _raw(y: Array, floor: float) -> Array:
    """Roots of what lies above the floor, or y itself, same shape."""
    return np.sqrt(np.maximum(y - floor, 0.0)) if np.isfinite(floor) else y
