"""Where the time of a training step goes: stages by cProfile, then operations by torch.profiler.

python -m benchmarks.profile_step [--method sgfn-kl]
"""

import argparse
import cProfile
import pstats

import torch
from torch.profiler import ProfilerActivity, profile

from stochflow.api import resolve_config
from stochflow.experiment import build
from stochflow.trainer import Trainer

# functions whose cumulative time makes up a step: (file, function) → what it is
STAGES = {
    ("trainer.py", "collect"): "sample, score and store a batch",
    ("trainer.py", "fit"): "fit the dynamics model",
    ("planned.py", "replan"): "fit the reward model and plan",
    ("planned.py", "terms"): "objective: draw states, forward pass, loss",
    ("detailed_balance.py", "terms"): "objective: forward pass, loss",
    ("divergence.py", "terms"): "objective: forward pass, loss",
    ("trainer.py", "step"): "backward pass, clip, Adam (both models)",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--method", default="sgfn-kl")
    options.add_argument("--steps", type=int, default=20)
    given = options.parse_args()
    torch.set_num_threads(1)
    config = resolve_config([{"method": given.method, "budget": {"steps": 3 * given.steps}}])
    trainer = build(config).trainer
    take_steps(trainer, given.steps)
    stages = cProfile.Profile()
    stages.runcall(take_steps, trainer, given.steps)
    print_stages(pstats.Stats(stages), given.steps, config.optimiser.batch_size)
    with profile(activities=[ProfilerActivity.CPU]) as operations:
        take_steps(trainer, given.steps)
    print(operations.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=36))


def take_steps(trainer: Trainer, num: int) -> None:
    for _ in range(num):
        trainer.train_step()


def print_stages(stats: pstats.Stats, num_steps: int, batch_size: int) -> None:
    """Share of each stage in the time of `train_step`, and the number of Python calls per trajectory."""
    table = {(file.rsplit("/", 1)[-1], name): entry for (file, _, name), entry in stats.stats.items()}  # type: ignore[attr-defined]  # stubs
    whole = table["trainer.py", "train_step"][3]
    calls = sum(entry[0] for entry in table.values())
    print(f"{1e3 * whole / num_steps:.1f} ms per step of {batch_size} trajectories")
    print(f"{calls / num_steps / batch_size:.1f} Python calls per trajectory (a loop over tokens would need hundreds)")
    for key, meaning in STAGES.items():
        if key in table:
            print(f"  {table[key][3] / whole:6.1%}  {meaning}")


if __name__ == "__main__":
    main()
