"""The whole prefix tree: check values of the method, exact distributions against samples, and the optimum's claims."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import Channel, confusion, dna_synthesis, noiseless, positional_slip, uniform_slip
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.truth.prefix_tree import (
    attainable_optimum,
    infeasible_share,
    kl_to_target,
    policy_log_marginals,
    terminal_log_probs,
    tv_to_target,
    unbalanced_share,
)
from stochflow.truth.state_optimum import water_filling

SKEWED = confusion([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.3, 0.3, 0.4]])


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_log_reward(num_leaves: int, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randn(num_leaves, dtype=torch.float64, generator=generator)


def random_log_policies(num_tokens: int, length: int, sharpness: float, generator: torch.Generator) -> list[Tensor]:
    shapes = [(num_tokens**depth, num_tokens) for depth in range(length)]
    return [
        torch.log_softmax(sharpness * torch.randn(shape, dtype=torch.float64, generator=generator), dim=-1)
        for shape in shapes
    ]


def target_conditionals(log_reward: Tensor, num_tokens: int) -> list[Tensor]:
    """log F(s')/F(s) of every prefix: the policy of a sampler that believes there is no noise."""
    levels, log_flows = [], log_reward
    while log_flows.numel() > 1:
        children = log_flows.reshape(-1, num_tokens)
        log_flows = torch.logsumexp(children, dim=-1)
        levels.append(children - log_flows.unsqueeze(-1))
    return levels[::-1]


@pytest.mark.parametrize(
    ("alpha", "min_kl", "tv", "mean_score"),
    [
        (0.10, "0.00026", "0.0006", "0.6471"),
        (0.25, "0.00302", "0.0075", "0.6457"),
        (0.50, "0.02455", "0.0515", "0.6339"),
        (0.75, "0.12418", "0.1640", "0.5860"),
    ],
)
def test_the_check_table_of_the_method(
    tfbind8: TFBind8, six6_log_reward: Tensor, alpha: float, min_kl: str, tv: str, mean_score: str
) -> None:
    optimum = attainable_optimum(six6_log_reward, uniform_slip(4, alpha), tfbind8.length)
    assert f"{optimum.min_kl:.5f}" == min_kl
    assert f"{tv_to_target(optimum.log_probs, six6_log_reward):.4f}" == tv
    assert f"{(optimum.log_probs.exp() * tfbind8.all_scores).sum().item():.4f}" == mean_score


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_both_solvers_agree_on_tfbind8(six6_log_reward: Tensor, alpha: float) -> None:
    values = [
        attainable_optimum(six6_log_reward, uniform_slip(4, alpha), 8, solver=solver).value
        for solver in ("water-filling", "blahut-arimoto")
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-6)


@given(st.integers(0, 10_000), st.floats(0.0, 0.95), st.integers(2, 4))
def test_both_solvers_agree_on_random_trees(seed: int, alpha: float, num_tokens: int) -> None:
    log_reward = random_log_reward(num_tokens**3, torch.Generator().manual_seed(seed))
    channel = uniform_slip(num_tokens, alpha)
    filled, iterated = (attainable_optimum(log_reward, channel, 3, s) for s in ("water-filling", "blahut-arimoto"))
    assert filled.value == pytest.approx(iterated.value, abs=1e-6)


def test_auto_takes_the_closed_form_where_there_is_one(generator: torch.Generator) -> None:
    log_reward = random_log_reward(27, generator)
    slip = uniform_slip(3, 0.5)
    auto, filled, iterated = (
        attainable_optimum(log_reward, slip, 3, s).value for s in ("auto", "water-filling", "blahut-arimoto")
    )
    assert auto == filled
    assert auto != iterated  # the iteration stops within its tolerance, not at the last bit
    auto, iterated = (attainable_optimum(log_reward, SKEWED, 3, s).value for s in ("auto", "blahut-arimoto"))
    assert auto == iterated


def test_without_noise_the_target_itself_is_attainable(generator: torch.Generator) -> None:
    log_reward = random_log_reward(4**4, generator)
    optimum = attainable_optimum(log_reward, noiseless(4), 4)
    assert optimum.value == pytest.approx(torch.logsumexp(log_reward, dim=0).item(), abs=1e-12)
    assert 0.0 <= optimum.min_kl < 1e-12
    torch.testing.assert_close(optimum.log_probs, torch.log_softmax(log_reward, dim=0))


@pytest.mark.parametrize(
    "channel",
    [uniform_slip(3, 0.6), SKEWED, positional_slip(3, [0.1, 0.9, 0.0, 0.5])],
    ids=lambda channel: channel.name,
)
def test_the_minimum_is_the_divergence_of_the_returned_policy(channel: Channel, generator: torch.Generator) -> None:
    log_reward = random_log_reward(3**4, generator)
    optimum = attainable_optimum(log_reward, channel, 4)
    assert optimum.min_kl > 0.01
    assert optimum.min_kl == pytest.approx(kl_to_target(optimum.log_probs, log_reward), abs=1e-9)
    reached = terminal_log_probs(policy_log_marginals([policy.log() for policy in optimum.policies], channel))
    torch.testing.assert_close(reached, optimum.log_probs, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "channel",
    [uniform_slip(3, 0.6), SKEWED, positional_slip(3, [0.1, 0.9, 0.3])],
    ids=lambda channel: channel.name,
)
def test_no_random_policy_beats_the_optimum(channel: Channel, generator: torch.Generator) -> None:
    log_reward = random_log_reward(27, generator)
    optimum = attainable_optimum(log_reward, channel, 3)
    best = [policy.clamp_min(1e-12).log() for policy in optimum.policies]
    for sharpness in (0.1, 0.3, 1.0, 3.0, 10.0) * 10:
        rival = random_log_policies(3, 3, sharpness, generator)
        # far from the optimum, and one per cent of the way towards it
        near = [torch.logaddexp(a + math.log(0.99), b + math.log(0.01)) for a, b in zip(best, rival, strict=True)]
        for policy in (rival, near):
            log_probs = terminal_log_probs(policy_log_marginals(policy, channel))
            assert kl_to_target(log_probs, log_reward) > optimum.min_kl - 1e-9


def test_no_policy_on_tfbind8_beats_the_optimum(six6_log_reward: Tensor, generator: torch.Generator) -> None:
    channel = uniform_slip(4, 0.25)
    optimum = attainable_optimum(six6_log_reward, channel, 8)
    for policy in (target_conditionals(six6_log_reward, 4), random_log_policies(4, 8, 0.5, generator)):
        log_probs = terminal_log_probs(policy_log_marginals(policy, channel))
        assert kl_to_target(log_probs, six6_log_reward) > optimum.min_kl + 0.01


@pytest.mark.parametrize(("alpha", "tv"), [(0.1, 0.042), (0.25, 0.104), (0.5, 0.206)])
def test_ignoring_the_noise_costs_what_the_method_says(six6_log_reward: Tensor, alpha: float, tv: float) -> None:
    marginals = policy_log_marginals(target_conditionals(six6_log_reward, 4), uniform_slip(4, alpha))
    assert tv_to_target(terminal_log_probs(marginals), six6_log_reward) == pytest.approx(tv, abs=5e-4)


def test_a_uniform_policy_has_the_total_variation_the_method_says(six6_log_reward: Tensor) -> None:
    uniform = [torch.full((4**depth, 4), -math.log(4.0)) for depth in range(8)]
    log_probs = terminal_log_probs(policy_log_marginals(uniform, uniform_slip(4, 0.25)))
    torch.testing.assert_close(log_probs, torch.full((4**8,), -8 * math.log(4.0), dtype=torch.float64))
    assert tv_to_target(log_probs, six6_log_reward) == pytest.approx(0.403, abs=5e-4)


@pytest.mark.parametrize(
    "channel",
    [uniform_slip(4, 0.5), dna_synthesis(0.3), positional_slip(4, [0.0, 0.9, 0.3, 0.6])],
    ids=lambda channel: channel.name,
)
def test_the_terminal_distribution_agrees_with_sampling(channel: Channel, generator: torch.Generator) -> None:
    length, num_samples = 4, 40_000
    log_policies = random_log_policies(4, length, 1.5, generator)
    exact = terminal_log_probs(policy_log_marginals(log_policies, channel)).exp()
    assert exact.sum().item() == pytest.approx(1.0, abs=1e-12)
    rows = torch.zeros(num_samples, dtype=torch.int64)
    for position in range(length):
        policies = log_policies[position].exp()[rows]
        intentions = torch.multinomial(policies, 1, generator=generator).squeeze(-1)
        rows = rows * 4 + channel.sample(intentions, position, generator)
    observed = torch.bincount(rows, minlength=4**length) / num_samples
    # E|f − p| ≤ √(p(1 − p)/n) per outcome, and McDiarmid bounds the rest with probability 1 − 1e-9
    expected_tv = (exact * (1.0 - exact) / num_samples).sqrt().sum().item() / 2
    tolerance = expected_tv + math.sqrt(math.log(1e9) / (2 * num_samples))
    assert tolerance < 0.06
    assert (observed - exact).abs().sum().item() / 2 < tolerance


def test_the_terminal_distribution_of_a_hand_worked_tree() -> None:
    log_marginals = [double(0.25, 0.75)[None].log(), torch.tensor([[0.5, 0.5], [0.2, 0.8]]).double().log()]
    torch.testing.assert_close(terminal_log_probs(log_marginals).exp(), double(0.125, 0.125, 0.15, 0.6))


def test_marginals_use_the_matrix_of_their_position() -> None:
    certain = [double(1.0, 0.0)[None].log(), double(1.0, 0.0).log().expand(2, 2)]
    first, second = policy_log_marginals(certain, positional_slip(2, [0.0, 0.5]))
    torch.testing.assert_close(first.exp(), double(1.0, 0.0)[None], atol=1e-20, rtol=0)
    torch.testing.assert_close(second.exp(), double(0.75, 0.25).expand(2, 2))


def test_a_network_in_single_precision_is_judged_in_double() -> None:
    (level,) = policy_log_marginals([torch.log_softmax(torch.randn(1, 3), dim=-1)], uniform_slip(3, 0.1))
    assert level.dtype == torch.float64


def test_equal_slips_at_all_positions_are_one_uniform_slip(generator: torch.Generator) -> None:
    log_reward = random_log_reward(64, generator)
    positional_value = attainable_optimum(log_reward, positional_slip(4, [0.4] * 3), 3).value
    assert positional_value == pytest.approx(attainable_optimum(log_reward, uniform_slip(4, 0.4), 3).value, abs=1e-6)


@pytest.mark.parametrize("alphas", [(0.0, 0.7), (0.7, 0.0)])
def test_noise_at_one_position_lowers_the_values_of_that_level_only(
    alphas: tuple[float, float], generator: torch.Generator
) -> None:
    log_reward = random_log_reward(9, generator)
    inner = water_filling(log_reward.reshape(3, 3), alphas[1]).values
    expected = water_filling(inner[None], alphas[0]).values.item()
    assert attainable_optimum(log_reward, positional_slip(3, alphas), 2).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("num_positions", [2, 4])
def test_a_channel_with_the_wrong_number_of_positions_is_refused(
    num_positions: int, generator: torch.Generator
) -> None:
    with pytest.raises(ConfigError, match="position matrices"):
        attainable_optimum(random_log_reward(27, generator), positional_slip(3, [0.1] * num_positions), 3)


def test_water_filling_refuses_a_channel_that_is_no_uniform_slip() -> None:
    with pytest.raises(ValueError, match="uniform slip"):
        attainable_optimum(torch.zeros(9), SKEWED, 2, solver="water-filling")


def test_a_tree_without_levels_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one level"):
        terminal_log_probs([])


def test_divergences_of_hand_worked_distributions() -> None:
    log_probs, log_reward = double(0.75, 0.25).log(), double(10.0, 10.0).log()  # the target is (½, ½), Z = 20
    expected = math.log(2.0) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert kl_to_target(log_probs, log_reward) == pytest.approx(expected)
    assert tv_to_target(log_probs, log_reward) == pytest.approx(0.25)


def test_divergences_vanish_at_the_target_and_never_fall_below_zero(generator: torch.Generator) -> None:
    log_reward = random_log_reward(4**6, generator)
    log_target = torch.log_softmax(log_reward, dim=0)
    assert kl_to_target(log_target + 1e-9, log_reward) == pytest.approx(0.0, abs=1e-12)
    assert tv_to_target(log_target, log_reward) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("alpha", "shares"),
    [(0.0, [0.0, 0.0]), (0.3, [0.0, 0.0]), (0.38, [1.0, 0.0]), (0.5, [1.0, 0.5])],
)
def test_a_prefix_is_infeasible_when_a_child_is_owed_less_than_the_slip_gives(
    alpha: float, shares: list[float]
) -> None:
    # shares at the root 1/6 : 5/6, below it ½ : ½ and 0.8 : 0.2; the floor is α/2
    assert infeasible_share(double(1.0, 1.0, 8.0, 2.0).log(), alpha, 2) == shares


