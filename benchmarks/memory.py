"""What it is worth to read the history of (intended, came) pairs where the noise has memory.

Both sides know the channel: with history it is filtered by the pairs, without it its mean counts. On TFBind8 the optima
of policies with history, without it, and told the hidden state are computed. log P_π of a policy without history is
exact there; with history it is estimated from above, so that its KL is overstated (by less than `width`, on average).

python -m benchmarks.memory --part optima     # what is attainable, by noise and β
python -m benchmarks.memory --part policies   # trained with and without history
python -m benchmarks.memory --part dynamics   # P̂ with history beside the exact conditional entropy
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch

from benchmarks.sweep import RESULTS, publish
from stochflow.config.context import ReadingConfig
from stochflow.config.noise import parse_noise
from stochflow.environments.channels import Channel
from stochflow.environments.memory_channels import MemoryChannel, bursts, mixture
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.environments.settings import resolve_layers
from stochflow.evaluation.bootstrap import median_interval
from stochflow.evaluation.elbo import elbo
from stochflow.evaluation.samples import draw
from stochflow.experiments.build import build
from stochflow.models.dynamics.tabular import dynamics_cross_entropy
from stochflow.models.history import HistoryDynamics
from stochflow.sampling.history_policy import HistoryPolicy
from stochflow.training.optimizer import FlatAdam
from stochflow.truth.prefix_tree import kl_to_target
from stochflow.truth.truth import MemoryTruth, truth_of

NOISES = ("mixture:0.02,0.3", "bursts:0.6,0.05,0.1")
WORLDS: tuple[MemoryChannel, ...] = (
    mixture(4, [0.02, 0.3]),
    mixture(4, [0.0, 0.6]),
    bursts(4, 0.6, 0.05, 0.1),
)
METHOD = "sgfn-kl-trajectory"
DRAWS = 4000
# task → β, floor and budget
TASKS = {"tfbind8": (10.0, 1e-6, 32_000), "motifs:GATA1+TBP,30": (60.0, 1e-40, 8_000)}


def optima() -> Iterator[dict[str, Any]]:
    """The smallest KL that is attainable, by what a policy knows; and without memory at the same mean slip."""
    for channel in WORLDS:
        for beta in (3.0, 10.0):
            reward = Reward(beta=beta, floor=1e-6, ramp=0.0)
            truth = truth_of(SequenceEnvironment(TFBind8("SIX6"), channel), reward)
            same_slip = truth_of(SequenceEnvironment(TFBind8("SIX6"), Channel(channel.matrices, "mean")), reward)
            assert isinstance(truth, MemoryTruth)
            assert same_slip is not None
            kls = [each.min_kl for each in (truth.without_history, truth.attainable, truth.revealed)]
            found = dict(zip(("without_history", "history", "revealed"), kls, strict=True))
            gap = found["without_history"] - found["revealed"]
            closed = (found["without_history"] - found["history"]) / gap if gap > 0 else float("nan")
            same = {"without_memory": same_slip.attainable.min_kl}
            yield {"noise": channel.name, "beta": beta, **found, "closed": closed, **same}


def policies(seeds: int) -> Iterator[dict[str, Any]]:
    """Every run with its KL or J."""
    for task, (beta, floor, trajectories) in TASKS.items():
        for noise in NOISES:
            for seed in range(seeds):
                for context in ("none", "history"):
                    label = {"task": task, "noise": noise, "context": context, "seed": seed}
                    yield label | trained(label, beta, floor, trajectories)


def trained(label: dict[str, Any], beta: float, floor: float, trajectories: int) -> dict[str, Any]:
    """Train one policy; J with its error, and where all objects are listed its KL."""
    layer = {
        "task": label["task"],
        "method": METHOD,
        "seed": label["seed"],
        "channel": parse_noise(label["noise"]),
        "context": {"reads": label["context"]},
        "dynamics": {"kind": "known"},
        "reward": {"beta": beta, "floor": floor},
        "budget": {"trajectories": trajectories},
    }
    started = time.process_time()
    experiment = build(resolve_layers([layer])).train()
    seconds = time.process_time() - started
    policy, environment = experiment.policy, experiment.environment
    sampled = draw(policy, environment, DRAWS, torch.Generator().manual_seed(1000 + label["seed"]))
    found: dict[str, Any] = {"cpu_seconds": round(seconds, 1), **elbo(sampled, environment, layer_reward(beta, floor))}
    if isinstance(experiment.truth, MemoryTruth):
        log_rewards = experiment.truth.log_rewards
        found["kl"] = float(torch.logsumexp(log_rewards, dim=0)) - found["j"]
        if not isinstance(policy, HistoryPolicy):
            found["kl"] = kl_to_target(policy.terminal_log_probs(environment), log_rewards)
    if isinstance(policy, HistoryPolicy) and isinstance(environment, SequenceEnvironment):
        low, high = policy.log_bounds(sampled.walk, environment.channel)
        found["width"] = float((high - low).mean())
    return found


def layer_reward(beta: float, floor: float) -> Reward:
    """The reward that J is told for."""
    return Reward(beta=beta, floor=floor, ramp=0.0)


def dynamics(seeds: int) -> Iterator[dict[str, Any]]:
    """Nats by which P̂ exceeds the entropy of an outcome given the pairs so far, for intentions at random."""
    for channel in WORLDS:
        for seed in range(seeds):
            for num in (4_000, 32_000):
                yield {"noise": channel.name, "seed": seed, "trajectories": num, **excess(channel, seed, num)}


def excess(channel: MemoryChannel, seed: int, num: int, length: int = 8, updates: int = 400) -> dict[str, float]:
    """Mean KL from the exact predictive distribution to P̂ with history, and to the channel's mean, on new pairs."""
    generator = torch.Generator().manual_seed(seed)
    intended, new = (torch.randint(channel.num_tokens, (n, length), generator=generator) for n in (num, 10_000))
    came, answers = channel.transmit(intended, generator), channel.transmit(new, generator)
    model = HistoryDynamics(channel.num_tokens, length, "position", ReadingConfig(reads="history"))
    model.initialise(generator)
    model.start(float((intended == came).double().mean()))
    optimizer, real = FlatAdam(list(model.parameters()), 10.0), torch.ones(512, length, dtype=torch.bool)
    for update in range(updates):
        rows = torch.randint(num, (512,), generator=generator)
        log_matrices = model.log_matrices(came[rows], intentions=intended[rows])
        loss = dynamics_cross_entropy(log_matrices, intended[rows], came[rows], real)
        optimizer.step(loss, 0.02 * (1.0 - 0.9 * update / updates))
    with torch.no_grad():
        true = channel.log_matrices_along(new, answers)
        learned = model.log_matrices(answers, intentions=new).double()
    gaps = [(true.exp() * (true - other)).sum(dim=-1).mean() for other in (learned, channel.log_matrices(length))]
    return dict(zip(("history", "mean_channel"), map(float, gaps), strict=True))


