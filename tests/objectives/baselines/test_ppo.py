"""PPO: advantages by hand, a surrogate that is the policy gradient until it clips, and a goal that it reaches."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.ppo import clipped_surrogate, generalised_advantages, standardised

EVERYWHERE = torch.ones(1, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        (0.0, [1.0 + 2.0 - 1.0, 0.0 + 4.0 - 2.0, 3.0 - 4.0]),  # one-step errors 2, 2, −1
        (1.0, [1.0 + 0.0 + 3.0 - 1.0, 0.0 + 3.0 - 2.0, 3.0 - 4.0]),  # return less baseline
        (0.5, [2.0 + 0.5 * 2.0 - 0.25, 2.0 - 0.5, -1.0]),
    ],
)
def test_hand_worked_advantages(decay: float, expected: list[float]) -> None:
    rewards, values = torch.tensor([[1.0, 0.0, 3.0]]), torch.tensor([[1.0, 2.0, 4.0]])
    assert generalised_advantages(rewards, values, decay)[0].tolist() == pytest.approx(expected)


def test_at_the_old_policy_the_surrogate_has_the_policy_gradient(generator: torch.Generator) -> None:
    advantages = torch.randn(1, 3, generator=generator)
    log_ratios = torch.zeros(1, 3, requires_grad=True)
    clipped_surrogate(log_ratios, advantages, 0.2, EVERYWHERE).backward()
    torch.testing.assert_close(log_ratios.grad, -advantages / 3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "learns"),
    [
        (1.5, 2.0, -2.4, False),  # good and already likelier: clipped at 1.2
        (0.5, 2.0, -1.0, True),  # good and less likely: must come back
        (0.5, -2.0, 1.6, False),  # bad and already rarer: clipped at 0.8
        (1.5, -2.0, 3.0, True),
    ],
)
def test_what_has_gone_far_enough_is_clipped(ratio: float, advantage: float, loss: float, learns: bool) -> None:
    log_ratio = torch.tensor([[ratio]]).log().requires_grad_()
    found = clipped_surrogate(log_ratio, torch.tensor([[advantage]]), 0.2, torch.ones(1, 1, dtype=torch.bool))
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert log_ratio.grad is not None
    assert (log_ratio.grad.item() != 0.0) == learns


def test_steps_that_are_not_real_do_not_count() -> None:
    advantages = torch.tensor([[1.0, 3.0, 100.0]])
    valid = torch.tensor([[True, True, False]])
    assert standardised(advantages, valid)[0, :2].tolist() == pytest.approx([-1.0, 1.0])
    assert clipped_surrogate(torch.zeros(1, 3), advantages, 0.2, valid).item() == pytest.approx(-2.0)


def test_a_tiny_task_is_solved_to_the_optimum_over_intentions(
    trained: Callable[..., Experiment],
    solve_intentions: Callable[[Experiment, float], tuple[float, Tensor]],
) -> None:
    settings = {"rl": {"temperature": 1.0, "entropy_bonus": 0.0}, "budget": {"steps": 60}}
    experiment = trained("ppo", **settings)
    value, probs = solve_intentions(experiment, 1.0)
    found = experiment.policy.terminal_log_probs(experiment.environment).exp()
    uniform = torch.full_like(found, 1 / 27)
    assert (found - probs).abs().sum() / 2 < 0.06 < (uniform - probs).abs().sum() / 2
    assert experiment.trainer.objective.log_z() == pytest.approx(value, abs=0.15)


def test_an_entropy_bonus_opens_the_policy(trained: Callable[..., Experiment]) -> None:
    closed, opened = (
        trained("ppo", rl={"temperature": 0.1, "entropy_bonus": bonus}, budget={"steps": 10}).trainer.train_step()
        for bonus in (0.0, 1.0)
    )
    assert opened["policy_entropy"] > closed["policy_entropy"] + 0.1


def test_ppo_remembers_nothing(tiny: Callable[..., Experiment]) -> None:
    trainer = tiny("ppo", optimiser={"updates": 3}).trainer
    drawn = trainer.learner.generators["replay"].get_state()
    assert len(list(trainer.objective.updates(trainer.collect(), 0, 0.5))) == 3
    assert torch.equal(trainer.learner.generators["replay"].get_state(), drawn)
