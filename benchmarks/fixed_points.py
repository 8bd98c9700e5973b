"""Where expected balance leads: total variation of trained policies to R/Z and to EDB's exact solution (TFBind8).

python -m benchmarks.fixed_points                     # an hour on two cores
python -m benchmarks.fixed_points --trajectories 8000
"""

import argparse
import multiprocessing
import time
from typing import Any, NamedTuple

import pandas as pd
import torch

from benchmarks.sweep import RESULTS, publish
from stochflow.config.noise import parse_noise
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.truth.fixed_points import expected_balance
from stochflow.truth.prefix_tree import tv_to_target
from stochflow.truth.truth import SequenceTruth


class Case(NamedTuple):
    """One training run."""

    method: str
    noise: float
    trajectories: int
    seed: int


def run_case(case: Case) -> dict[str, Any]:
    """Train, then compare what the policy samples with the target and with the solution of expected balance."""
    torch.set_num_threads(1)
    settings = {
        "method": case.method,
        "channel": parse_noise(case.noise),
        "budget": {"trajectories": case.trajectories},
        "seed": case.seed,
    }
    started = time.process_time()
    experiment = build(resolve_config([settings]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    truth = experiment.truth
    assert isinstance(truth, SequenceTruth)
    channel, length = truth.environment.channel, truth.environment.max_steps
    solution = expected_balance(truth.log_rewards, channel, length).log_probs
    log_probs = truth.log_probs(experiment.policy)
    return case._asdict() | {
        "tv_to_target": tv_to_target(log_probs, truth.log_rewards),
        "tv_to_solution": tv_to_target(log_probs, solution),
        "tv_of_solution": tv_to_target(solution, truth.log_rewards),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--methods", nargs="+", default=["edb", "sgfn-db"])
    options.add_argument("--noise", nargs="+", type=float, default=[0.25, 0.5])
    options.add_argument("--trajectories", nargs="+", type=int, default=[48_000, 256_000])
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    cases = [
        Case(method, noise, trajectories, seed)
        for method in given.methods
        for noise in given.noise
        for trajectories in given.trajectories
        for seed in range(given.seeds)
    ]
    rows = []
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=1) as pool:
        for row in pool.imap(run_case, cases):
            rows.append(row)
            print(f"{len(rows)}/{len(cases)}  {row}", flush=True)
    frame = pd.DataFrame(rows)
    RESULTS.mkdir(exist_ok=True)
    frame.to_csv(RESULTS / "fixed_points.csv", index=False)
    publish(frame, "fixed_points", "TFBind8 SIX6, β = 3: total variation to R/Z, to EDB's exact solution, and its own")


if __name__ == "__main__":
    main()
