"""Ridge autoregression whose own residuals, drawn again, make paths: a rival, and a hedge on long series.

In standardised z (of the root of what lies above a floor, if there is one),

    z[t] = z[t−1] + z[t−m] − z[t−m−1] + b + w·(x_t − x̄) + e_t,

where x_t holds lags and waves, w = (X'X + λI)⁻¹X'r for the deviations r from the first three terms, and b is their
mean. Without a season only z[t−1] stands in front.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from stochflow.forecasting.data.series import Array
from stochflow.forecasting.model.paths import evenly, mixed
from stochflow.forecasting.model.seasonality import YEAR_IN_DAYS, Rhythm

Mask = NDArray[np.bool_]
Index = NDArray[np.intp]
PENALTY = 0.3
# values of z beyond this are explosions, not forecasts
_LIMIT = 50.0


@dataclass(frozen=True)
class Ridge:
    """A fitted regression.

    Attributes:
        rhythm: the season in front, and the waves.
        lags: those that are regressed on, [lags].
        floor: y below which nothing lies, −∞ if values can be negative.
        centre, spread: mean and standard deviation that make z.
        lag_weights, wave_weights: w, [lags] and [waves].
        intercept: b − w·x̄.
        residuals: e of every row that was learned from, less their mean, [rows].
    """

    rhythm: Rhythm
    lags: Index
    floor: float
    centre: float
    spread: float
    lag_weights: Array
    wave_weights: Array
    intercept: float
    residuals: Array

    @classmethod
    def fit(cls, y: Array, observed: Mask, rhythm: Rhythm, floor: float, penalty: float = PENALTY) -> "Ridge":
        """Learn from y [n], gaps filled in where not `observed` [n], with the rhythm's lags up to a third of it."""
        num = len(y)
        raw = _raw(y, floor)
        centre, spread = raw.mean(), raw.std() + 1e-9
        z = (raw - centre) / spread
        lags = np.array([lag for lag in rhythm.lags if lag < num / 3])
        window = _window(lags, rhythm)
        rows = np.arange(window, num)[observed[window:]]
        inputs = np.concatenate([z[rows[:, None] - lags], rhythm.wave_values(rows.astype(float))], axis=1)
        middle, deviation = inputs.mean(axis=0), z[rows] - naive_step(z, rows, rhythm.season)
        shift, inputs = deviation.mean(), inputs - middle
        gram = inputs.T @ inputs + penalty * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ (deviation - shift))
        residuals = deviation - shift - inputs @ weights
        return cls(
            rhythm=rhythm,
            lags=lags,
            floor=floor,
            centre=centre,
            spread=spread,
            lag_weights=weights[: len(lags)],
            wave_weights=weights[len(lags) :],
            intercept=shift - middle @ weights,
            residuals=residuals - residuals.mean(),
        )

    def paths(self, y: Array, origins: Index, horizon: int, num_paths: int, generator: torch.Generator) -> Array:
        """Futures of y [n] from each origin, the index of the first value to draw, [origins, num_paths, horizon]."""
        window = _window(self.lags, self.rhythm)
        drawn = torch.randint(len(self.residuals), (len(origins), num_paths, horizon), generator=generator).numpy()
        z = (_raw(y, self.floor) - self.centre) / self.spread
        path = np.zeros((len(origins), num_paths, window + horizon))
        path[:, :, :window] = z[origins[:, None] + np.arange(-window, 0)][:, None]
        ahead = (origins[:, None] + np.arange(horizon)).astype(float)
        offsets = self.intercept + self.rhythm.wave_values(ahead) @ self.wave_weights
        for step, now in enumerate(range(window, window + horizon)):
            linear = path[:, :, now - self.lags] @ self.lag_weights + offsets[:, None, step]
            noise = self.residuals[drawn[:, :, step]]
            value = naive_step(path, now, self.rhythm.season) + linear + noise
            path[:, :, now] = np.clip(value, -_LIMIT, _LIMIT)
        raw = path[:, :, window:] * self.spread + self.centre
        return np.maximum(raw, 0.0) ** 2 + self.floor if np.isfinite(self.floor) else raw


def hedged(paths: Array, share: float, ridge: Ridge | None, y: Array, generator: torch.Generator) -> Array:
    """Paths [P, steps] after the end of y [n] of which a `share`, evenly spread, are drawn by the ridge regression."""
    num = len(evenly(len(paths), share))
    if ridge is None or not num:
        return paths
    return mixed(paths, ridge.paths(y, np.array([len(y)]), paths.shape[1], num, generator)[0], share)


def main_season(rhythm: Rhythm) -> Rhythm:
    """The main season alone, with its own waves."""
    return replace(rhythm, long_season=0, waves=own_waves(rhythm.season))


def own_waves(season: int) -> tuple[tuple[float, int], ...]:
    """All harmonics of a season of up to twelve steps, three of a longer one; with days of the week also the year."""
    if season == 1:
        return ()
    main = (float(season), season // 2 if season <= 12 else 3)
    return (main, (YEAR_IN_DAYS, 2)) if season == 7 else (main,)


def naive_step(z: Array, now: int | NDArray[np.int64], season: int) -> Array:
    """z[t−1] + z[t−m] − z[t−m−1] along the last axis; z[t−1] without a season."""
    last: Array = z[..., now - 1]
    return last if season == 1 else last + z[..., now - season] - z[..., now - season - 1]


def _window(lags: Index, rhythm: Rhythm) -> int:
    """Steps of the past that the next value needs."""
    return max(int(lags[-1]), rhythm.season + 1)


def _raw(y: Array, floor: float) -> Array:
    """Roots of what lies above the floor, or y itself, same shape."""
    return np.sqrt(np.maximum(y - floor, 0.0)) if np.isfinite(floor) else y
