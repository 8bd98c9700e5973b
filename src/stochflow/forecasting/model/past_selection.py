"""Which features of the past a series uses: those that reduce the CRPS of the linear ensemble on held-out origins.

Columns are tried one by one and added in the order of their gains, as long as the held-out CRPS falls by more than two
of its standard errors and by a least share. A categorical feature is tried with all its columns at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.model.fit import hold_out
from stochflow.forecasting.model.linear_models import fit_linear_models
from stochflow.forecasting.model.paths import path_starts, sample_paths
from stochflow.forecasting.model.seasonality import Seasonality
from stochflow.forecasting.model.stages import Report, each, no_report

# least relative reduction of the CRPS: what direct networks and ridge paths bring, which do not read features
MIN_GAIN = 0.02
# and the least multiple of its standard error
_MIN_ERRORS = 2.0
# observed values before the first held-out origin
MIN_TRAINED = 20

# by series id and name of a column, the relative reduction of the held-out CRPS
PastGains = dict[str, dict[str, float]]


def select_past(
    panel: list[Series],
    places: Mapping[str, list[int]],
    seasonality: Seasonality,
    horizon: int,
    config: ForecastConfig,
    report: Report = no_report,
) -> tuple[list[Series], PastGains]:
    """Every series with the columns of `past` that it uses; `places` holds the columns of each feature by its name."""
    if not places:
        return panel, {series.uid: {} for series in panel}
    ends, origins = hold_out(panel, horizon, config.validation_origins, min_trained=MIN_TRAINED)
    chosen, gains = [], {}
    for series, end, own in each(list(zip(panel, ends, origins, strict=True)), "features of the past", report):
        varying = {name: columns for name, columns in places.items() if series.past[:end, columns].std() > 0}
        trial = _Trial(series, end, own, seasonality, horizon, config)
        used, gains[series.uid] = trial.chosen(varying) if varying and own else (series, {})
        chosen.append(used)
    return chosen, gains


class _Trial:
    """Held-out origins of one series on which sets of columns are compared."""

    def __init__(
        self,
        series: Series,
        end: int,
        origins: list[int],
        seasonality: Seasonality,
        horizon: int,
        config: ForecastConfig,
    ) -> None:
        self.series, self.end, self.origins = series, end, origins
        self.seasonality, self.horizon, self.config = seasonality, horizon, config
        # origins closer than a horizon share values
        self.evidence = min((origins[-1] - origins[0]) / horizon + 1, len(origins)) if origins else 1.0

    def chosen(self, places: Mapping[str, list[int]]) -> tuple[Series, dict[str, float]]:
        """The series with the best columns, and what each brought on top of those before."""
        used: list[int] = []
        best = first = self._scores(used)
        gains: dict[str, float] = {}
        alone = {name: self._scores(columns) for name, columns in places.items()}
        for name in sorted(alone, key=lambda name: float(alone[name].mean())):
            scores = alone[name] if not used else self._scores([*used, *places[name]])
            saved = (best - scores) / first.mean()
            error = float(saved.std(correction=0)) / self.evidence**0.5
            if float(saved.mean()) > max(MIN_GAIN, _MIN_ERRORS * error):
                gains[name] = float(saved.mean())
                used, best = [*used, *places[name]], scores
        return using_columns(self.series, used), gains

    def _scores(self, columns: list[int]) -> Tensor:
        """Mean CRPS of each origin, [origins]."""
        series, num = using_columns(self.series, columns), self.config.validation_paths
        models = fit_linear_models([series], self.seasonality, self.config, [self.end])
        generator = torch.Generator().manual_seed(self.config.seed)
        start = path_starts(series, models.ensembles[0], self.origins, self.horizon, num, models.past[0], generator)
        drawn = sample_paths(start, models, None, generator).view(len(self.origins), num, -1)
        ahead = np.array(self.origins)[:, None] + np.arange(self.horizon)
        truth = np.where(series.observed[ahead], series.y[ahead], np.nan)
        return fair_crps(drawn, torch.as_tensor(truth)).nanmean(dim=-1)


def using_past(series: Series, places: Mapping[str, list[int]], names: Iterable[str]) -> Series:
    """The series with the columns of these features."""
    return using_columns(series, [column for name in names for column in places[name]])


def using_columns(series: Series, columns: list[int]) -> Series:
    """The series with these columns of `past`, for its linear ensemble to use."""
    return replace(series, used_past=np.array(columns, dtype=np.int64))
