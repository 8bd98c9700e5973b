"""A task that is small enough to solve by hand, and experiments on it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config

SCORES = 0.3 + 0.7 * torch.rand(27, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
SETTINGS: dict[str, Any] = {
    "task": "tiny",
    "seed": 2,
    "device": "cpu",
    "channel": {"kind": "uniform-slip", "noise": 0.4},
    "model": {"width": 16, "kmers": [1, 2, 3]},
    "dynamics": {"kind": "known"},
    "optimiser": {"batch_size": 64, "updates": 8, "learning_rate": 0.02},
    "budget": {"steps": 24},
}


class Tiny(Task):
    """Three letters, three steps."""

    name = "tiny"
    alphabet = Alphabet("ABC")
    length = 3
    mode_threshold = 0.9
    description = "27 random scores."

    def score(self, tokens: Tensor) -> Tensor:
        return SCORES[(tokens * torch.tensor([9, 3, 1])).sum(dim=-1)]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Experiment]:
    """An experiment of a method on the tiny task, with changed settings by group."""
    monkeypatch.setitem(TASKS, "tiny", Tiny)

    def make(method: str, **changes: Any) -> Experiment:
        return build(resolve_config([SETTINGS, changes, {"method": method}]))

    return make


@pytest.fixture
def trained(tiny: Callable[..., Experiment]) -> Callable[..., Experiment]:
    """The same, trained to the end of its budget."""

    def train(method: str, **changes: Any) -> Experiment:
        experiment = tiny(method, **changes)
        while not experiment.trainer.finished:
            experiment.trainer.train_step()
        return experiment

    return train


def max_entropy_over_intentions(experiment: Experiment, temperature: float) -> tuple[float, Tensor]:
    """V(root) and P(x) of the policy that maximises E[log R] + τ·Σ H(π), by dynamic programming from the leaves."""
    assert experiment.truth is not None
    values, levels = experiment.truth.log_rewards, []
    for position in reversed(range(experiment.environment.task.length)):
        matrix = experiment.environment.channel.matrix(position)
        action_values = values.reshape(-1, len(matrix)) @ matrix.T
        levels.append(torch.softmax(action_values / temperature, dim=-1) @ matrix)
        values = temperature * torch.logsumexp(action_values / temperature, dim=-1)
    probs = torch.ones(1, dtype=torch.float64)
    for level in reversed(levels):
        probs = (probs.unsqueeze(-1) * level).reshape(-1)
    return float(values), probs


@pytest.fixture
def solve_intentions() -> Callable[[Experiment, float], tuple[float, Tensor]]:
    return max_entropy_over_intentions
