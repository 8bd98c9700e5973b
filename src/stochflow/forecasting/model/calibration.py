"""Calibration on held-out origins: the share of ridge paths, and the scale of all paths around their median.

Every held-out value y has a factor by which the central 80 % interval must grow or shrink to end exactly there: with
median m and upper end u it is (y − m)/(u − m). With the 80 % quantile of these factors the interval covers 80 % of the
held-out values, as in conformal prediction. The factor is moved towards 1 until the held-out CRPS does not suffer, and
its logarithm is shrunk to zero when few horizons were held out.
"""

from dataclasses import dataclass

import numpy as np
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.model.context import context_vectors, encoder_windows
from stochflow.forecasting.model.fit import TrainedNetwork, hold_out
from stochflow.forecasting.model.linear_models import LinearModels, fit_linear_models
from stochflow.forecasting.model.mixture import evenly_spaced, mix_paths
from stochflow.forecasting.model.paths import path_starts, sample_paths
from stochflow.forecasting.model.seasonality import Seasonality
from stochflow.forecasting.model.stages import Report, each, no_report

# nominal coverage of the interval
COVERAGE = 0.8
# only the latest horizons count: the volatility of long ago may no longer hold
_MAX_HORIZONS = 30
# horizons of held-out data at which the logarithm of the factor is halved
_HALF_WEIGHT = 30.0
_MAX_STRETCH = 3.0
# relative increase of the held-out CRPS that is accepted for better coverage
_MAX_LOSS = 0.005
# fractions of the logarithm of the factor to try
_STEPS = (1.0, 0.75, 0.5, 0.25)
# fractions of the largest ridge share to try
_SHARES = (0.0, 1 / 3, 2 / 3, 1.0)
# distance from the floor that counts as zero, relative to the largest value
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Calibration:
    """Result for one series: share of the paths that a ridge regression draws, and scale factor of all paths."""

    ridge_share: float = 0.0
    stretch: float = 1.0


def calibrate(
    trained: TrainedNetwork,
    panel: list[Series],
    seasonality: Seasonality,
    horizon: int,
    config: ForecastConfig,
    report: Report = no_report,
) -> dict[str, Calibration]:
    """Calibration by series id, from the latest origins whose futures are known; series without any are left out."""
    ends, origins = hold_out(panel, horizon, config.calibration_origins, _MAX_HORIZONS)
    if not any(origins):
        return {}
    models = fit_linear_models(panel, seasonality, config, ends, report)
    return calibrate_at(origins, trained, panel, models, horizon, config, report)


def calibrate_at(
    origins: list[list[int]],
    trained: TrainedNetwork,
    panel: list[Series],
    models: LinearModels,
    horizon: int,
    config: ForecastConfig,
    report: Report = no_report,
) -> dict[str, Calibration]:
    """Calibration by series id at the given origins per series, after which `models` must not have learned."""
    network, num, found = trained.network, config.validation_paths, {}
    windows = encoder_windows(network, panel, models, config.context_length)
    jobs = list(enumerate(zip(panel, models.ensembles, origins, strict=True)))
    for index, (series, ensemble, places) in each(jobs, "calibration", report):
        if not places:
            continue
        when = torch.tensor(places)
        contexts = context_vectors(network, panel, windows, torch.full_like(when, index), when)
        generator = torch.Generator().manual_seed(config.seed)
        start = path_starts(series, ensemble, places, horizon, num, models.past[index], generator)
        paths = sample_paths(start, models, network, generator, contexts, trained.network_weight)
        drawn, share = paths.view(len(places), num, horizon).numpy(), 0.0
        ahead = np.array(places)[:, None] + np.arange(horizon)
        truth = np.where(series.observed[ahead], series.y[ahead], np.nan)
        if (ridge := models.ridges[index]) is not None:
            most = len(evenly_spaced(num, config.ridge_share))
            others = ridge.paths(series.y, np.array(places), horizon, most, generator)
            share = select_ridge_share(drawn, others, truth, config.ridge_share)
            drawn = mix_paths(drawn, others, share)
        # origins closer than a horizon share values
        evidence = (places[-1] - places[0]) / horizon + 1
        found[series.uid] = Calibration(share, select_stretch(drawn, truth, ensemble.floor, evidence))
    return found


