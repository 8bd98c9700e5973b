"""Linear ensemble: exponential smoothing (seasonal ARIMA) with a ridge regression on lags and calendar.

A member predicts in a transformed and standardised space z = (f(y) − μ)/s, from which the effects of features are taken
first (`effects.py`; without features there are none). With differences at lag 1 and at a season m,

    ẑ_t = z[t−1] + z[t−m] − z[t−m−1] − θ e[t−1] − Θ e[t−m] + θΘ e[t−m−1] + w·x_t,

where e is the error of the first six terms and x_t holds lags and Fourier terms of the calendar. With θ = Θ = 0 it is a
ridge regression shrunk towards the seasonal random walk, under a heavy penalty exponential smoothing alone. Every
combination of transform, differences, θ, Θ and penalty λ is solved in closed form and weighted by the likelihood of its
leave-one-out errors.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from stochflow.forecasting.data.series import Array, Index, Mask
from stochflow.forecasting.model.effects import MAX_ROUNDS, TOLERANCE, EffectRegression
from stochflow.forecasting.model.seasonality import Seasonality

TRANSFORMS = ("identity", "root", "log")
# cap of the leverage, whose complement divides leave-one-out errors
_MAX_LEVERAGE = 0.9
_TINY = 1e-9
# forecasts may leave the range of the data by this many ranges
_FURTHEST = 100.0
# rows that must remain for the regression, whatever the longest lag
_MIN_ROWS = 4
# prior count of the variance at each position in the season, which shrinks it to the overall variance
_PRIOR_COUNT = 20.0
# a least value below zero by at most this share of the largest counts as an offset of nonnegative data
_MAX_OFFSET = 0.02


@dataclass(frozen=True)
class EnsembleGrid:
    """Grid of ensemble members, and how their likelihoods become weights."""

    penalties: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    smoothings: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
    transforms: tuple[str, ...] = TRANSFORMS
    # weight of one lightly penalised member without smoothing, whatever its likelihood
    plain_share: float = 0.1
    plain_penalty: float = 0.3
    # log-likelihood differences are divided by the larger of this and a share of the number of values
    min_temperature: float = 20.0
    temperature_share: float = 0.1
    max_members: int = 100


@dataclass(frozen=True)
class LinearEnsemble:
    """K fitted members of one series.

    Attributes:
        offset: subtracted from y, 0 unless the least value lies slightly below zero.
        unit: power of two that y − offset is divided by, 1 unless values are huge or tiny.
        low, high: bounds of forecasts of (y − offset)/unit.
        floor: lower bound of y, −∞ if values can be negative.
        transform: name of f per member, [K].
        centre, spread: μ and s of z, [K].
        ceiling: upper bound of z, finite for logarithms only, [K].
        ar, ma: weights of z and e at `seasonality.smoothing_lags`, [K, smoothing lags].
        lag_weights: regression weights of z at `seasonality.lags`, [K, lags].
        calendar_weights: regression weights of the calendar, [K, F].
        effects: what a unit of each feature adds to z, [K, E].
        intercept: [K].
        noise_scale: standard deviation of the leave-one-out errors in z, [K].
        seasonal_scale: relative error size at each position in the season, [K, longest season].
        weight: of each member, sums to one, [K].
        values, errors: z less the effects, and e, gaps filled in, [K, time].
        residuals: leave-one-out errors over `noise_std`, NaN where y or its lags are missing, [K, time].
    """

    seasonality: Seasonality
    offset: float
    unit: float
    low: float
    high: float
    floor: float
    transform: NDArray[np.str_]
    centre: Array
    spread: Array
    ceiling: Array
    ar: Array
    ma: Array
    lag_weights: Array
    calendar_weights: Array
    effects: Array
    intercept: Array
    noise_scale: Array
    seasonal_scale: Array
    weight: Array
    values: Array
    errors: Array
    residuals: Array

    @property
    def fitted(self) -> Array:
        """Leave-one-out prediction ẑ at every time, [K, time]."""
        return self.values - self.residuals * self.noise_std(np.arange(self.values.shape[1]))

    def noise_std(self, times: Index) -> Array:
        """Standard deviation of z around ẑ at these times, [K, times]."""
        return self.noise_scale[:, None] * self.seasonal_scale[:, times % self.seasonal_scale.shape[1]]


@dataclass(frozen=True)
class Smoother:
    """Exponential smoothing: differences at lag 1 (`step`) and at `season` (0: none), moving averages θ and Θ."""

    step: bool
    season: int
    theta: float
    season_theta: float

    def weights(self, lags: list[int]) -> tuple[Array, Array]:
        """AR weights of z and MA weights of e at the smoothing lags, [smoothing lags] each."""
        ar, ma = np.zeros(len(lags)), np.zeros(len(lags))
        ar[0], ma[0] = float(self.step), -self.theta
        if self.season:
            place = lags.index(self.season)
            ar[place], ma[place] = 1.0, -self.season_theta
            ar[place + 1], ma[place + 1] = -ar[0], self.theta * self.season_theta
        return ar, ma

    def errors(self, values: Array) -> Array:
        """e_t along values [time]; zero before the first value that can be predicted."""
        errors = values.copy()
        for lag in [1] * self.step + [self.season] * (self.season > 0):
            errors[lag:] = errors[lag:] - errors[:-lag]
        errors[: self.step + self.season] = 0.0
        # (1 − θB)(1 − ΘB^m) is inverted factor by factor, the seasonal one along each position in the season
        if self.season_theta:
            rounds = np.pad(errors, (0, -len(errors) % self.season)).reshape(-1, self.season)
            errors = lfilter([1.0], [1.0, -self.season_theta], rounds, axis=0).ravel()[: len(errors)]
        return lfilter([1.0], [1.0, -self.theta], errors) if self.theta else errors


def smoothers(levels: tuple[float, ...], seasonality: Seasonality) -> list[Smoother]:
    """Every distinct combination of differences and moving averages for this seasonality."""
    seasons = [0] + [season for season in (seasonality.season, seasonality.long_season) if season > 1]
    return [
        Smoother(step, season, theta, season_theta)
        for step, season in product((False, True), seasons)
        for theta in (levels if step else (0.0,))
        for season_theta in (levels if season else (0.0,))
    ]


def forward(transform: str, values: Array) -> Array:
    """f(y) of a variance-stabilising transform by name."""
    match transform:
        case "root":
            return np.sqrt(np.maximum(values, 0.0))
        case "log":
            return np.log(values)
    return values


def fit_ensemble(
    y: Array,
    observed: Mask,
    calendar: Array,
    seasonality: Seasonality,
    grid: EnsembleGrid,
    until: int | None = None,
    features: Array | None = None,
) -> LinearEnsemble:
    """Ensemble for y [time] (gaps filled where not `observed`) with a calendar [time, F] and features [time, E].

    Only values before `until` are learned from; later residuals are out of sample.
    """
    until = len(y) if until is None else until
    offset, unit = _offset(y[:until]), _unit(y[:until])
    y = (y - offset) / unit
    low, high = y[:until].min(), y[:until].max()
    margin = _FURTHEST * (high - low)
    # a seasonal difference needs two seasons of data
    longest = min(until / 2, _latest_start(observed[:until]))
    filters = [each for each in smoothers(grid.smoothings, seasonality) if each.season < longest]
    # values after `until` may be smaller: a root clips them at zero, a logarithm cannot
    allowed = [name for name in grid.transforms if _allowed(name, y if name == "log" else y[:until])] or ["identity"]
    world = _World(y, observed, calendar, np.zeros((len(y), 0)) if features is None else features, seasonality, until)
    designs = [_design(name, world, filters, grid.penalties) for name in allowed]
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
    return LinearEnsemble(
        seasonality=seasonality, offset=offset, unit=unit, low=low, high=high, floor=floor, weight=weight, **columns
    )


@dataclass(frozen=True)
class _World:
    """What all designs share: y [time], whether observed [time], calendar [time, F], features [time, E]."""

    y: Array
    observed: Mask
    calendar: Array
    features: Array
    seasonality: Seasonality
    end: int


def _design(name: str, world: _World, filters: list[Smoother], penalties: tuple[float, ...]) -> "_Design":
    """The design of a transform with the effects of all features, found in a few rounds."""
    design = _Design(name, world, filters, np.zeros(world.features.shape[1]))
    for _ in range(MAX_ROUNDS if len(design.effects) else 0):
        effects = design.regression(penalties).step(design.effects)
        change = np.abs(effects - design.effects).max()
        design = _Design(name, world, filters, effects)
        if change < TOLERANCE:
            break
    return design


class _Design:
    """Regression of one transform: one singular value decomposition for all filters and penalties."""

    def __init__(self, name: str, world: _World, filters: list[Smoother], effects: Array) -> None:
        self.name, self.seasonality, self.filters, self.end = name, world.seasonality, filters, world.end
        self.world, self.effects = world, effects
        y, observed, end = world.y, world.observed, world.end
        raw = forward(name, y)
        self.centre, self.spread = raw[:end].mean(), raw[:end].std() + _TINY
        self.z = (raw - self.centre) / self.spread - world.features @ effects
        # lags beyond a third of the series would cost too many rows
        longest = min(end / 3, _latest_start(observed[:end]))
        self.lags = [lag for lag in self.seasonality.lags if lag < max(longest, 2)]
        first = max(self.lags[-1], *(each.step + each.season for each in filters))
        self.times = np.arange(first, len(y))[observed[first:]]
        self.learned = self.times < end
        self.num_rows = int(self.learned.sum())
        inputs = [np.stack([self.z[self.times - lag] for lag in self.lags], axis=1), world.calendar[self.times]]
        self.inputs = np.concatenate(inputs, axis=1)
        self.middle = self.inputs[self.learned].mean(axis=0)
        self.inputs = np.concatenate([self.inputs - self.middle, np.ones((len(self.times), 1))], axis=1)
        self.left, self.singular, self.right = np.linalg.svd(self.inputs[self.learned], full_matrices=False)
        self.errors = np.stack([smoother.errors(self.z) for smoother in filters])
        self.targets = self.errors[:, self.times[self.learned]].T
        self.projected = self.left.T @ self.targets
        self.log_jacobian = _log_jacobian(name, y[self.times[self.learned]]) - self.num_rows * np.log(self.spread)

    def regression(self, penalties: tuple[float, ...]) -> EffectRegression:
        """Regression of the effects under the best filter and penalty."""
        scores = np.stack([self.score(penalty) for penalty in penalties])
        penalty, number = np.unravel_index(np.argmax(scores), scores.shape)
        rows, features = self.times[self.learned], self.world.features
        smoothed = np.stack([self.filters[number].errors(column) for column in features.T], axis=1)
        return EffectRegression(
            inputs=self.inputs[self.learned],
            penalty=penalties[penalty],
            targets=self.targets[:, number],
            smoothed=smoothed[rows],
            lagged=np.stack([features[rows - lag] for lag in self.lags], axis=-1),
        )

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
        """Arrays of one member, as `LinearEnsemble` stacks them."""
        shrink = self.singular**2 / (self.singular**2 + penalty)
        # w = V diag(shrink/s) U'e, zero in directions that the data do not span
        gain = np.divide(shrink, self.singular, out=np.zeros_like(shrink), where=self.singular > 1e-12)
        w = self.right.T @ (gain * self.projected[:, number])
        errors = self.errors[number]
        known = self.left_out(penalty, slice(number, number + 1))[:, 0]
        scale = max(known.std(), _TINY)
        residuals = np.full(len(self.z), np.nan)
        residuals[self.times] = (errors[self.times] - self.inputs @ w) / scale
        residuals[self.times[self.learned]] = known / scale
        seasonal_scale = _seasonal_scale(known / scale, self.times[self.learned], self.seasonality)
        residuals /= seasonal_scale[np.arange(len(residuals)) % len(seasonal_scale)]
        lag_weights = np.zeros(len(self.seasonality.lags))
        lag_weights[: len(self.lags)] = w[: len(self.lags)]
        ar, ma = self.filters[number].weights(self.seasonality.smoothing_lags)
        return {
            "transform": np.array(self.name),
            "centre": self.centre,
            "spread": self.spread,
            "ceiling": np.array(self.z[: self.end].max() + 3.0 if self.name == "log" else np.inf),
            "ar": ar,
            "ma": ma,
            "lag_weights": lag_weights,
            "calendar_weights": w[len(self.lags) : -1],
            "effects": self.effects,
            "intercept": w[-1] - w[:-1] @ self.middle,
            "noise_scale": np.array(scale),
            "seasonal_scale": seasonal_scale,
            "values": self.z,
            "errors": errors,
            "residuals": residuals,
        }


def _seasonal_scale(residuals: Array, times: Index, seasonality: Seasonality) -> Array:
    """Scale of residuals [rows] at each position in the season, then in the long one, shrunk to 1; [longest season]."""
    seasonal_scale = np.ones(max(seasonality.season, seasonality.long_season))
    for season in (seasonality.season, seasonality.long_season):
        if season > 1:
            squares = (residuals / seasonal_scale[times % len(seasonal_scale)]) ** 2
            sums, counts = (np.bincount(times % season, weights, minlength=season) for weights in (squares, None))
            scale = np.sqrt((_PRIOR_COUNT + sums) / (_PRIOR_COUNT + counts))
            seasonal_scale *= scale[np.arange(len(seasonal_scale)) % season]
    return seasonal_scale


def _latest_start(observed: Mask) -> int:
    """Latest first row of the regression that leaves `_MIN_ROWS` observed values."""
    return int(np.flatnonzero(observed)[-_MIN_ROWS:][0])


def _plainest(filters: list[Smoother]) -> int:
    """Index of the filter with differences at lag 1 and at the main season, if there is one, and no smoothing."""
    plain = [number for number, each in enumerate(filters) if each.theta == each.season_theta == 0]
    return max(plain, key=lambda number: (filters[number].season > 0, filters[number].step, -filters[number].season))


def _offset(y: Array) -> float:
    """The least value if it is slightly below zero, as in the net output of an idle wind farm; otherwise 0."""
    return float(y.min()) if -_MAX_OFFSET * y.max() <= y.min() < 0 else 0.0


def _unit(y: Array) -> float:
    """A power of two near the largest |y| if squares of y could overflow or underflow; otherwise 1."""
    largest = float(np.abs(y).max())
    return 1.0 if largest == 0 or 1e-6 < largest < 1e15 else float(2.0 ** np.clip(np.frexp(largest)[1], -1000, 1000))


def _allowed(transform: str, y: Array) -> bool:
    return transform == "identity" or bool((y > 0).all() if transform == "log" else (y >= 0).all())


def _log_jacobian(name: str, y: Array) -> float:
    """Σ log |f'(y)|, which makes likelihoods of different transforms comparable."""
    match name:
        case "root":
            # f'(0) is infinite: a zero counts as a hundredth of the mean
            return float(-np.log(2 * np.sqrt(np.maximum(y, 0.01 * y.mean() + 1e-12))).sum())
        case "log":
            return float(-np.log(y).sum())
    return 0.0