def interval(values: pd.Series) -> str:
    """Median with its bootstrap interval."""
    low, high = median_interval(values.tolist())
    return f"{values.median():.4f} [{low:.4f}, {high:.4f}]"


def table_of(part: str, frame: pd.DataFrame) -> pd.DataFrame:
    """What is published of the rows of a part."""
    if part == "optima":
        return frame
    if part == "dynamics":
        return frame.groupby(["noise", "trajectories"], sort=False)[["history", "mean_channel"]].median().reset_index()
    groups = frame.groupby(["task", "noise", "context"], sort=False)
    return groups.agg(kl=("kl", interval), j=("j", interval), cpu_seconds=("cpu_seconds", "median")).reset_index()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=["optima", "policies", "dynamics"], required=True)
    options.add_argument("--seeds", type=int, default=5)
    given = options.parse_args()
    torch.set_num_threads(1)
    parts = {"optima": optima, "policies": lambda: policies(given.seeds), "dynamics": lambda: dynamics(given.seeds)}
    rows, name = [], f"memory_{given.part}"
    for row in parts[given.part]():
        rows.append(row)
        print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        pd.DataFrame(rows).to_csv(RESULTS / f"{name}.csv", index=False)
    publish(table_of(given.part, pd.DataFrame(rows)), name, f"Channels with memory: {given.part}")


if __name__ == "__main__":
    main()
