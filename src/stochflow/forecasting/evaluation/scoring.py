"""Scores of quantile forecasts.

q is a forecast's quantiles, [L, horizon] for L rising levels, and y the truth, [horizon], NaN where it is
unknown: such steps are skipped. With `LEVELS`, the 99 percentiles, the integrals over levels are close to exact.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stochflow.core.extras import extra
from stochflow.forecasting.data.series import Array

LEVELS: Array = np.arange(1, 100) / 100
DECILES: Array = np.arange(1, 10) / 10
INTERVALS = (0.5, 0.8, 0.95)
COVERAGES = tuple(f"{kind}_{round(100 * share)}" for kind in ("covered", "pit_covered") for share in INTERVALS)
SCORES = ("crps", "wql", "mase", "mse", "mae", "smape", *COVERAGES)


def crps(q: Array, levels: Array, y: Array) -> Array:
    """2/L Σ_α pinball_α(y − q_α), which tends to ∫ (F(x) − 1{x ≥ y})² dx as the levels fill (0, 1); [horizon]."""
    return np.asarray(extra("scoringrules").crps_quantile(y, q, levels, m_axis=0, backend="numpy"))


def weighted_quantile_loss(q: Array, levels: Array, y: Array) -> float:
    """Mean over the deciles of 2 Σ_t pinball / Σ_t |y_t|; NaN when every truth is zero."""
    known = np.isfinite(y)
    deciles = at_levels(q, levels, DECILES)[:, known]
    loss = extra("scoringrules").quantile_score(y[None, known], deciles, DECILES[:, None], backend="numpy")
    size = np.abs(y[known]).sum()
    return float(2 * loss.sum() / len(DECILES) / size) if size > 0 else float("nan")


def at_levels(q: Array, levels: Array, wanted: Array) -> Array:
    """Quantiles at other levels, on lines between those given, [wanted, horizon]."""
    return np.stack([np.interp(wanted, levels, column) for column in q.T], axis=1)


def covered(q: Array, levels: Array, y: Array, share: float) -> Array:
    """1 where the truth lies inside the central interval that should hold `share` of them, its ends included."""
    low, high = at_levels(q, levels, np.array([(1 - share) / 2, (1 + share) / 2]))
    return np.where(np.isfinite(y), (y >= low) & (y <= high), np.nan)


def pit_bounds(q: Array, levels: Array, y: Array) -> tuple[Array, Array]:
    """F(y−) and F(y), [horizon] each: equal where F is continuous, apart at an atom and beyond the outermost levels."""
    below, upto = (q < y).sum(axis=0), (q <= y).sum(axis=0)
    last = len(levels) - 1
    steps = np.arange(len(y))
    left, right = np.clip(below - 1, 0, last), np.clip(below, 0, last)
    gap = q[right, steps] - q[left, steps]
    share = np.divide(y - q[left, steps], gap, out=np.zeros_like(y), where=gap > 0)
    between = levels[left] + share * (levels[right] - levels[left])
    high = np.where(upto > below, levels[np.clip(upto - 1, 0, last)], between)
    low, high = np.where(below == 0, 0.0, between), np.where(upto == len(levels), 1.0, high)
    known = np.isfinite(y)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def pit_covered(q: Array, levels: Array, y: Array, share: float) -> Array:
    """Probability that the randomised PIT lies in the central `share`; an atom counts by the part of it inside."""
    low, high = pit_bounds(q, levels, y)
    inside = np.minimum(high, (1 + share) / 2) - np.maximum(low, (1 - share) / 2)
    # a point is inside or not; rounding must not put a bound itself outside
    point = (inside >= -1e-12).astype(float)
    part = np.divide(np.maximum(inside, 0.0), high - low, out=point, where=high > low)
    return np.where(np.isfinite(y), part, np.nan)


def distribution_scores(q: Array, levels: Array, y: Array) -> dict[str, float]:
    """CRPS, weighted quantile loss and both kinds of coverage of one forecast, means over its known truths."""
    known = np.isfinite(y)
    if not known.any():
        return dict.fromkeys(("crps", "wql", *COVERAGES), float("nan"))
    q, y = q[:, known], y[known]
    measured = [kind(q, levels, y, share) for kind in (covered, pit_covered) for share in INTERVALS]
    return {
        "crps": float(crps(q, levels, y).mean()),
        "wql": weighted_quantile_loss(q, levels, y),
        **{name: float(values.mean()) for name, values in zip(COVERAGES, measured, strict=True)},
    }


def point_scores(
    medians: pd.DataFrame, means: pd.DataFrame, history: pd.DataFrame, methods: Sequence[str], season: int
) -> pd.DataFrame:
    """MSE of the mean; MAE, sMAPE (between 0 and 1) and MASE of the median, per method and origin.

    Args:
        medians, means: rows of unique_id, cutoff, ds, y and one column per method; `cutoff` is the last known `ds`.
        history: unique_id, ds, y of everything; what lies after a cutoff is not used for it.
        season: MASE is measured in mean |y[t] − y[t − season]| up to the cutoff.

    Returns:
        Rows of unique_id, cutoff, method and the four scores.
    """
    losses, methods = extra("utilsforecast.losses"), list(methods)
    medians, means = medians.dropna(subset="y"), means.dropna(subset="y")
    tables = {
        "mse": losses.mse(means, methods),
        "mae": losses.mae(medians, methods),
        "smape": losses.smape(medians, methods),
        "mase": losses.mase(medians, methods, seasonality=season, train_df=history),
    }
    keys = ["unique_id", "cutoff", "method"]
    columns = [
        table.melt(keys[:2], methods, var_name="method", value_name=name).set_index(keys)[name]
        for name, table in tables.items()
    ]
    # a constant history gives MASE nothing to measure with
    return pd.concat(columns, axis=1).replace([np.inf, -np.inf], np.nan).reset_index()
