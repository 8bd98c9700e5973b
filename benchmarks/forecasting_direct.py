"""Selection of the share of paths that take the quantiles of direct networks, on blocks before the final ones.

python -m benchmarks.forecasting_direct

One fit per series; at every origin the same paths are pooled with each share in turn. Origins are a horizon apart: up
to ten before the final block of each of the seven series, up to seven at the end of each of the group "development".
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.forecasting import table_of
from stochflow.forecasting import StochflowForecaster
from stochflow.forecasting.data.datasets import SERIES
from stochflow.forecasting.evaluation.backtest import Case, block, cases_of, origins
from stochflow.forecasting.evaluation.baselines import RidgeAR
from stochflow.forecasting.evaluation.scoring import LEVELS, distribution_scores

RESULTS = Path("benchmarks/results/forecasting_direct.csv")
SHARES = (0.0, 0.15, 0.2, 0.25, 0.3333, 0.5)
REFERENCE = "RidgeAR"


def places(case: Case) -> list[int]:
    """Every other of up to twenty origins before the final block, or of fourteen at the end."""
    step = case.horizon // 2
    if SERIES[case.name].group == "seven":
        return origins(len(case.y), case.horizon, 20, step, before=block(case, "final")[0])[::2]
    return origins(len(case.y), case.horizon, 14, step)[::2]


def scores(case: Case) -> pd.DataFrame:
    """A row per origin and share: CRPS and coverages."""
    forecaster, rows = StochflowForecaster(case.freq, case.horizon), []
    config = forecaster.config
    for number, origin in enumerate(places(case)):
        past, truth = case.before(origin), case.y[origin : origin + case.horizon]
        frame = pd.DataFrame({"unique_id": case.name, "ds": past.times, "y": past.y})
        forecaster.config = config
        forecaster = forecaster.update(frame) if number else forecaster.fit(frame)
        ridge = RidgeAR(torch.Generator().manual_seed(0))
        answers = {REFERENCE: ridge.quantiles(past.filled, case.seasonality, case.horizon, LEVELS, past.observed)}
        for share in SHARES:
            forecaster.config = config.model_copy(update={"direct_share": share})
            answers[f"share {share:g}"] = forecaster.predict(quantiles=LEVELS).filter(like="-q-").to_numpy().T
        for method, quantiles in answers.items():
            found = distribution_scores(quantiles, LEVELS, truth)
            rows.append({"series": case.name, "method": method, "origin": origin, **found})
    return pd.DataFrame(rows)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per share: CRPS over the reference's per series, their geometric mean, and the error of coverage."""
    mean = frame.groupby(["method", "series"], sort=False)[["crps", "covered_80"]].mean()
    ratios = mean["crps"].unstack()
    ratios = ratios / ratios.loc[REFERENCE]
    error = (mean["covered_80"] - 0.8).abs().groupby("method").mean()
    return ratios.assign(geometric_mean=np.exp(np.log(ratios).mean(axis=1)), coverage_error=error)


def main() -> None:
    torch.set_num_threads(1)
    frame = pd.DataFrame()
    cases = [case for group in ("seven", "development") for case in cases_of(group)]
    for case in track(cases, description="shares", console=Console(stderr=True)):
        frame = pd.concat([frame, scores(case)], ignore_index=True)
        frame.to_csv(RESULTS, index=False)  # what is done stays, whatever happens later
    group = frame["series"].map(lambda name: SERIES[name].group)
    with RESULTS.with_suffix(".txt").open("w", encoding="utf-8") as file:
        for name, part in frame.groupby(group, sort=False):
            table = table_of(summary(part), f"CRPS relative to {REFERENCE}, {name}, seed 0")
            Console(file=file, width=200).print(table)
            Console(width=200).print(table)


if __name__ == "__main__":
    main()
