"""Soft actor-critic: hand-worked values, and the optimum of its own goal by dynamic programming."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.sac import intention_soft_value, temperature_loss

Solver = Callable[[Experiment, float], tuple[float, Tensor]]


def test_hand_worked_soft_value() -> None:
    log_policy = torch.tensor([0.75, 0.25]).log()
    value = intention_soft_value(log_policy, torch.tensor([1.0, 3.0]), torch.tensor(2.0))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert value.item() == pytest.approx(0.75 * 1.0 + 0.25 * 3.0 + 2.0 * entropy)


def test_softmax_of_the_values_is_the_best_policy_and_its_value_their_soft_maximum(generator: torch.Generator) -> None:
    action_values = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    temperature = torch.tensor(0.5, dtype=torch.float64)
    log_policy = (action_values / temperature).log_softmax(dim=-1).requires_grad_()
    value = intention_soft_value(log_policy, action_values, temperature)
    torch.testing.assert_close(value, 0.5 * torch.logsumexp(action_values / 0.5, dim=-1))
    logits = (action_values / temperature).requires_grad_()
    flat = intention_soft_value(logits.log_softmax(dim=-1), action_values, temperature).sum()
    torch.testing.assert_close(torch.autograd.grad(flat, logits)[0], torch.zeros(4, 3).double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("found", "sign"), [(1.5, 1.0), (0.5, -1.0)])
def test_the_temperature_falls_while_the_policy_is_too_open(found: float, sign: float) -> None:
    log_temperature = torch.tensor(0.3, requires_grad=True)
    temperature_loss(log_temperature, torch.tensor(found), 1.0).backward()
    assert log_temperature.grad is not None
    assert log_temperature.grad.item() == pytest.approx(sign * 0.5)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_tiny_task_is_solved_to_the_optimum_over_intentions(
    temperature: float, trained: Callable[..., Experiment], solve_intentions: Solver
) -> None:
    experiment = trained("sac", rl={"temperature": temperature})
    value, probs = solve_intentions(experiment, temperature)
    found = experiment.policy.terminal_log_probs(experiment.environment).exp()
    uniform = torch.full_like(found, 1 / 27)
    assert (found - probs).abs().sum() / 2 < 0.04 < (uniform - probs).abs().sum() / 2
    assert experiment.trainer.objective.log_z() == pytest.approx(value, abs=0.1)


def test_without_noise_the_optimum_over_intentions_is_the_target(
    trained: Callable[..., Experiment], tiny: Callable[..., Experiment], solve_intentions: Solver
) -> None:
    obedient = {"channel": {"kind": "none"}, "rl": {"temperature": 1.0}}
    experiment = tiny("sac", **obedient)
    assert experiment.truth is not None
    value, probs = solve_intentions(experiment, 1.0)
    torch.testing.assert_close(probs, experiment.truth.log_rewards.softmax(dim=0))
    assert value == pytest.approx(experiment.truth.attainable.log_z)
    assert experiment.truth.evaluate(trained("sac", **obedient).policy)["regret"] < 0.01


def test_an_automatic_temperature_keeps_the_entropy_it_is_told_to_keep(trained: Callable[..., Experiment]) -> None:
    experiment = trained("sac", rl={"target_entropy": 0.5}, budget={"steps": 40})
    record = experiment.trainer.train_step()
    assert record["policy_entropy"] == pytest.approx(0.5 * math.log(3.0), abs=0.1)
    assert record["temperature"] < 0.7
