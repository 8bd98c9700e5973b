"""Spread that held-out origins ask for: paths stretched around their median, as far as there is evidence.

Every held-out value y has a factor by which the central 80 % interval must grow or shrink to end exactly there: with
median m and upper end u it is (y − m)/(u − m). The 80 % quantile of these factors makes the interval cover 80 % of what
was held out. It is taken only so far as the CRPS bears it, and its logarithm is shrunk towards zero: a series that
shows little keeps the spread that it has.
"""

from dataclasses import dataclass

import numpy as np
import torch

from stochflow.forecasting.data.series import Array
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.model.paths import mixed

SHARE = 0.8
# horizons of held-out data that it takes to half believe the factor that they ask for
_DOUBT = 30.0
_MOST = 3.0
# share by which the CRPS of the held-out origins may rise for the sake of coverage
_PRICE = 0.005
# how much of the way to the factor is tried
_STEPS = (1.0, 0.75, 0.5, 0.25)
# how much of the largest share of another forecast's paths is tried
_SHARES = (0.0, 1 / 3, 2 / 3, 1.0)
# what counts as the floor itself, in units of the largest value
_TOUCH = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What held-out origins ask for: the share of the paths that a ridge regression draws, and all paths' factor."""

    ridge: float = 0.0
    stretch: float = 1.0


def asked_share(paths: Array, others: Array, truth: Array, most: float) -> float:
    """Share, at most `most`, of paths [origins, P, steps] that by CRPS others [origins, Q, steps] should replace."""
    shares = [most * part for part in _SHARES]
    return min(shares, key=lambda share: _mean_crps(mixed(paths, others, share), truth))


def stretched(paths: Array, factor: float, floor: float) -> Array:
    """Paths [..., P, steps] whose distances from the median of each step are `factor` times as long, in the same order.

    Above a finite `floor`, what lies below the median m moves by the power (x − floor)/(m − floor) → (·)^factor
    instead: as steep as the line at the median, but the floor stays where it is and nothing falls below.
    """
    if factor == 1:
        return paths
    middle = np.median(paths, axis=-2, keepdims=True)
    straight = middle + factor * (paths - middle)
    if not np.isfinite(floor):
        return straight
    below = floor + (middle - floor) * _way_up(paths, middle, floor) ** factor
    return np.where(paths < middle, below, straight)


def asked_stretch(paths: Array, truth: Array, floor: float, evidence: float) -> float:
    """Factor for paths [origins, P, steps] against what happened [origins, steps], NaN where nobody knows.

    `evidence` counts the horizons that the origins span: few of them are one stretch of weather, and leave it at 1.
    """
    factors = _needed(paths, truth, floor)
    if not len(factors):
        return 1.0
    log_factor = float(np.log(np.clip(np.quantile(factors, SHARE), 1 / _MOST, _MOST)))
    most = (1 + _PRICE) * _mean_crps(paths, truth)
    borne = (step for step in _STEPS if _mean_crps(stretched(paths, np.exp(step * log_factor), floor), truth) <= most)
    trust = evidence**2 / (evidence**2 + _DOUBT**2)
    return float(np.exp(trust * next(borne, 0.0) * log_factor))


def _needed(paths: Array, truth: Array, floor: float) -> Array:
    """Factors at which the interval just reaches each known value, [values].

    A value on the floor, which nothing moves, and a step whose interval is a point tell nothing.
    """
    # by Weibull's rule the interval of a few paths holds its share of further ones
    ends = [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2]
    low, middle, high = np.quantile(paths, ends, axis=-2, method="weibull")
    above = truth >= middle
    way, reach = np.abs(truth - middle), np.where(above, high - middle, middle - low)
    told = np.isfinite(truth)
    if np.isfinite(floor):
        told &= truth > floor + _TOUCH * np.abs(paths).max()
        with np.errstate(divide="ignore"):  # an interval that ends on the floor holds all that lies above it
            way = np.where(above, way, -np.log(_way_up(truth, middle, floor)))
            reach = np.where(above, reach, -np.log(_way_up(low, middle, floor)))
    told &= reach > 0
    return np.minimum(way[told] / reach[told], _MOST)


def _way_up(values: Array, middle: Array, floor: float) -> Array:
    """Share of the way from the floor to the median at which values lie, within 0 and 1; 1 if there is no way."""
    room = np.broadcast_to(middle - floor, values.shape)
    return np.clip(np.divide(values - floor, room, out=np.ones_like(values), where=room > 0), 0.0, 1.0)


def _mean_crps(paths: Array, truth: Array) -> float:
    return float(fair_crps(torch.as_tensor(paths), torch.as_tensor(truth)).nanmean())
