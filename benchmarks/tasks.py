"""Regret on the measured tables: SGFN-KL on twelve factors, and three methods on `dmsc` and `gb1`.

    python -m benchmarks.tasks                                           # hours
    python -m benchmarks.tasks --trajectories 2000 --seeds 1 --out runs/smoke

Runs are those of `stochflow compare`: the same command again goes on where it stopped. Every run becomes a row of
`tasks.csv`, and the medians are printed as a table in Markdown.
"""

import argparse
from pathlib import Path

import pandas as pd

from stochflow.files import write_atomically
from stochflow.sweeps.compare import compare
from stochflow.tasks.tfbind8 import FACTORS, task_name

NOISE = 0.25
PARTS = {
    "factors": ([task_name(factor) for factor in FACTORS], ["sgfn-kl"]),
    "landscapes": (["dmsc", "gb1"], ["sgfn-kl", "sgfn-db", "edb"]),
}
COLUMNS = ["task", "method", "noise", "seed", "trajectories", "regret", "kl", "min_kl", "tv", "cpu_seconds", "status"]


def measure(out: Path, trajectories: int, seeds: int, jobs: int | None) -> pd.DataFrame:
    """One row per run."""
    frames = []
    for part, (tasks, methods) in PARTS.items():
        found = compare(
            tasks,
            methods=methods,
            noise=[NOISE],
            seeds=seeds,
            trajectories=trajectories,
            jobs=jobs,
            out=out / part,
        )
        frames.append(found.frame)
    rows = pd.concat(frames, ignore_index=True)
    return rows[[name for name in COLUMNS if name in rows]]


def markdown(rows: pd.DataFrame) -> str:
    """Medians over seeds."""
    finished = rows[rows["status"] == "finished"]
    medians = finished.groupby(["task", "method"], sort=False)[["regret", "min_kl", "tv", "cpu_seconds"]].median()
    lines = ["| task | method | regret | smallest KL | TV | CPU seconds |", "|---|---|---|---|---|---|"]
    for (task, method), row in medians.iterrows():
        numbers = f"{row['regret']:.4f} | {row['min_kl']:.5f} | {row['tv']:.3f} | {row['cpu_seconds']:.0f}"
        lines.append(f"| {task} | {method} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=32_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    arguments = parser.parse_args()
    rows = measure(arguments.out, arguments.trajectories, arguments.seeds, arguments.jobs)
    write_atomically(arguments.out / "tasks.csv", rows.to_csv(index=False))
    print(markdown(rows))


if __name__ == "__main__":
    main()
