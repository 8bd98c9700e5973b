"""How far below AutoETS the past alone could bring wind's last 142 days: models that have seen those very days.

python -m benchmarks.forecasting_wind_bound

A bound, not a forecast: it chooses nothing, and nobody could have made these forecasts. The models say all 24 steps at
once from the last week of wind, the last day of sun and the hour of the day. They learn from what came after an origin
as well as before: from the last block with the origin itself ("seen"), from the last block, or from the whole year
without what starts less than two days from it. Twelve minutes of CPU.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.ensemble import RandomForestRegressor

from benchmarks.forecasting import places
from stochflow.forecasting.data.series import Array
from stochflow.forecasting.evaluation.backtest import case_of
from stochflow.forecasting.evaluation.scoring import LEVELS, distribution_scores
from stochflow.forecasting.model.ridge_ar import main_season
from stochflow.forecasting.model.seasonality import seasonality_of

RESULTS = Path("benchmarks/results/forecasting_wind_bound.csv")
RIVALS = Path("benchmarks/results/forecasting_hourly.csv")
DAY, WEEK = 24, 168
# hours around an origin that are not learned from
LEFT_OUT = 48
# errors at the most similar predictions that stand for a step's distribution
NUM_NEAREST = 200
PENALTIES = (30.0, 300.0, 3000.0)
LEAVES = (10, 40)
NUM_TREES = 60

Index = NDArray[np.intp]
# inputs [rows, D] and roots [rows, 24] to learn from, inputs of one origin [D] → roots at LEVELS, [99, 24]
Model = Callable[[Array, Array, Array], Array]


def ridge(penalty: float) -> Model:
    """One regression per step; its distribution are the errors at the most similar predictions."""

    def quantiles(inputs: Array, roots: Array, now: Array) -> Array:
        centre, spread, middle = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9, roots.mean(axis=0)
        scaled = (inputs - centre) / spread
        gram = scaled.T @ scaled + penalty * np.eye(scaled.shape[1])
        weights = np.linalg.solve(gram, scaled.T @ (roots - middle))
        fitted, expected = middle + scaled @ weights, middle + (now - centre) / spread @ weights
        nearest = np.abs(fitted - expected).argsort(axis=0)[:NUM_NEAREST]
        return expected + np.quantile(np.take_along_axis(roots - fitted, nearest, axis=0), LEVELS, axis=0)

    return quantiles


def forest(leaf: int) -> Model:
    """Trees that split for all steps at once; past futures count as often as they share the origin's leaf."""

    def quantiles(inputs: Array, roots: Array, now: Array) -> Array:
        trees = RandomForestRegressor(NUM_TREES, min_samples_leaf=leaf, max_features=0.33, random_state=0)
        shared = trees.fit(inputs, roots).apply(inputs) == trees.apply(now[None])
        weight = (shared / shared.sum(axis=0)).mean(axis=1)
        order = roots.argsort(axis=0)
        reached = weight[order].cumsum(axis=0) - weight[order] / 2
        rising = np.take_along_axis(roots, order, axis=0)
        return np.stack([np.interp(LEVELS, *both) for both in zip(reached.T, rising.T, strict=True)], axis=1)

    return quantiles


MODELS = {f"ridge, penalty {penalty:g}": ridge(penalty) for penalty in PENALTIES} | {
    f"forest, leaves of {leaf}": forest(leaf) for leaf in LEAVES
}


def inputs_at(origins: Index) -> Array:
    """What is known before each origin, [origins, D]."""
    wind = case_of("wind")
    lags = [*range(1, 2 * DAY + 1), *range(3 * DAY, WEEK + 1, DAY)]
    columns = [roots_of(wind.filled)[origins[:, None] - lags]]
    # the only other series of these days; its times are the same
    columns.append(case_of("solar").filled[origins[:, None] - np.arange(1, DAY + 1)])
    waves = main_season(seasonality_of("h")).fourier_terms(origins.astype(float))
    return np.concatenate([*columns, waves], axis=1)


def roots_of(y: Array) -> Array:
    """Roots of what lies above the least value, which is slightly below zero when the farm stands still."""
    return np.sqrt(y - y.min())


def learned_from(kind: str, origins: Index, origin: int, first: int) -> NDArray[np.bool_]:
    """Which origins a model of this kind may learn from, [origins]."""
    near = np.abs(origins - origin) < LEFT_OUT
    return {"seen": origins >= first, "last block": (origins >= first) & ~near, "whole year": ~near}[kind]


def scores() -> Iterator[dict[str, object]]:
    """A row per model, kind of learning and origin: CRPS and coverages."""
    case = case_of("wind")
    least, tested = case.filled.min(), places(case, "hourly", "final")
    origins = np.arange(WEEK, len(case.y) - case.horizon + 1)
    inputs, roots = inputs_at(origins), roots_of(case.filled)[origins[:, None] + np.arange(case.horizon)]
    for origin in track(tested, description="origins", console=Console(stderr=True)):
        now, truth = inputs[origins == origin][0], case.y[origin : origin + case.horizon]
        for kind in ("seen", "last block", "whole year"):
            rows = learned_from(kind, origins, origin, tested[0])
            for name, model in MODELS.items():
                quantiles = np.maximum(model(inputs[rows], roots[rows], now), 0.0) ** 2 + least
                found = distribution_scores(quantiles, LEVELS, truth)
                yield {"learned_from": kind, "model": name, "origin": origin, **found}


def main() -> None:
    frame = pd.DataFrame(scores())
    frame.to_csv(RESULTS, index=False)
    rivals = pd.read_csv(RIVALS).query("series == 'wind'").groupby("method")["crps"].mean()
    mean = frame.groupby(["learned_from", "model"], sort=False)[["crps", "covered_80"]].mean()
    table = Table("learned from", "model", "CRPS of AutoETS", "of SeasonalNaive", "coverage of 80 %")
    for (kind, model), row in mean.iterrows():
        ratios = [f"{row['crps'] / rivals[name]:.3f}" for name in ("AutoETS", "SeasonalNaive")]
        table.add_row(kind, model, *ratios, f"{row['covered_80']:.3f}")
    with RESULTS.with_suffix(".txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=120).print(table)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
