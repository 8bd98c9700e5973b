"""Probabilistic forecasts of real series: every method from the same origins, in one process, taking turns.

python -m benchmarks.forecasting --group seven
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from stochflow.core.errors import ConfigError, StochflowError
from stochflow.forecasting.data.datasets import GROUPS
from stochflow.forecasting.data.series import Array, Mask
from stochflow.forecasting.evaluation.backtest import Case, backtest, block, cases_of, summary
from stochflow.forecasting.evaluation.baselines import Baseline, FeedForward, RidgeAR, StatsForecast
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.model.seasonality import Seasonality

REFERENCE = "SeasonalNaive"
RESULTS = Path("benchmarks/results")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Stochflow:
    """The public forecaster: the network is trained before a series' first origin, everything else at each."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.seed, self.settings = seed, settings

    def fit(self, past: Case) -> None:
        self.case = past
        self.forecaster = StochflowForecaster(past.freq, past.horizon, seed=self.seed, **self.settings)
        self.forecaster.fit(self._frame(past.y))
        found = self.forecaster
        (stretch,), (hedge,) = found.stretch.values(), found.hedge.values()
        chosen = f"network {found.network}, gain {found.gain:.3f}, weight {found.network_weight:.2f}"
        print(f"{past.name}: {chosen}, hedge {hedge:.1f}, stretch {stretch:.2f}", file=sys.stderr)

    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        frame = self.forecaster.update(self._frame(np.where(observed, y, np.nan))).predict(horizon, quantiles=levels)
        return frame.filter(like="-q-").to_numpy().T

    def _frame(self, y: Array) -> pd.DataFrame:
        times = pd.date_range(self.case.times[0], periods=len(y), freq=self.case.freq)
        return pd.DataFrame({"unique_id": self.case.name, "ds": times, "y": y})


# Name → forecaster from a seed, made anew for every series. A method is added by one line here. "anchor" is the linear
# ensemble alone: the files in benchmarks/results know it by that name.
METHODS: dict[str, Callable[[int], Baseline]] = {
    "SeasonalNaive": lambda seed: StatsForecast("SeasonalNaive"),
    "Stochflow": Stochflow,
    "Stochflow-anchor": lambda seed: Stochflow(seed, network="none"),
    # without calibration
    "Stochflow-anchor-raw": lambda seed: Stochflow(seed, network="none", calibration_origins=0),
    "Stochflow-mlp": lambda seed: Stochflow(seed, network="mlp"),
    "Stochflow-transformer": lambda seed: Stochflow(seed, network="transformer"),
    # other objectives for the same network
    "Stochflow-db": lambda seed: Stochflow(seed, network="mlp", objective="sgfn-db"),
    "Stochflow-kl": lambda seed: Stochflow(seed, network="mlp", objective="sgfn-kl"),
    "Stochflow-mse": lambda seed: Stochflow(seed, network="mlp", point_loss="mse"),
    "Stochflow-mae": lambda seed: Stochflow(seed, network="mlp", point_loss="mae"),
    "Stochflow-entropy": lambda seed: Stochflow(seed, network="mlp", entropy_weight=0.01),
    "RidgeAR": lambda seed: RidgeAR(seeded(seed)),
    # with the week's lags and waves, which matter for hours only
    "RidgeAR-week": lambda seed: RidgeAR(seeded(seed), whole_calendar=True),
    "AutoETS": lambda seed: StatsForecast("AutoETS"),
    "AutoARIMA": lambda seed: StatsForecast("AutoARIMA"),
    "AutoTheta": lambda seed: StatsForecast("AutoTheta"),
    "FeedForward": lambda seed: FeedForward(seeded(seed)),
}
# AutoARIMA takes minutes per origin with a season of 24; the week is a matter of hours
DEFAULT_METHODS = {
    group: [
        name
        for name in METHODS
        if name != ("AutoARIMA" if group == "hourly" else "RidgeAR-week") and not name.startswith("Stochflow-")
    ]
    for group in GROUPS
}


def places(case: Case, group: str, which: str) -> list[int]:
    """Ten origins half a horizon apart; hours: forty, 85 apart, so that they fall on all times of day for 142 days."""
    return block(case, which, 40, 85) if group == "hourly" else block(case, which)


def run(group: str, which: str, methods: list[str], seed: int, only: list[str] | None = None) -> Iterator[pd.DataFrame]:
    """Scores of one series after the other: a row per method and origin."""
    for name in methods:
        if name not in METHODS:
            raise ConfigError(f"unknown method '{name}'; choose from: {', '.join(METHODS)}")
    cases = [case for case in cases_of(group) if only is None or case.name in only]
    for case in track(cases, description=f"{group}, {which} block", console=Console(stderr=True)):
        yield backtest(case, {name: METHODS[name](seed) for name in methods}, places(case, group, which))


def table_of(result: pd.DataFrame, title: str) -> Table:
    """A summary as a table: ratios with the best of each column in bold, then what they come to."""
    table = Table("method", title=title)
    for column in result.columns:
        table.add_column(column.replace("_", "\n"), justify="right")
    for method, row in result.iterrows():
        cells = [f"{value:.1f}" if column == "seconds" else f"{value:.3f}" for column, value in row.items()]
        best = [value == result[column].min() and column != "seconds" for column, value in row.items()]
        table.add_row(
            str(method), *(f"[bold]{cell}[/]" if top else cell for cell, top in zip(cells, best, strict=True))
        )
    return table


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    described.add_argument("--group", choices=list(GROUPS), default="seven")
    described.add_argument("--block", choices=["final", "earlier"], default="final")
    described.add_argument("--methods", nargs="+", metavar="NAME", help=f"of: {', '.join(METHODS)}")
    described.add_argument("--series", nargs="+", metavar="NAME", help="only these of the group")
    described.add_argument("--seed", type=int, default=0)
    described.add_argument("--out", type=Path, help="CSV of all scores; the table goes beside it as .txt")
    return described


def main() -> None:
    given = parser().parse_args()
    # one core each, also for those who would take more
    torch.set_num_threads(1)
    methods = list(dict.fromkeys([REFERENCE, *(given.methods or DEFAULT_METHODS[given.group])]))
    suffix = "" if given.block == "final" else "_earlier"
    out = given.out or RESULTS / f"forecasting_{given.group}{suffix}.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame()
    try:
        for scores in run(given.group, given.block, methods, given.seed, given.series):
            frame = pd.concat([frame, scores], ignore_index=True)
            frame.to_csv(out, index=False)  # what is done stays, whatever happens later
    except StochflowError as error:
        Console(stderr=True, highlight=False).print(str(error), markup=False)
        raise SystemExit(error.exit_code) from None
    result = summary(frame, REFERENCE)
    title = f"CRPS relative to {REFERENCE}: {given.group}, {given.block} block, seed {given.seed}"
    # as wide as it needs: a cut number is worth less than a long line
    width = 40 + 16 * result.shape[1]
    with out.with_suffix(".txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=width).print(table_of(result, title))
    Console(width=width).print(table_of(result, title))


if __name__ == "__main__":
    main()
