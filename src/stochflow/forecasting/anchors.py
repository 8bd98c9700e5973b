"""Linear anchors: what a series would do next if it only went on as before.

A member of the ensemble predicts the airline model's next value, corrected by a ridge regression, in a transformed
and standardised space z = (f(y) − μ)/s:

    ẑ_t = z[t−1] + z[t−m] − z[t−m−1] − θ e[t−1] − Θ e[t−m] + θΘ e[t−m−1] + w·x_t,

where e is what the first six terms missed, and x_t holds lags, waves of the calendar and features known in advance.
With θ = Θ = 0 it is the ridge regression shrunk towards y[t−1] + y[t−m] − y[t−m−1]; with large ridge weights it is
exponential smoothing. All combinations of transform, θ, Θ and penalty λ are solved in closed form, judged by their
leave-one-out errors, and the good ones kept with weights.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from stochflow.forecasting.rhythm import Rhythm

Array = NDArray[np.float64]
TRANSFORMS = ("identity", "root", "log")
# a ridge leverage beyond this would let one point's leave-one-out error explode
MAX_LEVERAGE = 0.9


@dataclass(frozen=True)
class AnchorGrid:
    """What the ensemble tries, and how sharply it chooses."""

    penalties: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    smoothings: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
    transforms: tuple[str, ...] = TRANSFORMS
    # log-likelihood differences are divided by this before they become weights
    temperature: float = 20.0
    max_members: int = 100


@dataclass(frozen=True)
class Anchors:
    """K members of one series, each with its transform; residuals are leave-one-out, in units of `noise_scale`.

    Shapes: lag_weights [K, lags], wave_weights [K, features], all others [K] but `residuals` and `fitted` [K, time]
    (NaN where the series is missing or too young), `values` and `errors` [K, time] (z and e; gaps filled in).
    """

    rhythm: Rhythm
    transform: NDArray[np.str_]
    centre: Array
    spread: Array
    ceiling: Array
    floor: Array
    recall: Array
    forget: Array
    lag_weights: Array
    feature_weights: Array
    intercept: Array
    noise_scale: Array
    weight: Array
    values: Array
    errors: Array
    residuals: Array
    fitted: Array


def forward(transform: str, values: Array) -> Array:
    """f(y) of a transform by name."""
    match transform:
        case "root":
            return np.sqrt(values)
        case "log":
            return np.log(values)
    return values


def fit_anchors(
    y: Array, observed: NDArray[np.bool_], features: Array, rhythm: Rhythm, grid: AnchorGrid, until: int | None = None
) -> Anchors:
    """Ensemble for y [time] (gaps filled where not `observed`) with features [time, F] known in advance.

    Only what comes before `until` is learned from; later residuals are those of a forecaster who had not seen them.
    """
    allowed = [name for name in grid.transforms if _allowed(name, y)] or ["identity"]
    fits = [_fit_transform(name, y, observed, features, rhythm, grid, until or len(y)) for name in allowed]
    scores = np.concatenate([fit["score"] for fit in fits])
    chosen = np.argsort(-scores, kind="stable")[: grid.max_members]
    weight = np.exp((scores[chosen] - scores[chosen[0]]) / grid.temperature)
    weight /= weight.sum()
    merged = {key: np.concatenate([fit[key] for fit in fits])[chosen] for key in fits[0] if key != "score"}
    return Anchors(rhythm=rhythm, weight=weight, **merged)


@dataclass(frozen=True)
class Smoother:
    """Exponential smoothing as a filter: differences at lag 1 and m if asked, moving averages θ and Θ with them."""

    differences: tuple[bool, bool]
    theta: float
    season_theta: float

    def recall(self) -> tuple[float, float, float]:
        """Weights of z[t−1], z[t−m], z[t−m−1] in the next value."""
        step, season = self.differences
        return float(step), float(season), -float(step and season)

    def forget(self) -> tuple[float, float, float]:
        """Weights of e[t−1], e[t−m], e[t−m−1] in the next value."""
        return -self.theta, -self.season_theta, self.theta * self.season_theta

    def errors(self, values: Array, season: int) -> Array:
        """e_t along values [time]; zero before the first value that can be predicted."""
        step, seasonal = self.differences
        changes = lfilter(_polynomial(season, self.recall(), -1.0), [1.0], values)
        changes[: step + season * seasonal] = 0.0
        return lfilter([1.0], _polynomial(season, self.forget(), 1.0), changes)


def smoothers(levels: tuple[float, ...], season: int) -> list[Smoother]:
    """Every combination of differences and moving averages that means something for this season."""
    found = []
    for step in (False, True):
        for seasonal in (False, True) if season > 1 else (False,):
            for theta in levels if step else (0.0,):
                found += [Smoother((step, seasonal), theta, other) for other in (levels if seasonal else (0.0,))]
    return found


def _polynomial(season: int, weights: tuple[float, float, float], sign: float) -> Array:
    """1 + sign · Σ weight · B^lag for the lags 1, m and m + 1."""
    polynomial = np.zeros(season + 2)
    polynomial[0] = 1.0
    for lag, weight in zip((1, season, season + 1), weights, strict=True):
        polynomial[lag] += sign * weight
    return polynomial


def _allowed(transform: str, y: Array) -> bool:
    return transform == "identity" or bool((y > 0).all() if transform == "log" else (y >= 0).all())


def _fit_transform(
    name: str, y: Array, observed: NDArray[np.bool_], features: Array, rhythm: Rhythm, grid: AnchorGrid, until: int
) -> dict[str, NDArray]:
    """All members of one transform, as arrays with one row each."""
    raw = forward(name, y)
    centre, spread = raw[:until].mean(), raw[:until].std() + 1e-9
    z = (raw - centre) / spread
    # a lag beyond a third of the series would cost more rows than it is worth
    lags = [lag for lag in rhythm.lags if lag < max(until / 3, 2)]
    first = max(lags[-1], rhythm.season + 1)
    later = np.arange(first, len(y))[observed[first:]]
    rows = later[later < until]
    inputs = np.concatenate([np.stack([z[later - lag] for lag in lags], axis=1), features[later]], axis=1)
    middle = inputs[: len(rows)].mean(axis=0)
    inputs = np.concatenate([inputs - middle, np.ones((len(later), 1))], axis=1)
    left, singular, right = np.linalg.svd(inputs[: len(rows)], full_matrices=False)

    filters = smoothers(grid.smoothings, rhythm.season)
    errors = np.stack([smoother.errors(z, rhythm.season) for smoother in filters])
    targets = errors[:, rows].T
    projected = left.T @ targets
    score, coefficients, residuals = [], [], []
    for penalty in grid.penalties:
        shrink = singular**2 / (singular**2 + penalty)
        leverage = np.minimum((left**2 * shrink).sum(axis=1), MAX_LEVERAGE)
        left_out = (targets - left @ (shrink[:, None] * projected)) / (1 - leverage)[:, None]
        residuals.append(left_out.T)
        # w = V diag(shrink/s) U'e, with nothing in directions that the data do not span
        gain = np.divide(shrink, singular, out=np.zeros_like(shrink), where=singular > 1e-12)
        coefficients.append((right.T @ (gain[:, None] * projected)).T)
        deviation = np.maximum(left_out.std(axis=0), 1e-9)
        score.append(-len(rows) * np.log(deviation * spread) + _log_jacobian(name, y[rows]))
    w, left_out = np.concatenate(coefficients), np.concatenate(residuals)
    left_out -= left_out.mean(axis=1, keepdims=True)
    fresh = np.tile(errors[:, later[len(rows) :]], (len(grid.penalties), 1)) - w @ inputs[len(rows) :].T
    scale = np.maximum(left_out.std(axis=1), 1e-9)
    members = len(w)
    lag_weights = np.zeros((members, len(rhythm.lags)))
    lag_weights[:, : len(lags)] = w[:, : len(lags)]
    repeat = len(grid.penalties)
    all_residuals = np.full((members, len(y)), np.nan)
    all_residuals[:, later] = np.concatenate([left_out, fresh], axis=1) / scale[:, None]
    return {
        "score": np.concatenate(score),
        "transform": np.full(members, name),
        "centre": np.full(members, centre),
        "spread": np.full(members, spread),
        "ceiling": np.full(members, z[:until].max() + 3.0 if name == "log" else np.inf),
        "floor": np.full(members, -centre / spread if name == "root" else -np.inf),
        "recall": np.tile([smoother.recall() for smoother in filters], (repeat, 1)),
        "forget": np.tile([smoother.forget() for smoother in filters], (repeat, 1)),
        "lag_weights": lag_weights,
        "feature_weights": w[:, len(lags) : -1],
        "intercept": w[:, -1] - w[:, :-1] @ middle,
        "noise_scale": scale,
        "values": np.tile(z, (members, 1)),
        "errors": np.tile(errors, (repeat, 1)),
        "residuals": all_residuals,
        "fitted": z - all_residuals * scale[:, None],
    }


def _log_jacobian(name: str, y: Array) -> float:
    """Σ log |f'(y)|, which makes likelihoods of different transforms comparable."""
    match name:
        case "root":
            # a zero would claim infinite density; it counts like a hundredth of the mean
            return float(-np.log(2 * np.sqrt(np.maximum(y, 0.01 * y.mean() + 1e-12))).sum())
        case "log":
            return float(-np.log(y).sum())
    return 0.0
