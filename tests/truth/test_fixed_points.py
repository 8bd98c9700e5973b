"""Exact solutions of balance conditions: what they satisfy, and how far from the reward they sample."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import Channel, confusion, noiseless, positional, positional_slip, uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.truth.fixed_points import FixedPoint, blind_balance, expected_balance
from stochflow.truth.prefix_tree import tv_to_target
from stochflow.truth.truth import SequenceTruth

Solver = Callable[[Tensor, Channel, int], FixedPoint]
LENGTH = 3
SKEWED = positional(
    [
        [[0.7, 0.2, 0.1], [0.05, 0.5, 0.45], [0.3, 0.3, 0.4]],
        [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]],
        [[0.4, 0.3, 0.3], [0.25, 0.5, 0.25], [0.1, 0.1, 0.8]],
    ]
)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def log_reward(generator: torch.Generator) -> Tensor:
    """Three tokens, three steps."""
    return torch.randn(3**LENGTH, dtype=torch.float64, generator=generator)


def distance(first: FixedPoint, second: FixedPoint) -> float:
    return float((first.log_probs.exp() - second.log_probs.exp()).abs().max())


@pytest.mark.parametrize(
    ("alpha", "expected", "blind"), [(0.1, 0.079, 0.042), (0.25, 0.180, 0.104), (0.5, 0.306, 0.206)]
)
def test_published_distances_on_the_real_landscape(
    tfbind8: TFBind8, alpha: float, expected: float, blind: float
) -> None:
    environment = SequenceEnvironment(tfbind8, uniform_slip(4, alpha))
    truth = SequenceTruth(environment, Reward(beta=3.0, floor=1e-6, ramp=0.0))
    for solve, distance in ((expected_balance, expected), (blind_balance, blind)):
        solution = solve(truth.log_rewards, environment.channel, tfbind8.length)
        assert tv_to_target(solution.log_probs, truth.log_rewards) == pytest.approx(distance, abs=5e-4)
        assert solution.log_z == pytest.approx(truth.optimum()["log_z_true"], abs=1e-9)


@pytest.mark.parametrize("solve", [expected_balance, blind_balance])
def test_without_noise_both_sample_in_proportion_to_the_reward(solve: Solver, log_reward: Tensor) -> None:
    solution = solve(log_reward, noiseless(3), LENGTH)
    torch.testing.assert_close(solution.log_probs, torch.log_softmax(log_reward, dim=0), atol=1e-12, rtol=0)
    assert solution.log_z == pytest.approx(float(log_reward.logsumexp(dim=0)), abs=1e-12)


def test_one_step_by_hand() -> None:
    # P = ¾ on what was meant, ¼ beside it: F(·,0) = ¾·1 + ¼·3 = 1.5, F(·,1) = ¼·1 + ¾·3 = 2.5
    solution = expected_balance(double(1.0, 3.0).log(), uniform_slip(2, 0.5), 1)
    torch.testing.assert_close(solution.log_policies[0].exp(), double(0.375, 0.625)[None])
    torch.testing.assert_close(solution.log_probs.exp(), double(0.4375, 0.5625))
    # the target's own conditional, ¼ and ¾, blurred once
    blind = blind_balance(double(1.0, 3.0).log(), uniform_slip(2, 0.5), 1)
    torch.testing.assert_close(blind.log_policies[0].exp(), double(0.25, 0.75)[None])
    torch.testing.assert_close(blind.log_probs.exp(), double(0.375, 0.625))


def test_every_edge_of_expected_balance_carries_the_mean_of_its_children(log_reward: Tensor) -> None:
    solution = expected_balance(log_reward, SKEWED, LENGTH)
    torch.testing.assert_close(solution.log_flows[-1], log_reward)
    for depth, log_policy in enumerate(solution.log_policies):
        forward = (solution.log_flows[depth].unsqueeze(-1) + log_policy).exp()
        children = solution.log_flows[depth + 1].exp().view(-1, 3)
        torch.testing.assert_close(forward, children @ SKEWED.matrix(depth).T)


def test_every_realised_step_of_blind_balance_is_balanced(log_reward: Tensor) -> None:
    solution = blind_balance(log_reward, SKEWED, LENGTH)
    for depth, log_policy in enumerate(solution.log_policies):
        forward = solution.log_flows[depth].unsqueeze(-1) + log_policy
        torch.testing.assert_close(forward.flatten(), solution.log_flows[depth + 1])


@pytest.mark.parametrize("channel", [SKEWED, uniform_slip(3, 0.4), positional_slip(3, [0.1, 0.3, 0.6])])
def test_what_is_sampled_is_a_distribution(channel: Channel, log_reward: Tensor) -> None:
    for solution in (expected_balance(log_reward, channel, LENGTH), blind_balance(log_reward, channel, LENGTH)):
        assert float(solution.log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-12)
        assert tv_to_target(solution.log_probs, log_reward) > 0.01


def test_expected_balance_under_slip_is_blindness_under_twice_the_slip(log_reward: Tensor) -> None:
    alpha = 0.3
    expected = expected_balance(log_reward, uniform_slip(3, alpha), LENGTH)
    blind = blind_balance(log_reward, uniform_slip(3, 1.0 - (1.0 - alpha) ** 2), LENGTH)
    assert distance(expected, blind) < 1e-12
    assert distance(expected, blind_balance(log_reward, uniform_slip(3, alpha), LENGTH)) > 1e-3


def test_expected_balance_counts_outcomes_by_how_often_they_come(log_reward: Tensor) -> None:
    # the columns of slip sum to one; here the first outcome comes more often than it is meant, and Z counts it so
    channel = confusion([[0.9, 0.05, 0.05], [0.5, 0.45, 0.05], [0.5, 0.05, 0.45]])
    columns = channel.matrix(0).sum(dim=0)
    weights = columns[:, None, None] * columns[None, :, None] * columns[None, None, :]
    expected = float((weights.flatten() * log_reward.exp()).sum().log())
    assert expected_balance(log_reward, channel, LENGTH).log_z == pytest.approx(expected, abs=1e-12)
    blind = blind_balance(log_reward, channel, LENGTH).log_z
    assert blind == pytest.approx(float(log_reward.logsumexp(dim=0)), abs=1e-12)
    assert abs(expected - blind) > 0.05


@pytest.mark.parametrize("solve", [expected_balance, blind_balance])
def test_a_channel_of_another_length_is_refused(solve: Solver, log_reward: Tensor) -> None:
    with pytest.raises(ConfigError, match="2 position matrices but the task has length 3"):
        solve(log_reward, positional_slip(3, [0.1, 0.2]), LENGTH)
