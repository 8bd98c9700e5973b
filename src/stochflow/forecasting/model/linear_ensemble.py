"""Linear anchors: what a series would do next if it only went on as before.

A member of the ensemble is exponential smoothing, corrected by a ridge regression, in a transformed and standardised
space z = (f(y) − μ)/s. With differences at lag 1 and at a season m, say,

    ẑ_t = z[t−1] + z[t−m] − z[t−m−1] − θ e[t−1] − Θ e[t−m] + θΘ e[t−m−1] + w·x_t,

where e is what the first six terms missed, and x_t holds lags, waves of the calendar and features known in advance.
With θ = Θ = 0 it is the ridge regression shrunk towards y[t−1] + y[t−m] − y[t−m−1]; under a heavy penalty it is
exponential smoothing alone. Every combination of transform, differences, θ, Θ and penalty λ is solved in closed form
and judged by its leave-one-out errors; the good ones are kept with weights.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from stochflow.forecasting.model.seasonality import Rhythm

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
TRANSFORMS = ("identity", "root", "log")
# a ridge leverage beyond this would let one point's leave-one-out error explode
_MAX_LEVERAGE = 0.9
_TINY = 1e-9
# ranges of the data that a forecast may lie beyond it
_FURTHEST = 100.0
# observed values that no lag or season may take from the regression
_MIN_ROWS = 4
# residuals at one place of a season that it takes to half believe that it is calmer or wilder than others
_USUAL = 20.0
# values below zero by no more than this share of the largest are taken for an offset of what cannot be negative
_SLIGHT = 0.02


@dataclass(frozen=True)
class AnchorGrid:
    """What the ensemble tries, and how sharply it chooses."""

    penalties: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    smoothings: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
    transforms: tuple[str, ...] = TRANSFORMS
    # share of the plain members, which the ensemble keeps whatever their errors: a hedge against a wrong choice
    plain_share: float = 0.1
    plain_penalty: float = 0.3
    # log-likelihood differences are divided by this, or by a share of the rows, before they become weights
    min_temperature: float = 20.0
    temperature_share: float = 0.1
    max_members: int = 100


@dataclass(frozen=True)
class Anchors:
    """K members of one series.

    Attributes:
        offset: what is subtracted from y first, 0 unless its least value lies slightly below zero.
        unit: a power of two by which y is divided then, 1 unless the values are huge or tiny.
        low, high: (y − offset)/unit that no forecast leaves: the range of the data, wider by 100 of it on both sides.
        floor: y below which nothing lies, the offset; −∞ if values can be negative.
        transform: name of f per member, [K].
        centre, spread: μ and s of z, [K].
        ceiling: a bound on the z that an exponential may reach, [K].
        recall, forget: weights of z and e at the lags of `rhythm.near`, [K, near].
        lag_weights: weights of z at the lags of `rhythm.lags`, [K, lags].
        feature_weights: of the features known in advance, [K, F].
        intercept: [K].
        noise_scale: standard deviation of the leave-one-out errors in z, [K].
        unrest: how much more than usual the series errs at each place in its seasons, [K, places].
        weight: share of each member, sums to one, [K].
        values, errors: z and e with gaps filled in, [K, time].
        residuals: leave-one-out errors over `noise_scale` and `unrest`, NaN where the series is missing or too young,
            [K, time].
    """

    rhythm: Rhythm
    offset: float
    unit: float
    low: float
    high: float
    floor: float
    transform: NDArray[np.str_]
    centre: Array
    spread: Array
    ceiling: Array
    recall: Array
    forget: Array
    lag_weights: Array
    feature_weights: Array
    intercept: Array
    noise_scale: Array
    unrest: Array
    weight: Array
    values: Array
    errors: Array
    residuals: Array

    @property
    def fitted(self) -> Array:
        """ẑ of every time as a forecaster who had not seen it would say, [K, time]."""
        return self.values - self.residuals * self.noise(np.arange(self.values.shape[1]))

    def noise(self, times: NDArray[np.intp]) -> Array:
        """Standard deviation of what is added to ẑ at these times, [K, times]."""
        return self.noise_scale[:, None] * self.unrest[:, times % self.unrest.shape[1]]


@dataclass(frozen=True)
class Smoother:
    """Exponential smoothing as a filter: a difference at lag 1, at a season (0: at none), moving averages θ and Θ."""

    step: bool
    season: int
    theta: float
    season_theta: float

    @property
    def smooths(self) -> bool:
        return self.theta != 0 or self.season_theta != 0

    def weights(self, near: list[int]) -> tuple[Array, Array]:
        """Weights of z and of e at the lags of `near` in the next value, [near] each."""
        recall, forget = np.zeros(len(near)), np.zeros(len(near))
        recall[0], forget[0] = float(self.step), -self.theta
        if self.season:
            place = near.index(self.season)
            recall[place], forget[place] = 1.0, -self.season_theta
            recall[place + 1], forget[place + 1] = -recall[0], self.theta * self.season_theta
        return recall, forget

    def errors(self, values: Array) -> Array:
        """e_t along values [time]; zero before the first value that can be predicted."""
        errors = values.copy()
        for lag in [1] * self.step + [self.season] * (self.season > 0):
            errors[lag:] = errors[lag:] - errors[:-lag]
        errors[: self.step + self.season] = 0.0
        # the polynomial (1 − θB)(1 − ΘB^m) is undone factor by factor, the second along each season's place
        if self.season_theta:
            rounds = np.pad(errors, (0, -len(errors) % self.season)).reshape(-1, self.season)
            errors = lfilter([1.0], [1.0, -self.season_theta], rounds, axis=0).ravel()[: len(errors)]
        return lfilter([1.0], [1.0, -self.theta], errors) if self.theta else errors


def smoothers(levels: tuple[float, ...], rhythm: Rhythm) -> list[Smoother]:
    """Every combination of differences and moving averages that means something for this rhythm."""
    seasons = [0] + [season for season in (rhythm.season, rhythm.long_season) if season > 1]
    return [
        Smoother(step, season, theta, season_theta)
        for step, season in product((False, True), seasons)
        for theta in (levels if step else (0.0,))
        for season_theta in (levels if season else (0.0,))
    ]


def forward(transform: str, values: Array) -> Array:
    """f(y) of a transform by name."""
    match transform:
        case "root":
            return np.sqrt(np.maximum(values, 0.0))
        case "log":
            return np.log(values)
    return values


def fit_anchors(
    y: Array, observed: Mask, features: Array, rhythm: Rhythm, grid: AnchorGrid, until: int | None = None
) -> Anchors:
    """Ensemble for y [time] (gaps filled where not `observed`) with features [time, F] known in advance.

    Only what comes before `until` is learned from; later residuals are those of a forecaster who had not seen them.
    """
    until = len(y) if until is None else until
    offset, unit = _offset(y[:until]), _unit(y[:until])
    y = (y - offset) / unit
    low, high = y[:until].min(), y[:until].max()
    margin = _FURTHEST * (high - low)
    # a season that the series has not seen twice cannot be told from chance
    longest = min(until / 2, _latest_start(observed[:until]))
    filters = [each for each in smoothers(grid.smoothings, rhythm) if each.season < longest]
    # later values may lie below: a root takes them for zero, a logarithm cannot
    allowed = [name for name in grid.transforms if _allowed(name, y if name == "log" else y[:until])] or ["identity"]
    designs = [_Design(name, y, observed, features, rhythm, filters, until) for name in allowed]
    # [transform, penalty, filter] flattened
    scores = np.concatenate([design.score(penalty) for design in designs for penalty in grid.penalties])
    chosen = np.argsort(-scores, kind="stable")[: grid.max_members]
    temperature = max(grid.min_temperature, grid.temperature_share * until)
    weight = np.exp((scores[chosen] - scores[chosen[0]]) / temperature)
    chosen = chosen[weight > 1e-3]
    weight = weight[: len(chosen)] / weight[: len(chosen)].sum()
    places = np.unravel_index(chosen, (len(designs), len(grid.penalties), len(filters)))
    members = [
        designs[design].member(grid.penalties[penalty], number) for design, penalty, number in zip(*places, strict=True)
    ]
    plain = designs[allowed.index("root" if "root" in allowed else allowed[0])]
    if grid.plain_share and plain.num_rows > plain.inputs.shape[1]:  # so light a penalty needs more rows than columns
        members.append(plain.member(grid.plain_penalty, _plainest(filters)))
        weight = np.append(weight * (1 - grid.plain_share), grid.plain_share)
    columns = {name: np.stack([member[name] for member in members]) for name in members[0]}
    floor = offset if low >= 0 else -np.inf
    low, high = low - margin, high + margin
    return Anchors(rhythm=rhythm, offset=offset, unit=unit, low=low, high=high, floor=floor, weight=weight, **columns)


class _Design:
    """The regression of one transform: its inputs decomposed once, for all filters and penalties."""

    def __init__(
        self, name: str, y: Array, observed: Mask, features: Array, rhythm: Rhythm, filters: list[Smoother], until: int
    ) -> None:
        self.name, self.rhythm, self.filters, self.until = name, rhythm, filters, until
        raw = forward(name, y)
        self.centre, self.spread = raw[:until].mean(), raw[:until].std() + _TINY
        self.z = (raw - self.centre) / self.spread
        # a lag beyond a third of the series would cost more rows than it is worth
        longest = min(until / 3, _latest_start(observed[:until]))
        self.lags = [lag for lag in rhythm.lags if lag < max(longest, 2)]
        first = max(self.lags[-1], *(each.step + each.season for each in filters))
        self.times = np.arange(first, len(y))[observed[first:]]
        self.learned = self.times < until
        self.num_rows = int(self.learned.sum())
        inputs = [np.stack([self.z[self.times - lag] for lag in self.lags], axis=1), features[self.times]]
        self.inputs = np.concatenate(inputs, axis=1)
        self.middle = self.inputs[self.learned].mean(axis=0)
        self.inputs = np.concatenate([self.inputs - self.middle, np.ones((len(self.times), 1))], axis=1)
        self.left, self.singular, self.right = np.linalg.svd(self.inputs[self.learned], full_matrices=False)
        self.errors = np.stack([smoother.errors(self.z) for smoother in filters])
        self.targets = self.errors[:, self.times[self.learned]].T
        self.projected = self.left.T @ self.targets
        self.log_jacobian = _log_jacobian(name, y[self.times[self.learned]]) - self.num_rows * np.log(self.spread)

    def left_out(self, penalty: float, number: slice) -> Array:
        """Leave-one-out errors of the filters in `number`, centred, [rows, filters]."""
        shrink = self.singular**2 / (self.singular**2 + penalty)
        leverage = np.minimum((self.left**2 @ shrink), _MAX_LEVERAGE)
        errors = self.targets[:, number] - self.left @ (shrink[:, None] * self.projected[:, number])
        errors /= (1 - leverage)[:, None]
        return errors - errors.mean(axis=0)

    def score(self, penalty: float) -> Array:
        """Gaussian log-likelihood of the leave-one-out errors in the space of y, [filters]."""
        deviation = np.maximum(self.left_out(penalty, slice(None)).std(axis=0), _TINY)
        return -self.num_rows * np.log(deviation) + self.log_jacobian

    def member(self, penalty: float, number: int) -> dict[str, NDArray[Any]]:
        """One member as the arrays that `Anchors` stacks."""
        shrink = self.singular**2 / (self.singular**2 + penalty)
        # w = V diag(shrink/s) U'e, with nothing in directions that the data do not span
        gain = np.divide(shrink, self.singular, out=np.zeros_like(shrink), where=self.singular > 1e-12)
        w = self.right.T @ (gain * self.projected[:, number])
        errors = self.errors[number]
        known = self.left_out(penalty, slice(number, number + 1))[:, 0]
        scale = max(known.std(), _TINY)
        residuals = np.full(len(self.z), np.nan)
        residuals[self.times] = (errors[self.times] - self.inputs @ w) / scale
        residuals[self.times[self.learned]] = known / scale
        unrest = _unrest(known / scale, self.times[self.learned], self.rhythm)
        residuals /= unrest[np.arange(len(residuals)) % len(unrest)]
        lag_weights = np.zeros(len(self.rhythm.lags))
        lag_weights[: len(self.lags)] = w[: len(self.lags)]
        recall, forget = self.filters[number].weights(self.rhythm.near)
        return {
            "transform": np.array(self.name),
            "centre": self.centre,
            "spread": self.spread,
            "ceiling": np.array(self.z[: self.until].max() + 3.0 if self.name == "log" else np.inf),
            "recall": recall,
            "forget": forget,
            "lag_weights": lag_weights,
            "feature_weights": w[len(self.lags) : -1],
            "intercept": w[-1] - w[:-1] @ self.middle,
            "noise_scale": np.array(scale),
            "unrest": unrest,
            "values": self.z,
            "errors": errors,
            "residuals": residuals,
        }


def _unrest(residuals: Array, times: NDArray[np.intp], rhythm: Rhythm) -> Array:
    """Spread of residuals [rows] at each place of the season, then of the long one, where there is enough to tell."""
    unrest = np.ones(max(rhythm.season, rhythm.long_season))
    for season in (rhythm.season, rhythm.long_season):
        if season > 1:
            squares = (residuals / unrest[times % len(unrest)]) ** 2
            sums, counts = (np.bincount(times % season, weights, minlength=season) for weights in (squares, None))
            calm = np.sqrt((_USUAL + sums) / (_USUAL + counts))
            unrest *= calm[np.arange(len(unrest)) % season]
    return unrest


def _latest_start(observed: Mask) -> int:
    """Where learning must begin at the latest, so that a few of the observed values are left."""
    return int(np.flatnonzero(observed)[-_MIN_ROWS:][0])


def _plainest(filters: list[Smoother]) -> int:
    """Number of the filter that differences at lag 1 and at the main season, if there is one, and smooths nothing."""
    unsmoothed = [(each.step, -each.season, number) for number, each in enumerate(filters) if not each.smooths]
    seasonal = [entry for entry in unsmoothed if entry[1]]
    return max(seasonal or unsmoothed)[2]


def _offset(y: Array) -> float:
    """The least value if it is slightly below zero, like the power of a wind farm that stands still; otherwise 0."""
    return float(y.min()) if -_SLIGHT * y.max() <= y.min() < 0 else 0.0


def _unit(y: Array) -> float:
    """A power of two near the largest |y| where squares or differences of y might leave the range of numbers."""
    largest = float(np.abs(y).max())
    return 1.0 if largest == 0 or 1e-6 < largest < 1e15 else float(2.0 ** np.clip(np.frexp(largest)[1], -1000, 1000))


def _allowed(transform: str, y: Array) -> bool:
    return transform == "identity" or bool((y > 0).all() if transform == "log" else (y >= 0).all())


def _log_jacobian(name: str, y: Array) -> float:
    """Σ log |f'(y)|, which makes likelihoods of different transforms comparable."""
    match name:
        case "root":
            # a zero would claim infinite density; it counts like a hundredth of the mean
            return float(-np.log(2 * np.sqrt(np.maximum(y, 0.01 * y.mean() + 1e-12))).sum())
        case "log":
            return float(-np.log(y).sum())
    return 0.0
