"""Regret on the measured tables.

    python -m benchmarks.tasks                                           # an hour on two cores
    python -m benchmarks.tasks --parts landscapes --trajectories 2000 --seeds 1 --out runs/smoke --results runs/smoke

factors: SGFN-KL on the twelve transcription factors; landscapes: three methods on `dmsc` and `gb1`. Runs are those of
`stochflow compare`: the same command again goes on where it stopped. Every run becomes a row of `tasks_<part>.csv`, and
the medians are printed as a table in Markdown.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks.sweep import RESULTS
from stochflow.core.files import write_atomically
from stochflow.environments.registry import FACTORS
from stochflow.environments.sequences.tfbind8 import task_name
from stochflow.experiments.sweep.compare import compare


class Part(NamedTuple):
    """One comparison and the columns that its table shows, with the number of digits."""

    tasks: list[str]
    methods: list[str]
    noise: float
    columns: dict[str, int]
    trajectories: int = 32_000


_EXACT = {"regret": 4, "min_kl": 5, "tv": 3}
PARTS = {
    "factors": Part([task_name(factor) for factor in FACTORS], ["sgfn-kl"], 0.25, _EXACT),
    "landscapes": Part(["dmsc", "gb1"], ["sgfn-kl", "sgfn-db", "edb"], 0.25, _EXACT),
}


def measure(part: Part, out: Path, trajectories: int | None, seeds: int, jobs: int | None) -> pd.DataFrame:
    """One row per run."""
    found = compare(
        part.tasks,
        methods=part.methods,
        noise=[part.noise],
        seeds=seeds,
        trajectories=trajectories or part.trajectories,
        jobs=jobs,
        out=out,
    )
    labels = ["task", "method", "noise", "seed", "trajectories", "oracle_calls"]
    return found.frame[[*labels, *part.columns, "cpu_seconds", "status"]]


def markdown(rows: pd.DataFrame, digits: dict[str, int]) -> str:
    """Medians over seeds."""
    finished = rows[rows["status"] == "finished"]
    digits = digits | {"cpu_seconds": 0}
    medians = finished.groupby(["task", "method"], sort=False)[list(digits)].median()
    lines = ["| task | method | " + " | ".join(digits) + " |", "|---|---|" + "---|" * len(digits)]
    for labels, row in medians.iterrows():
        numbers = [f"{row[name]:.{places}f}" for name, places in digits.items()]
        lines.append(f"| {' | '.join([*labels, *numbers])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--trajectories", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in arguments.parts:
        part = PARTS[name]
        rows = measure(part, arguments.out / name, arguments.trajectories, arguments.seeds, arguments.jobs)
        write_atomically(arguments.results / f"tasks_{name}.csv", rows.to_csv(index=False))
        print(markdown(rows, part.columns), flush=True)


if __name__ == "__main__":
    main()
