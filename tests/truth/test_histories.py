"""The optimum over policies where several histories write one design."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.core.logspace import masked_log_softmax
from stochflow.environments.channels import Channel, uniform_slip
from stochflow.truth.histories import GAP, Histories, attainable_designs, lower_bound
from stochflow.truth.prefix_tree import attainable_optimum, kl_to_target, policy_log_marginals, terminal_log_probs

LENGTH, NUM_TOKENS = 3, 3


def everything_allowed() -> list[Tensor]:
    return [torch.ones(NUM_TOKENS**depth, NUM_TOKENS, dtype=torch.bool) for depth in range(LENGTH)]


def one_each() -> Histories:
    size = NUM_TOKENS**LENGTH
    return Histories(torch.arange(size), torch.zeros(size, dtype=torch.float64), everything_allowed())


def by_total() -> Histories:
    """The sum of the tokens is the design; the token 2 may not be intended first, and 2, 2, 2 never comes."""
    codes = torch.arange(NUM_TOKENS**LENGTH)
    totals = sum(codes // NUM_TOKENS**place % NUM_TOKENS for place in range(LENGTH))
    assert isinstance(totals, Tensor)
    numbers = torch.where(totals == 6, -1, totals)
    sizes = torch.where(numbers >= 0, totals, 0).bincount(minlength=6).double()
    allowed = everything_allowed()
    allowed[0][0, 2] = False
    return Histories(numbers, -sizes[numbers.clamp_min(0)].log(), allowed)


def skewed(channel: Channel) -> Channel:
    """The same channel, but the token 2 is obeyed and nothing else becomes a 2."""
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[:2, :2] = channel.matrix(0)
    return Channel(matrix[None], "skewed")


CHANNEL = skewed(uniform_slip(2, 0.4))


def random_log_reward(num: int, generator: torch.Generator) -> Tensor:
    return 3.0 * torch.randn(num, generator=generator, dtype=torch.float64)


def random_policy(histories: Histories, generator: torch.Generator) -> Tensor:
    """log P(x) of a random policy that keeps to what is allowed, [num_designs]."""
    levels = [
        masked_log_softmax(2 * torch.randn(level.shape, generator=generator, dtype=torch.float64), level)
        for level in histories.allowed
    ]
    return histories.collected(terminal_log_probs(policy_log_marginals(levels, CHANNEL)))


def test_with_one_history_per_design_it_is_the_optimum_of_the_tree(generator: torch.Generator) -> None:
    log_reward = random_log_reward(27, generator)
    channel = uniform_slip(3, 0.3)
    found = attainable_designs(log_reward, one_each(), channel, LENGTH)
    expected = attainable_optimum(log_reward, channel, LENGTH)
    assert found.min_kl == pytest.approx(expected.min_kl, abs=GAP)
    assert found.log_z == pytest.approx(expected.log_z)
    torch.testing.assert_close(found.log_probs.exp(), expected.log_probs.exp(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_goes_below_the_bound_and_the_optimum_meets_it(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    histories = by_total()
    log_reward = random_log_reward(histories.num_designs, generator)
    best = attainable_designs(log_reward, histories, CHANNEL, LENGTH)
    assert kl_to_target(best.log_probs, log_reward) == pytest.approx(best.min_kl, abs=1e-9)
    assert float(best.log_probs.exp().sum()) == pytest.approx(1.0)
    assert best.min_kl - lower_bound(best.log_probs, log_reward, histories, CHANNEL, LENGTH) < GAP
    assert float(best.policies[0][0, 2]) == 0.0
    for _ in range(20):
        log_probs = random_policy(histories, generator)
        kl = kl_to_target(log_probs, log_reward)
        assert kl >= best.min_kl
        # the tangent at any policy lies below every policy
        assert lower_bound(log_probs, log_reward, histories, CHANNEL, LENGTH) <= best.min_kl + GAP


def test_the_best_shares_beat_those_it_began_with(generator: torch.Generator) -> None:
    """Fixed shares bind histories that the policy could weigh as it likes."""
    histories = by_total()
    log_reward = random_log_reward(histories.num_designs, generator)
    best = attainable_designs(log_reward, histories, CHANNEL, LENGTH)
    once = attainable_designs(log_reward, histories, CHANNEL, LENGTH, gap=math.inf)
    assert best.min_kl < once.min_kl


def test_a_policy_without_noise_reaches_every_target() -> None:
    histories = by_total()
    histories.allowed[0][0, 2] = True
    obedient = Channel(torch.eye(3, dtype=torch.float64)[None], "none")
    log_reward = torch.tensor([0.0, 2.0, -1.0, 0.5, 3.0, -2.0], dtype=torch.float64)
    best = attainable_designs(log_reward, histories, obedient, LENGTH)
    assert best.min_kl == pytest.approx(0.0, abs=GAP)
    torch.testing.assert_close(best.log_probs, torch.log_softmax(log_reward, dim=0), atol=1e-2, rtol=0)


def test_probabilities_of_histories_add_up_to_those_of_designs() -> None:
    histories = by_total()
    probs = torch.full((27,), 1 / 27, dtype=torch.float64)
    counts = [1, 3, 6, 7, 6, 3]
    torch.testing.assert_close(histories.collected(probs.log()).exp() * 27, torch.tensor(counts).double())
    assert histories.examples.tolist() == [0, 1, 2, 5, 8, 17]
