"""Soft Q-learning: its value is that of the attainable optimum, and it gets there."""

from collections.abc import Callable

import pytest
import torch

from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.soft_q import SoftQ, outcome_soft_value
from stochflow.truth.state_optimum import blahut_arimoto

MATRIX = torch.tensor([[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.0, 0.2, 0.8]], dtype=torch.float64)


def test_the_value_of_intentions_equals_the_soft_value_of_outcomes(generator: torch.Generator) -> None:
    child_values = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    policies = torch.randn(5, 3, dtype=torch.float64, generator=generator).softmax(dim=-1)
    marginals = policies @ MATRIX
    expected = (marginals * (child_values - marginals.log())).sum(dim=-1)
    found = outcome_soft_value(policies.log(), MATRIX.clamp_min(1e-30).log(), child_values @ MATRIX.T)
    torch.testing.assert_close(found, expected)


def test_no_policy_has_a_higher_value_than_the_attainable_optimum(generator: torch.Generator) -> None:
    child_values = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    best = blahut_arimoto(child_values, MATRIX)
    action_values, log_dynamics = child_values @ MATRIX.T, MATRIX.clamp_min(1e-30).log()
    reached = outcome_soft_value(best.policies.log(), log_dynamics, action_values)
    torch.testing.assert_close(reached, best.values, atol=1e-6, rtol=0)
    for _ in range(20):
        other = torch.randn(5, 3, dtype=torch.float64, generator=generator).log_softmax(dim=-1)
        assert bool((outcome_soft_value(other, log_dynamics, action_values) <= best.values + 1e-7).all())


def test_the_gradient_of_the_value_agrees_with_finite_differences(generator: torch.Generator) -> None:
    logits = torch.randn(2, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    action_values = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    log_dynamics = MATRIX.clamp_min(1e-30).log()
    assert torch.autograd.gradcheck(
        lambda given: outcome_soft_value(given.log_softmax(dim=-1), log_dynamics, action_values), (logits,)
    )


@pytest.mark.parametrize("known", [True, False])
def test_a_tiny_task_is_solved_to_the_attainable_optimum(
    known: bool, tiny: Callable[..., Experiment], trained: Callable[..., Experiment]
) -> None:
    experiment = trained("soft-q", dynamics={"kind": "known" if known else "learned"})
    assert experiment.truth is not None
    assert experiment.truth.evaluate(tiny("soft-q").policy)["regret"] > 0.2
    assert experiment.truth.evaluate(experiment.policy)["regret"] < 0.02
    assert experiment.trainer.objective.log_z() == pytest.approx(experiment.truth.attainable.value, abs=0.1)


def test_actor_and_critic_each_learn_from_their_own_loss(tiny: Callable[..., Experiment]) -> None:
    trainer = tiny("soft-q").trainer
    objective = trainer.objective
    assert isinstance(objective, SoftQ)
    terms = next(iter(objective.updates(trainer.collect(), 0, 0.0)))
    head, critic = trainer.learner.network.policy_head.weight, objective.critics.fast[0].head.weight
    for loss, learns, rests in (("actor_loss", head, critic), ("value_loss", critic, head)):
        moved = torch.autograd.grad(terms[loss], [learns, rests], retain_graph=True, allow_unused=True)
        assert moved[1] is None
        assert moved[0] is not None
    assert terms["loss"].item() == pytest.approx((terms["actor_loss"] + 0.5 * terms["value_loss"]).item())
