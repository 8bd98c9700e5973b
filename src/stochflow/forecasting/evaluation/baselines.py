"""Forecasters to be measured against: ridge autoregression in closed form, and four of statsforecast."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.extras import extra
from stochflow.forecasting.model.ridge_ar import PENALTY, Ridge, main_season
from stochflow.forecasting.model.seasonality import Rhythm

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
    """Ridge autoregression whose own residuals, drawn again, make the paths; of √y when no value is negative.

    Attributes:
        generator: draws the residuals.
        whole_calendar: take every lag and wave of the rhythm, a long season's included, instead of the main season's.
    """

    generator: torch.Generator
    whole_calendar: bool = False
    penalty: float = PENALTY
    num_paths: int = 1000
    name: str = "RidgeAR"

    def quantiles(self, y: Array, rhythm: Rhythm, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        known = replace(rhythm, season=rhythm.season if rhythm.season < len(y) / 3 else 1)
        known = known if self.whole_calendar else main_season(known)
        ridge = Ridge.fit(y, observed, known, 0.0 if (y >= 0).all() else -np.inf, self.penalty)
        paths = ridge.paths(y, np.array([len(y)]), horizon, self.num_paths, self.generator)[0]
        return np.quantile(paths, levels, axis=0)


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
