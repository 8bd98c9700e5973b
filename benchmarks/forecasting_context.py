"""Where the transformer's context pays: long series, several series with features, irregular gaps.

python -m benchmarks.forecasting_context

Each case is forecast from twelve rolling origins with the linear ensemble alone, with the network on the state, and
with the network that also reads a context. All values are measured; the irregular case leaves out half of the days at
random. The final blocks of `benchmarks.forecasting` are cut off first, so that settings may be selected here.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.forecasting import places
from stochflow.forecasting import Columns, StochflowForecaster, load_series
from stochflow.forecasting.data.datasets import SERIES
from stochflow.forecasting.evaluation.backtest import case_of
from stochflow.forecasting.evaluation.scoring import LEVELS, crps

RESULTS = Path("benchmarks/results/forecasting_context.csv")
NETWORKS = ("none", "mlp", "transformer")
NUM_ORIGINS = 12
# hours between two origins, so that they fall on all times of day
HOURS_APART = 85


class Case(NamedTuple):
    frame: pd.DataFrame
    freq: str | None
    horizon: int
    step: int
    columns: Columns


def early(name: str) -> pd.DataFrame:
    """A series without what comes after the first origin of its final block."""
    frame, case = load_series(name), case_of(name)
    group = SERIES[name].group
    return frame[frame["ds"] < case.times[places(case, group, "final")[0]]]


def long_series() -> Case:
    return Case(early("sf_traffic"), "h", 24, HOURS_APART, Columns())


def several_with_features() -> Case:
    """Both farms, each with the other's output as a feature that is known only up to now."""
    solar, wind = early("solar"), early("wind")
    both = [solar.merge(wind[["ds", "y"]].rename(columns={"y": "other"}), on="ds")]
    both.append(wind.merge(solar[["ds", "y"]].rename(columns={"y": "other"}), on="ds"))
    return Case(pd.concat(both, ignore_index=True), "h", 24, HOURS_APART, Columns(past=("other",)))


def irregular() -> Case:
    frame = early("seattle_temp_max")
    kept = np.random.default_rng(0).random(len(frame)) < 0.5
    return Case(frame[kept], None, 12, 6, Columns())


CASES: dict[str, Callable[[], Case]] = {
    "long: sf_traffic": long_series,
    "several, with features: solar and wind": several_with_features,
    "irregular: half of seattle_temp_max": irregular,
}


def score(case: Case, network: str, seed: int) -> dict[str, object]:
    """Mean CRPS per series, 80 % coverage and CPU seconds of one network on one case."""
    begun = time.process_time()
    forecaster = StochflowForecaster(case.freq, case.horizon, columns=case.columns, network=network, seed=seed)
    found = forecaster.cross_validation(case.frame, n_windows=NUM_ORIGINS, step_size=case.step, quantiles=LEVELS)
    quantiles, truth = found.filter(like="-q-").to_numpy().T, found["y"].to_numpy()
    inside = (truth >= quantiles[9]) & (truth <= quantiles[89])
    scores = pd.Series(crps(quantiles, LEVELS, truth)).groupby(found["unique_id"]).mean()
    measured = {"coverage": inside[np.isfinite(truth)].mean(), "cpu_seconds": time.process_time() - begun}
    return {"network": network, **measured, **scores.to_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    table = Table("case", "network", "CRPS relative to the linear ensemble", "coverage of 80 %", "seconds")
    for name, make in CASES.items():
        case = make()
        results = pd.DataFrame([score(case, network, given.seed) for network in NETWORKS])
        series = [column for column in results if column not in ("network", "coverage", "cpu_seconds")]
        ratios = np.exp(np.log(results[series] / results[series].iloc[0]).mean(axis=1))
        for (_, row), ratio in zip(results.iterrows(), ratios, strict=True):
            rows.append({"case": name, "relative_crps": ratio, "seed": given.seed, **row})
            table.add_row(name, row["network"], f"{ratio:.3f}", f"{row['coverage']:.2f}", f"{row['cpu_seconds']:.0f}")
        pd.DataFrame(rows).to_csv(RESULTS, index=False)  # what is done stays, whatever happens later
    with RESULTS.with_suffix(".txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=120).print(table)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