def select_ridge_share(paths: Array, others: Array, truth: Array, most: float) -> float:
    """Share, at most `most`, of `others` [origins, Q, steps] among `paths` [origins, P, steps] with the least CRPS."""
    shares = [most * part for part in _SHARES]
    return min(shares, key=lambda share: _mean_crps(mix_paths(paths, others, share), truth))


def stretch_paths(paths: Array, factor: float, floor: float) -> Array:
    """Paths [..., P, steps] with deviations from the median of each step multiplied by `factor`; ranks are kept.

    With a finite `floor`, values below the median m are mapped by the power (x − floor)/(m − floor) → (·)^factor
    instead, which has the same slope at the median and fixes the floor.
    """
    if factor == 1:
        return paths
    middle = np.median(paths, axis=-2, keepdims=True)
    straight = middle + factor * (paths - middle)
    if not np.isfinite(floor):
        return straight
    below = floor + (middle - floor) * _relative_height(paths, middle, floor) ** factor
    return np.where(paths < middle, below, straight)


def select_stretch(paths: Array, truth: Array, floor: float, evidence: float) -> float:
    """Scale factor for paths [origins, P, steps] given the truth [origins, steps], NaN where unknown.

    `evidence` is the number of horizons that the origins span; few horizons shrink the factor to 1.
    """
    factors = _needed_factors(paths, truth, floor)
    if not len(factors):
        return 1.0
    log_factor = float(np.log(np.clip(np.quantile(factors, COVERAGE), 1 / _MAX_STRETCH, _MAX_STRETCH)))
    most = (1 + _MAX_LOSS) * _mean_crps(paths, truth)
    scores = ((step, _mean_crps(stretch_paths(paths, np.exp(step * log_factor), floor), truth)) for step in _STEPS)
    accepted = next((step for step, score in scores if score <= most), 0.0)
    return float(np.exp(evidence**2 / (evidence**2 + _HALF_WEIGHT**2) * accepted * log_factor))


def _needed_factors(paths: Array, truth: Array, floor: float) -> Array:
    """Factors at which the interval just reaches each known value, [values].

    Values on the floor, which no factor moves, and steps with an interval of no width are left out.
    """
    # by Weibull's rule the interval of a few paths holds its share of further ones
    ends = [(1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2]
    low, middle, high = np.quantile(paths, ends, axis=-2, method="weibull")
    above = truth >= middle
    distance, reach = np.abs(truth - middle), np.where(above, high - middle, middle - low)
    known = np.isfinite(truth)
    if np.isfinite(floor):
        known &= truth > floor + _TOLERANCE * np.abs(paths).max()
        with np.errstate(divide="ignore"):  # an interval that ends on the floor holds all that lies above it
            distance = np.where(above, distance, -np.log(_relative_height(truth, middle, floor)))
            reach = np.where(above, reach, -np.log(_relative_height(low, middle, floor)))
    known &= reach > 0
    return np.minimum(distance[known] / reach[known], _MAX_STRETCH)


def _relative_height(values: Array, middle: Array, floor: float) -> Array:
    """(value − floor)/(median − floor), clipped to [0, 1]; 1 where the median is the floor."""
    room = np.broadcast_to(middle - floor, values.shape)
    return np.clip(np.divide(values - floor, room, out=np.ones_like(values), where=room > 0), 0.0, 1.0)


def _mean_crps(paths: Array, truth: Array) -> float:
    return float(fair_crps(torch.as_tensor(paths), torch.as_tensor(truth)).nanmean())
