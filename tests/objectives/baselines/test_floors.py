"""How well a rival could do with everything learned: docs/explanation/method.md, TFBind8 (SIX6) at α = 0.25."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.sampling.policies import OpenLoopPolicy
from stochflow.truth.prefix_tree import kl_to_target
from stochflow.truth.truth import Truth


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return build(resolve_config([{"method": "sac", "device": "cpu"}]))


def regret_of(probs: Tensor, truth: Truth | None) -> float:
    assert truth is not None
    return kl_to_target(probs.log(), truth.log_rewards) - truth.attainable.min_kl


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 0.0961), (0.6, 0.0067)])
def test_the_best_policy_over_intentions_keeps_a_regret_that_depends_on_the_temperature(
    temperature: float,
    expected: float,
    experiment: Experiment,
    solve_intentions: Callable[[Experiment, float], tuple[float, Tensor]],
) -> None:
    _, probs = solve_intentions(experiment, temperature)
    assert regret_of(probs, experiment.truth) == pytest.approx(expected, abs=1e-4)


def test_exact_states_that_are_intended_blindly_keep_a_regret(experiment: Experiment) -> None:
    assert experiment.truth is not None
    policy = OpenLoopPolicy(experiment.environment.task.all_sequences, 4)
    policy.counts = torch.softmax(experiment.truth.log_rewards, dim=0)
    probs = policy.terminal_log_probs(experiment.environment).exp()
    assert regret_of(probs, experiment.truth) == pytest.approx(0.1853, abs=1e-4)
