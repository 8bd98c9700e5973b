"""Baseline forecasters: ridge autoregression, a feed-forward network, and four models of statsforecast."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.extras import extra
from stochflow.forecasting.data.series import Array, Mask, Series
from stochflow.forecasting.model import direct
from stochflow.forecasting.model.ridge_ar import PENALTY, Ridge, main_season
from stochflow.forecasting.model.seasonality import Seasonality

MIN_VALUES = 8


class Baseline(Protocol):
    """Interface of every forecaster in a comparison."""

    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        """Quantiles of the values that follow y.

        Args:
            y: values so far, gaps filled in, [n].
            seasonality: of the series' frequency.
            horizon: number of steps to forecast.
            levels: sorted, inside (0, 1), [L].
            observed: False where y was filled in, [n].

        Returns:
            Sorted along the levels, [L, horizon].
        """
        ...


@dataclass
class RidgeAR:
    """Ridge autoregression with bootstrapped residuals; of √y if no value is negative.

    Attributes:
        generator: draws the residuals.
        whole_calendar: use every lag and Fourier term of the seasonality, not the main season's alone.
    """

    generator: torch.Generator
    whole_calendar: bool = False
    penalty: float = PENALTY
    num_paths: int = 1000

    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        known = replace(seasonality, season=seasonality.season if seasonality.season < len(y) / 3 else 1)
        known = known if self.whole_calendar else main_season(known)
        ridge = Ridge.fit(y, observed, known, 0.0 if (y >= 0).all() else -np.inf, self.penalty)
        paths = ridge.paths(y, np.array([len(y)]), horizon, self.num_paths, self.generator)[0]
        return np.quantile(paths, levels, axis=0)


@dataclass
class FeedForward:
    """One direct network: window → two hidden layers → quantiles of all steps, with early stopping, not refitted.

    Attributes:
        generator: draws initial weights and batches.
    """

    generator: torch.Generator

    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        window, num = direct.window_length(seasonality, len(y)), len(y)
        if num - window - horizon + 1 < direct.MIN_ROWS:
            raise DataError(
                f"{num} values are too few to learn {horizon} steps from; "
                f"give at least {2 * (horizon + direct.MIN_ROWS)} or a shorter horizon"
            )
        centre, spread = y.mean(), y.std() + 1e-9
        z, positions = (y - centre) / spread, np.arange(float(num))
        # windows read the row before their origin: it holds the calendar of the first step ahead
        series = Series("", y, observed, seasonality.fourier_terms(positions + 1), np.zeros((num, 0)), positions)
        rows = direct.windows_of(series, z, seasonality, window, horizon, 1)
        network = direct.train_direct([rows], direct.MAX_STEPS, self.generator, averaging=0.0, refit=False)
        values = direct.quantiles_ahead(network, series, z, seasonality, window, levels)[0] * spread + centre
        return np.maximum(values, 0.0) if (y >= 0).all() else values


def require_values(y: Array, observed: Mask) -> None:
    """Raise a DataError for a series with fewer than `MIN_VALUES` observed values."""
    if observed.sum() < MIN_VALUES:
        raise DataError(f"{observed.sum()} of {len(y)} values are there; give a series with at least {MIN_VALUES}")


# longest season of each model; with a longer one it is fitted without
LONGEST_SEASON = {"SeasonalNaive": 10**6, "AutoTheta": 10**6, "AutoETS": 24, "AutoARIMA": 24}
# fitting time grows faster than the length: models read the latest values only
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

    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        fits = seasonality.season <= LONGEST_SEASON[self.name] and seasonality.season < len(y)
        recent = y if self.name == "SeasonalNaive" else y[-MAX_HISTORY:]
        # a quantile is one end of a central interval: the level 0.1 is the lower end of the one with 80 %
        central = [round(abs(200 * level - 100), 6) for level in levels.tolist()]
        answer = self._model(season_length=seasonality.season if fits else 1).forecast(
            y=recent, h=horizon, level=sorted(set(central) - {0.0}) or None
        )
        ends = [
            answer["mean"] if width == 0 else answer[f"{'lo' if level < 0.5 else 'hi'}-{width}"]
            for level, width in zip(levels.tolist(), central, strict=True)
        ]
        # intervals from simulated paths need not hold the mean
        return np.sort(np.stack(ends).astype(np.float64), axis=0)
