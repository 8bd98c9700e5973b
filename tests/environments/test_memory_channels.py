"""Channels with a hidden state: what they emit, and what the pairs reveal, beside sums over all hidden paths."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from stochflow.config.environment import ChannelConfig
from stochflow.config.noise import parse_noise
from stochflow.core.errors import ConfigError
from stochflow.environments.channel_factory import make_channel
from stochflow.environments.memory_channels import MemoryChannel, bursts, mixture

LENGTH = 3
CHANNELS = [mixture(2, [0.1, 0.7]), bursts(2, slip=0.8, begin=0.2, end=0.4, between=0.1)]


def brute_force(channel: MemoryChannel, intended: Tensor, came: Tensor) -> float:
    """P(came|intended) as a sum over hidden paths."""
    total = 0.0
    for path in itertools.product(range(len(channel.start)), repeat=len(intended)):
        share = float(channel.start[path[0]])
        for before, after in itertools.pairwise(path):
            share *= float(channel.moves[before, after])
        for state, a, b in zip(path, intended, came, strict=True):
            share *= float(channel.emissions[state, a, b])
        total += share
    return total


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_the_forward_filter_gives_the_sum_over_all_hidden_paths(channel: MemoryChannel) -> None:
    pairs = torch.tensor(list(itertools.product(range(2), repeat=2 * LENGTH)))
    intended, came = pairs[:, :LENGTH], pairs[:, LENGTH:]
    expected = torch.tensor([brute_force(channel, a, b) for a, b in zip(intended, came, strict=True)])
    torch.testing.assert_close(channel.log_prob(intended, came).exp(), expected.double(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_what_comes_has_the_probabilities_that_are_told(channel: MemoryChannel) -> None:
    num = 40_000
    intended = torch.tensor([[0, 1, 0]]).expand(num, -1)
    came = channel.transmit(intended, torch.Generator().manual_seed(0))
    everything = torch.tensor(list(itertools.product(range(2), repeat=LENGTH)))
    expected = channel.log_prob(intended[: len(everything)], everything).exp()
    counts = (came[:, None] == everything).all(dim=-1).double().mean(dim=0)
    assert bool(((counts - expected).abs() < 5 * (expected * (1 - expected) / num).sqrt()).all())


def test_a_pair_that_cannot_have_come_leaves_the_belief_finite() -> None:
    channel = mixture(4, [0.0, 0.0])
    beliefs = channel.beliefs(torch.tensor([[0, 1]]), torch.tensor([[3, 1]]))
    torch.testing.assert_close(beliefs, torch.full_like(beliefs, 0.5))


def test_the_one_matrix_is_the_mean_over_hidden_states() -> None:
    channel = bursts(4, slip=0.8, begin=0.1, end=0.3)
    assert channel.matrix(0)[0, 1].item() == pytest.approx(0.25 * 0.8 / 4)
    assert (channel.slip, channel.noise) == (None, "bursts:0.8,0.1,0.3")


def test_a_chain_that_is_not_stationary_is_refused() -> None:
    moves = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    with pytest.raises(ValueError, match="stationary"):
        MemoryChannel(torch.tensor([0.5, 0.5]), moves, CHANNELS[0].emissions, "odd")


def test_drift_is_a_slip_per_position_and_keeps_no_memory() -> None:
    channel = make_channel(ChannelConfig.model_validate(parse_noise("drift:0.1,0.3")), 4, 3)
    assert not isinstance(channel, MemoryChannel)
    off = 1.0 - channel.matrices.diagonal(dim1=1, dim2=2)[:, 0]
    torch.testing.assert_close(off, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64) * 3 / 4)


@pytest.mark.parametrize("name", ["mixture:0.02/0.3", "mixture:0.02,0.3"])
def test_numbers_of_a_channel_stand_between_commas_or_slashes(name: str) -> None:
    assert parse_noise(name) == {"kind": "mixture", "noise": [0.02, 0.3]}


@pytest.mark.parametrize("name", ["mixture:0.1", "bursts:0.5,0.1", "drift", "bursts:0.5,0.1,0.2,0.1,0.3"])
def test_a_wrong_number_of_numbers_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ConfigError, match="as in "):
        parse_noise(name)


def test_bursts_that_never_end_are_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        bursts(4, slip=0.5, begin=0.1, end=0.0)
    assert math.isclose(float(bursts(4, 0.5, 0.1, 0.1).start[0]), 0.5)
