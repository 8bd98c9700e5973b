"""What a second worker brings: eight equal runs with --jobs 1 and with --jobs 2, alternating, on the same machine.

python -m benchmarks.compare_speed
"""

import argparse
import tempfile
import time
from pathlib import Path

import pandas as pd

import stochflow
from benchmarks.sweep import RESULTS, publish

NUM_RUNS = 8


def seconds(jobs: int, trajectories: int) -> float:
    """Wall time of a comparison of equal runs, with its start and its tables."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = stochflow.compare(
            methods=["sgfn-kl-trajectory"],
            noise=[0.25],
            seeds=NUM_RUNS,
            trajectories=trajectories,
            jobs=jobs,
            out=Path(folder) / "sweep",
        )
        assert not found.missing
        return time.perf_counter() - started


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--trajectories", type=int, default=16_000)
    given = options.parse_args()
    rows = []
    for number in range(given.rounds):
        # side by side and in turns: what else the machine does meets both alike
        order = (1, 2) if number % 2 == 0 else (2, 1)
        found = {jobs: seconds(jobs, given.trajectories) for jobs in order}
        rows.append({"round": number, "jobs_1": found[1], "jobs_2": found[2], "ratio": found[1] / found[2]})
        print("  ".join(f"{name} {value:.2f}" for name, value in rows[-1].items()), flush=True)
    frame = pd.DataFrame(rows)
    RESULTS.mkdir(exist_ok=True)
    frame.to_csv(RESULTS / "compare_speed.csv", index=False)
    title = (
        f"{NUM_RUNS} runs of sgfn-kl-trajectory, {given.trajectories:,} trajectories each, wall seconds; "
        f"--jobs 2 is {frame['ratio'].median():.2f} times as fast (median of {given.rounds} rounds)"
    )
    publish(frame, "compare_speed", title)


if __name__ == "__main__":
    main()
