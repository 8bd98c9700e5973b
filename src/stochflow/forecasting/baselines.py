"""Forecasters to be measured against: ridge autoregression in closed form, and four of statsforecast."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from stochflow.errors import ConfigError, DataError
from stochflow.forecasting.rhythm import YEAR_IN_DAYS, Rhythm
from stochflow.optional import extra

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
MIN_VALUES = 8


class Baseline(Protocol):
    """What every forecaster in a comparison can do."""

    name: str

    def quantiles(self, y: Array, rhythm: Rhythm, horizon: int, levels: Array, observed: Mask) -> Array:
        """Quantiles of the values that follow y.

        Args:
            y: values so far, gaps filled in, [n].
            rhythm: seasons of the series' frequency.
            horizon: number of steps to forecast.
            levels: rising, inside (0, 1), [L].
            observed: False where y was filled in, [n].

        Returns:
            Rising along the levels, [L, horizon].
        """
        ...


@dataclass
class RidgeAR:
    """Ridge autoregression whose own residuals, drawn again, make the paths.

    In standardised z (of √y when no value is negative),

        z[t] = z[t−1] + z[t−m] − z[t−m−1] + b + w·(x_t − x̄) + e_t,

    where x_t holds lags and waves, w = (X'X + λI)⁻¹X'r for the deviations r from the first three terms, and b is their
    mean. Without a season only z[t−1] stands in front.

    Attributes:
        generator: draws the residuals.
        whole_calendar: take every lag and wave of the rhythm, a long season's included, instead of the main season's.
    """

    generator: torch.Generator
    whole_calendar: bool = False
    penalty: float = 0.3
    num_paths: int = 1000
    name: str = "RidgeAR"

    def quantiles(self, y: Array, rhythm: Rhythm, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        season = rhythm.season if rhythm.season < len(y) / 3 else 1
        root = bool((y >= 0).all())
        raw = np.sqrt(y) if root else y
        centre, spread = raw.mean(), raw.std() + 1e-9
        paths = self._paths((raw - centre) / spread, replace(rhythm, season=season), horizon, observed)
        paths = paths * spread + centre
        return np.quantile(np.maximum(paths, 0.0) ** 2 if root else paths, levels, axis=0)

    def _paths(self, z: Array, rhythm: Rhythm, horizon: int, observed: Mask) -> Array:
        """Simulated futures of z [n], [paths, horizon]."""
        season, num = rhythm.season, len(z)
        known = rhythm if self.whole_calendar else replace(rhythm, long_season=0, waves=own_waves(season))
        lags = np.array([lag for lag in known.lags if lag < num / 3])
        window = max(int(lags[-1]), season + 1)
        rows = np.arange(window, num)[observed[window:]]
        inputs = np.concatenate([z[rows[:, None] - lags], known.wave_values(rows.astype(float))], axis=1)
        middle, deviation = inputs.mean(axis=0), z[rows] - naive_step(z, rows, season)
        intercept, inputs = deviation.mean(), inputs - middle
        gram = inputs.T @ inputs + self.penalty * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ (deviation - intercept))
        residuals = deviation - intercept - inputs @ weights

        drawn = torch.randint(len(rows), (self.num_paths, horizon), generator=self.generator).numpy()
        noise = (residuals - residuals.mean())[drawn]
        waves = known.wave_values(np.arange(num, num + horizon, dtype=float))
        ahead = intercept - middle @ weights + waves @ weights[len(lags) :]
        path = np.concatenate([np.tile(z[-window:], (self.num_paths, 1)), np.zeros((self.num_paths, horizon))], axis=1)
        for step, now in enumerate(range(window, window + horizon)):
            linear = path[:, now - lags] @ weights[: len(lags)] + ahead[step]
            path[:, now] = naive_step(path, now, season) + linear + noise[:, step]
        return path[:, window:]


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


def require_values(y: Array, observed: Mask) -> None:
    """Refuse a series from which nothing can be learned."""
    if observed.sum() < MIN_VALUES:
        raise DataError(f"{observed.sum()} of {len(y)} values are there; give a series with at least {MIN_VALUES}")


# AutoETS and AutoARIMA are not made for long seasons; there they go without one
LONGEST_SEASON = {"SeasonalNaive": 10**6, "AutoTheta": 10**6, "AutoETS": 24, "AutoARIMA": 24}
# their time grows faster than the series; a season ago counts, three thousand steps ago hardly
MAX_HISTORY = 3000


@dataclass
class StatsForecast:
    """A model of statsforecast by its class name there: SeasonalNaive, AutoETS, AutoARIMA or AutoTheta."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in LONGEST_SEASON:
            raise ConfigError(f"unknown statsforecast model '{self.name}'; choose one of: {', '.join(LONGEST_SEASON)}")
        # here and not at the first forecast: a missing package shows at once, and the import counts for no forecast
        self._model = getattr(extra("statsforecast.models"), self.name)

    def quantiles(self, y: Array, rhythm: Rhythm, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        fits = rhythm.season <= LONGEST_SEASON[self.name] and rhythm.season < len(y)
        recent = y if self.name == "SeasonalNaive" else y[-MAX_HISTORY:]
        # a quantile is one end of a central interval: the level 0.1 is the lower end of the one with 80 %
        central = [round(abs(200 * level - 100), 6) for level in levels.tolist()]
        answer = self._model(season_length=rhythm.season if fits else 1).forecast(
            y=recent, h=horizon, level=sorted(set(central) - {0.0}) or None
        )
        ends = [
            answer["mean"] if width == 0 else answer[f"{'lo' if level < 0.5 else 'hi'}-{width}"]
            for level, width in zip(levels.tolist(), central, strict=True)
        ]
        # intervals from simulated paths need not hold the mean
        return np.sort(np.stack(ends).astype(np.float64), axis=0)
