"""Objectives of the forecasting network against each other, on blocks before the final ones.

python -m benchmarks.forecasting_objectives

The same network on the state, with the same updates, is trained for each; every other setting is the default except for
smaller batches and fewer bins, which make the whole comparison a matter of minutes.
"""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.forecasting import REFERENCE, Stochflow, seeded, table_of
from stochflow.forecasting.evaluation.backtest import backtest, block, case_of, summary
from stochflow.forecasting.evaluation.baselines import RidgeAR, StatsForecast

RESULTS = Path("benchmarks/results/forecasting_objectives.csv")
SERIES = ("co2", "seattle_temp_max", "seattle_precipitation")
SMALL: dict[str, Any] = {"network": "mlp", "batch_size": 128, "num_bins": 65, "max_steps": 400}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "forward KL": {},
    "SGFN-DB": {"objective": "sgfn-db"},
    "SGFN-KL": {"objective": "sgfn-kl"},
    "forward KL + MSE": {"point_loss": "mse"},
    "forward KL + MAE": {"point_loss": "mae"},
    "forward KL + entropy ratio": {"entropy_weight": 0.01},
}


def scores(name: str, seed: int) -> pd.DataFrame:
    """Scores of every objective on one series, ten origins of the block before its final one."""
    case = case_of(name)
    methods: dict[str, Any] = {REFERENCE: StatsForecast(REFERENCE), "RidgeAR": RidgeAR(seeded(seed))}
    # the linear ensemble, by the name that it has in benchmarks/results
    methods["anchors alone"] = Stochflow(seed, network="none")
    methods |= {label: Stochflow(seed, **SMALL, **changed) for label, changed in OBJECTIVES.items()}
    return backtest(case, methods, block(case, "earlier"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="CSV of all scores; the table goes beside it as .txt")
    given = parser.parse_args()
    torch.set_num_threads(1)
    frame = pd.DataFrame()
    for name in track(SERIES, description="objectives", console=Console(stderr=True)):
        frame = pd.concat([frame, scores(name, given.seed)], ignore_index=True)
        frame.to_csv(given.out, index=False)  # what is done stays, whatever happens later
    table = table_of(summary(frame, REFERENCE), f"CRPS relative to {REFERENCE}, earlier blocks, seed {given.seed}")
    with given.out.with_suffix(".txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=140).print(table)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
