"""Selection of the share of ridge paths on hourly series, on origins before the last 142 days.

python -m benchmarks.forecasting_hedge

One network per series; at each of twenty origins the linear models, the share and the scale are fitted anew, with and
without the ridge regression. Two minutes of CPU per seed and series.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.forecasting import places, table_of
from stochflow.forecasting import StochflowForecaster
from stochflow.forecasting.evaluation.backtest import Case, cases_of, origins, summary
from stochflow.forecasting.evaluation.scoring import LEVELS, distribution_scores

RESULTS = Path("benchmarks/results/forecasting_hedge.csv")
NUM_ORIGINS, HOURS_APART = 20, 85
SHARES = (0.0, 0.3)
REFERENCE = "share 0"


def scores(case: Case, seed: int) -> pd.DataFrame:
    """A row per origin and largest share: the selected share and scale factor, CRPS and coverages."""
    forecaster, rows = StochflowForecaster(case.freq, case.horizon, seed=seed), []
    config = forecaster.config
    before = places(case, "hourly", "final")[0]
    for number, origin in enumerate(origins(len(case.y), case.horizon, NUM_ORIGINS, HOURS_APART, before)):
        past, truth = case.before(origin), case.y[origin : origin + case.horizon]
        frame = pd.DataFrame({"unique_id": case.name, "ds": past.times, "y": past.y})
        if number == 0:
            forecaster.fit(frame)
        for share in SHARES:
            forecaster.config = config.model_copy(update={"ridge_share": share})
            begun = time.perf_counter()
            quantiles = forecaster.update(frame).predict(quantiles=LEVELS).filter(like="-q-").to_numpy().T
            seconds = time.perf_counter() - begun
            found = distribution_scores(quantiles, LEVELS, truth)
            asked = {"hedge": forecaster.hedge[case.name], "stretch": forecaster.stretch[case.name]}
            labels = {"series": case.name, "method": f"share {share:g}", "seed": seed, "origin": origin}
            rows.append({**labels, **asked, **found, "seconds_fit_predict": seconds})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    torch.set_num_threads(1)
    frame = pd.DataFrame()
    runs = [(seed, case) for seed in given.seeds for case in cases_of("hourly")]
    for seed, case in track(runs, description="hedges", console=Console(stderr=True)):
        frame = pd.concat([frame, scores(case, seed)], ignore_index=True)
        frame.to_csv(RESULTS, index=False)  # what is done stays, whatever happens later
    with RESULTS.with_suffix(".txt").open("w", encoding="utf-8") as file:
        for seed, part in frame.groupby("seed"):
            table = table_of(summary(part, REFERENCE), f"CRPS relative to none, seed {seed}")
            Console(file=file, width=140).print(table)
            Console(width=140).print(table)


if __name__ == "__main__":
    main()
