"""The closed-form part of the forecaster: linear ensembles of all series, and the residual distribution they share."""

from dataclasses import dataclass, replace

import numpy as np

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.bins import Bins, place_bins
from stochflow.forecasting.model.effects import regressors_of
from stochflow.forecasting.model.linear_ensemble import EnsembleGrid, LinearEnsemble, fit_ensemble
from stochflow.forecasting.model.past_model import PastModel
from stochflow.forecasting.model.residuals import ResidualDistribution, fit_residuals
from stochflow.forecasting.model.ridge_ar import Ridge, main_season
from stochflow.forecasting.model.seasonality import Seasonality
from stochflow.forecasting.model.stages import Report, each, no_report

# residuals of a series that are enough to estimate the distribution
_MAX_RESIDUALS = 200_000
# observed values, and seasons of them, that a ridge regression with a light penalty needs
_MIN_RIDGE, _MIN_SEASONS = 200, 6


@dataclass(frozen=True)
class LinearModels:
    """Linear ensemble and, for long series, ridge autoregression of every series.

    Attributes:
        past: how the past features go on that a series uses; None without any.
        noise: distribution of the standardised residuals of all series.
        bins: quantisation of these residuals.
    """

    seasonality: Seasonality
    ensembles: list[LinearEnsemble]
    ridges: list[Ridge | None]
    past: list[PastModel | None]
    noise: ResidualDistribution
    bins: Bins

    def subset(self, index: list[int]) -> "LinearModels":
        """The models of the series with these indices."""
        return replace(
            self,
            ensembles=[self.ensembles[number] for number in index],
            ridges=[self.ridges[number] for number in index],
            past=[self.past[number] for number in index],
        )


def fit_linear_models(
    panel: list[Series],
    seasonality: Seasonality,
    config: ForecastConfig,
    until: list[int] | None = None,
    report: Report = no_report,
) -> LinearModels:
    """Fit every series on the values before its index in `until`, by default on all values."""
    ends = until or [len(series) for series in panel]
    jobs = list(zip(panel, ends, strict=True))
    ensembles = [_fit_ensemble(series, seasonality, end) for series, end in each(jobs, "linear models", report)]
    residuals, weights = [], []
    for ensemble, end in zip(ensembles, ends, strict=True):
        known = ensemble.residuals[:, :end]
        known = known[:, np.isfinite(known[0])]
        known = known[:, :: -(-known.size // _MAX_RESIDUALS)]
        residuals.append(known.ravel())
        weights.append(np.repeat(ensemble.weight / known.shape[1], known.shape[1]))
    pooled = np.concatenate(residuals)
    noise, bins = fit_residuals(pooled, np.concatenate(weights)), place_bins(pooled, config.num_bins)
    ridges = [_fit_ridge(series, own, end, config) for series, own, end in zip(panel, ensembles, ends, strict=True)]
    past = [
        PastModel.fit(series.past[:end, series.used_past], seasonality) if len(series.used_past) else None
        for series, end in zip(panel, ends, strict=True)
    ]
    return LinearModels(seasonality, ensembles, ridges, past, noise, bins)


def _fit_ensemble(series: Series, seasonality: Seasonality, end: int) -> LinearEnsemble:
    """Linear ensemble on the values before `end`, with the effects of all features that the series uses."""
    calendar, features = series.calendar[: len(series)], regressors_of(series, seasonality)
    return fit_ensemble(series.y, series.observed, calendar, seasonality, EnsembleGrid(), end, features)


def _fit_ridge(series: Series, ensemble: LinearEnsemble, end: int, config: ForecastConfig) -> Ridge | None:
    """Ridge autoregression on the values before `end`; None for a short series or one that it cannot represent."""
    seasonality, known = ensemble.seasonality, int(series.observed[:end].sum())
    long = known >= max(config.context_min_values, _MIN_SEASONS * seasonality.season, _MIN_RIDGE)
    representable = series.is_plain(seasonality) and ensemble.unit == 1.0
    if config.network == "none" or not config.ridge_share or not long or not representable:
        return None
    return Ridge.fit(series.y[:end], series.observed[:end], main_season(seasonality), ensemble.floor)
