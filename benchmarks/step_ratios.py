"""CPU time of a training step of SGFN-KL as a ratio to trajectory balance, both measured in turn in one run.

In trajectory scope the batches are equal. A planned update, with its share of sampling and planning, is compared with a
whole step of trajectory balance on as many states, in two ways: the rows of a planned update over L + 1 are the batch,
or the batch has so many distinct prefixes: the rows of an update all differ, and a prefix that trajectories share
is evaluated once.

python -m benchmarks.step_ratios [--repeats 60] [--batches 16 64 256]
"""

import argparse
import bisect
import statistics
import time
from typing import Any

import torch
from torch import Tensor

from stochflow.config.methods import METHODS
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads
from stochflow.models.flow_network import FlowNetwork
from stochflow.objectives.planned_kl import PlannedKL
from stochflow.training.trainer import Trainer

MODEL = {"kmers": [1], "width": 256, "num_layers": 2}
GAMMA = METHODS["sgfn-kl-gamma"].settings["objective"]
ENDLESS = {"steps": 10**9}
TRAJECTORIES = 32_000  # of the planned run: how often it plans depends on its budget


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=60)
    options.add_argument("--batches", type=int, nargs="+", default=[16, 64, 256])
    given = options.parse_args()
    with torch_threads(1):
        measure(given)


def measure(given: argparse.Namespace) -> None:
    print("TFBind8, α = 0.25, 2 × 256 on one-hot prefixes, one thread; CPU milliseconds, least and median")
    for batch_size in given.batches:
        print_trajectory_scope(batch_size, given.repeats)
    print_planned()


def print_trajectory_scope(batch_size: int, repeats: int) -> None:
    step: dict[str, Any] = {"optimiser": {"batch_size": batch_size, "updates": 1}, "budget": ENDLESS}
    scope = {"objective": {"scope": "trajectory"}}
    trainers = {
        "gfn-tb": trainer("gfn-tb", step),
        "sgfn-tb": trainer("sgfn-tb", step),
        "sgfn-kl-trajectory": trainer("sgfn-kl-trajectory", step),
        "… with γ and both λ": trainer("sgfn-kl-trajectory", step, scope, {"objective": GAMMA}),
    }
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(repeats):
        for name, taken in times.items():
            taken.append(milliseconds(trainers[name]))
    print(f" batch {batch_size}")
    for name, taken in times.items():
        print_ratio(name, taken, times["gfn-tb"])


def print_planned() -> None:
    planned = trainer("sgfn-kl", {"budget": {"trajectories": TRAJECTORIES}})
    config, objective = planned.learner.config, planned.objective
    milliseconds(planned)
    assert isinstance(objective, PlannedKL)
    assert objective.plan is not None
    num_rows = sum(min(len(visits), config.plan.rows_per_level) for visits in objective.plan.visits)
    batches = round(num_rows / (planned.learner.network.length + 1)), batch_of(num_rows, planned.learner.network)
    balances = [
        trainer("gfn-tb", {"optimiser": {"batch_size": size, "updates": 1}, "budget": ENDLESS}) for size in batches
    ]
    updates: list[float] = []
    steps: list[list[float]] = [[] for _ in batches]
    while not planned.finished:
        updates.append(milliseconds(planned) / config.optimiser.updates)
        for balance, taken in zip(balances, steps, strict=True):
            taken += [milliseconds(balance) for _ in range(4)]
    print(f" {num_rows} states per update; trajectory balance with as many steps, and with as many distinct prefixes")
    for size, taken in zip(batches, steps, strict=True):
        print_ratio(f"gfn-tb, batch {size}", taken, taken)
        print_ratio("sgfn-kl, an update", updates, taken)


def batch_of(num_states: int, network: FlowNetwork) -> int:
    """The batch whose trajectories have so many distinct prefixes, leaves left out, while the policy is uniform."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(network.num_tokens, (num_states, network.length - 1), generator=generator)
    sizes = range(1, num_states + 1)
    # more rows never have fewer prefixes
    return bisect.bisect_left(sizes, num_states, key=lambda size: num_prefixes(tokens[:size])) + 1


def num_prefixes(tokens: Tensor) -> int:
    """Distinct prefixes of rows, the empty one and the rows themselves included."""
    return 1 + sum(len(tokens[:, :depth].unique(dim=0)) for depth in range(1, tokens.shape[1] + 1))


def trainer(method: str, *settings: dict[str, Any]) -> Trainer:
    """A run that explores nothing, so that only the objectives differ."""
    common = {"method": method, "model": MODEL, "channel": {"noise": 0.25}, "exploration": {"epsilon": 0.0}}
    made = build(resolve_config([common, *settings])).trainer
    for _ in range(3 if made.learner.config.budget.steps else 0):
        made.train_step()
    return made


def milliseconds(taken: Trainer) -> float:
    started = time.process_time()
    taken.train_step()
    return 1e3 * (time.process_time() - started)


def print_ratio(name: str, times: list[float], reference: list[float]) -> None:
    least, middle, mean = (figure(times) / figure(reference) for figure in (min, statistics.median, statistics.fmean))
    print(
        f"  {name:<20} {min(times):7.2f} {statistics.median(times):7.2f}   "
        f"× {least:.2f} (least), {middle:.2f} (median), {mean:.2f} (mean)"
    )


if __name__ == "__main__":
    main()