def test_most_last_prefixes_of_tfbind8_are_infeasible_at_half_slip(six6_log_reward: Tensor) -> None:
    shares = infeasible_share(six6_log_reward, 0.5, 4)
    assert len(shares) == 8
    assert shares[0] == 0.0
    assert shares[-1] > 0.5


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.75])
def test_prefixes_out_of_reach_under_slip_are_those_below_the_floor(alpha: float, six6_log_reward: Tensor) -> None:
    channel = uniform_slip(4, alpha)
    assert unbalanced_share(six6_log_reward, channel, 8) == infeasible_share(six6_log_reward, alpha, 4)


@pytest.mark.parametrize("channel", [SKEWED, positional_slip(3, [0.3, 0.6, 0.1])])
def test_prefixes_out_of_reach_are_those_without_a_policy_in_a_linear_programme(channel: Channel) -> None:
    generator = torch.Generator().manual_seed(5)
    log_reward = 0.7 * torch.randn(27, generator=generator, dtype=torch.float64)
    expected, flows = [], log_reward.exp()
    for position in (2, 1, 0):
        children = flows.reshape(-1, 3)
        flows = children.sum(dim=-1)
        # a policy is weights on the rows of P that give the target
        rows = channel.matrix(position).T.numpy()
        found = [linprog(np.zeros(3), A_eq=rows, b_eq=row.numpy()).success for row in children / flows.unsqueeze(-1)]
        expected.append(1 - sum(found) / len(found))
    shares = unbalanced_share(log_reward, channel, 3)
    assert shares == pytest.approx(expected[::-1])
    assert 0 < sum(expected) < 3


def test_a_channel_that_forgets_the_intention_has_no_map_of_its_reach() -> None:
    flat = confusion([[0.2, 0.8], [0.2, 0.8]])
    assert unbalanced_share(double(0.0, 1.0, 2.0, 3.0), flat, 2) is None
