"""The reward, on values worked by hand."""

import math

import pytest
import torch

from stochflow.environments.rewards import Reward


@pytest.mark.parametrize(
    ("step", "exponent"),
    [(0, 1.0), (10, 2.0), (30, 2.5), (990, 2.98), (None, 3.0)],  # 1 + 2·(1 − 1/(1 + t/10))
)
def test_the_exponent_climbs_from_one_to_beta(step: int | None, exponent: float) -> None:
    assert Reward(beta=3.0, floor=1e-6, ramp=10.0).exponent(step) == pytest.approx(exponent, abs=1e-12)


@pytest.mark.parametrize("step", [0, 1, 10**6])
def test_a_ramp_of_zero_means_beta_at_once(step: int) -> None:
    assert Reward(beta=3.0, floor=1e-6, ramp=0.0).exponent(step) == 3.0


def test_the_floor_is_applied_after_the_power() -> None:
    # 0.1³ = 0.001 lies below the floor of 0.01, although 0.1 itself lies above it
    log_rewards = Reward(beta=3.0, floor=0.01, ramp=0.0).log_reward(torch.tensor([0.0, 0.1, 0.5, 1.0]))
    torch.testing.assert_close(log_rewards.exp(), torch.tensor([0.01, 0.01, 0.125, 1.0]))


def test_the_reward_of_a_step_uses_the_exponent_of_that_step() -> None:
    scores = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    log_rewards = Reward(beta=3.0, floor=1e-6, ramp=10.0).log_reward(scores, step=10)
    torch.testing.assert_close(log_rewards, 2.0 * scores.log())


def test_a_predicted_score_below_zero_gets_the_floor() -> None:
    reward = Reward(beta=1.5, floor=1e-4, ramp=0.0)
    assert reward.log_reward(torch.tensor(-0.3)).item() == pytest.approx(math.log(1e-4))
