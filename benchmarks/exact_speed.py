"""What exact evaluation costs: the sweep over all 65,536 leaves, a whole evaluation, the attainable optimum.

python -m benchmarks.exact_speed [--repeats 15] [--trajectories 32000]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from stochflow.experiments.build import build
from stochflow.experiments.launch import crossed, resolve_config
from stochflow.experiments.torch_settings import torch_threads
from stochflow.truth.prefix_tree import attainable_optimum
from stochflow.truth.truth import SequenceTruth

MODELS = {
    "2 × 256, kmers [1]": {"kmers": [1], "width": 256, "num_layers": 2},
    "2 × 256, kmers [1, 3, 5]": {"kmers": [1, 3, 5], "width": 256, "num_layers": 2},
    "2 × 128, kmers [1, 3, 5]": {"kmers": [1, 3, 5], "width": 128, "num_layers": 2},
}
RUNS = ("sgfn-kl", "sgfn-kl-trajectory", "gfn-tb")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=15)
    options.add_argument("--trajectories", type=int, default=32_000)
    given = options.parse_args()
    with torch_threads(1):
        measure(given)


def measure(given: argparse.Namespace) -> None:
    print("TFBind8, α = 0.25, one thread; CPU milliseconds, least and median")
    for name, model in MODELS.items():
        print_model(name, model, given.repeats)
    for method in RUNS:
        print_share(method, given.trajectories)


def print_model(name: str, model: dict[str, Any], repeats: int) -> None:
    experiment = build(resolve_config([{"model": model, "channel": {"noise": 0.25}}]))
    truth, policy = experiment.truth, experiment.policy
    assert isinstance(truth, SequenceTruth)
    channel, length = truth.environment.channel, truth.environment.max_steps
    with torch.no_grad():  # a head of zeros, as before training, would not be asked
        experiment.network.policy_head.weight.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    truth.evaluate(policy)  # the first call reads the table and solves the optimum
    print(f" {name}")
    report("sweep", lambda: truth.log_probs(policy), repeats)
    report("evaluation", lambda: truth.evaluate(policy), repeats)
    report("optimum", lambda: attainable_optimum(truth.log_rewards, channel, length), repeats)


def report(name: str, work: Callable[[], object], repeats: int) -> None:
    times = [1e3 * cpu_seconds(work) for _ in range(repeats)]
    print(f"  {name:<10} {min(times):7.1f} {statistics.median(times):7.1f}")


def print_share(method: str, trajectories: int) -> None:
    """CPU time of a run and of its evaluations, as often as the run asks for them and before the first step."""
    settings = {"method": method, "channel": {"noise": 0.25}, "budget": {"trajectories": trajectories}}
    experiment = build(resolve_config([settings]))
    trainer, training, done = experiment.trainer, 0.0, 0
    evaluating = cpu_seconds(experiment.evaluate)
    while not trainer.finished:
        before = trainer.progress
        training += cpu_seconds(trainer.train_step)
        if crossed(before, trainer.progress, experiment.evaluated_every):
            evaluating += cpu_seconds(experiment.evaluate)
            done += 1
    print(
        f"  {method}: {done} evaluations and the one before take {evaluating:.2f} s beside {training:.1f} s of "
        f"training, {evaluating / training:.1%} of it, in a run of {trajectories:,} trajectories"
    )


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
