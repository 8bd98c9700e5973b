"""Parents that lie apart, their weights, and chains that settle at the surrogate's R/Z."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.config.schema import ImaginationConfig
from stochflow.core.codes import decode
from stochflow.objectives.planning.surrogate_chains import (
    SurrogateChains,
    distinct_elites,
    mutated,
    shifted,
    tempered_weights,
)
from stochflow.surrogates.letter_distances import bit_words, embedded, hamming

POWERS = torch.tensor([9, 3, 1])
NONE = torch.empty(0, 3, dtype=torch.int64)  # of the policy's draws


def test_elites_are_the_best_that_lie_apart(generator: torch.Generator) -> None:
    designs = torch.randint(3, (300, 6), generator=generator)
    scores = torch.rand(300, generator=generator)
    elites = distinct_elites(designs, scores, num=20, distance=hamming(3), niche=2.0)
    assert int(elites[0]) == int(scores.argmax())
    assert torch.equal(scores[elites], scores[elites].sort(descending=True).values)
    distances = (designs[elites].unsqueeze(1) != designs[elites]).sum(dim=-1)
    assert int(distances[~torch.eye(len(elites), dtype=torch.bool)].min()) == 3
    # what is better than the last elite and none itself lies within a niche
    better = scores >= scores[elites[-1]]
    nearest = (designs[better].unsqueeze(1) != designs[elites]).sum(dim=-1).amin(dim=1)
    assert int(nearest.max()) <= 2


def test_weights_are_those_of_the_reward_where_it_is_flat_and_tempered_where_it_is_steep() -> None:
    flat = torch.linspace(0.0, 0.1, 50, dtype=torch.float64)
    torch.testing.assert_close(tempered_weights(flat, 20.0), torch.softmax(flat, dim=0))
    steep = torch.linspace(0.0, 500.0, 50, dtype=torch.float64)
    weights = tempered_weights(steep, 20.0)
    perplexity = math.exp(-float((weights * weights.log()).sum()))
    assert abs(perplexity - 20.0) < 1e-3
    assert bool((weights.diff() > 0).all())


def test_more_parents_than_there_are_cannot_be_had() -> None:
    weights = tempered_weights(torch.tensor([0.0, 5.0]), 20.0)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5]), atol=1e-3, rtol=0)


def test_words_lie_apart_by_their_bits(generator: torch.Generator) -> None:
    words = torch.tensor([[0, 0], [7, 0], [255, 255]])  # three bits of sixteen between the first two
    scores = torch.tensor([3.0, 2.0, 1.0])
    assert distinct_elites(words, scores, num=3, distance=bit_words(256), niche=2.0).tolist() == [0, 1, 2]
    assert distinct_elites(words, scores, num=3, distance=bit_words(256), niche=3.0).tolist() == [0, 2]


def test_letters_are_changed_at_the_rate_of_their_row(generator: torch.Generator) -> None:
    designs = torch.zeros(8000, 5, dtype=torch.int64)
    rates = torch.tensor([[0.0], [0.4]]).repeat(4000, 1)
    found = mutated(designs, hamming(4).neighbours, rates, generator) != 0
    assert not bool(found[::2].any())
    share = float(found[1::2].double().mean())
    assert abs(share - 0.4) < 5 * math.sqrt(0.4 * 0.6 / 20_000)


def no_preference(tokens: Tensor) -> Tensor:
    return torch.zeros(len(tokens)).double()


def test_some_mutants_of_a_mode_lie_far_from_it(generator: torch.Generator) -> None:
    config = ImaginationConfig(num_chains=2, moves=0, mutations=1.0, candidates=1, shifts=0.0, spread=1.0)
    chains = SurrogateChains(config, hamming(4), length=40)
    mode, none = torch.zeros(1, 40, dtype=torch.int64), torch.empty(0, 40, dtype=torch.int64)
    chains.refresh(mode, torch.zeros(1).double(), no_preference, none, generator)
    near = chains.near_parents(4000, no_preference, no_preference, generator)
    distances = (near != 0).sum(dim=1)
    # P(scale > 10) = 10^-1.5 = 3.2 %, and ten letters in forty are then drawn on average
    far = float((distances >= 10).double().mean())
    assert 0.02 < far < 0.07
    assert float(distances.median()) <= 3


def test_a_shift_keeps_what_stands_between(generator: torch.Generator) -> None:
    designs = torch.randint(4, (500, 9), generator=generator)
    removed, inserted = (torch.randint(9, (500, 1), generator=generator) for _ in range(2))
    letters = torch.randint(4, (500, 1), generator=generator)
    for design, taken, place, letter, result in zip(
        designs.tolist(), removed, inserted, letters, shifted(designs, removed, inserted, letters).tolist(), strict=True
    ):
        del design[int(taken)]
        design.insert(int(place), int(letter))
        assert result == design


def test_the_worst_chains_begin_again_at_parents(generator: torch.Generator) -> None:
    config = ImaginationConfig(num_chains=8, moves=0, num_parents=4, niche=0.0, restarts=0.25)
    chains = SurrogateChains(config, hamming(3), length=3)

    def log_reward(tokens: Tensor) -> Tensor:
        return (tokens == 2).sum(dim=-1).double()

    chains.refresh(torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1).double(), log_reward, NONE, generator)
    chains.states = torch.tensor([[2, 2, 2]] * 6 + [[2, 1, 1]] * 2)
    chains.refresh(torch.ones(1, 3, dtype=torch.int64), torch.zeros(1).double(), log_reward, NONE, generator)
    assert chains.states.tolist() == [[2, 2, 2]] * 6 + [[1, 1, 1]] * 2


def chi_square(states: Tensor, log_rewards: Tensor) -> float:
    """How far the states of chains are from R/Z of 27 designs; 26 on average."""
    target = len(states) * torch.softmax(log_rewards, dim=0)
    found = (states * POWERS).sum(dim=-1).bincount(minlength=27).double()
    return float(((found - target).square() / target).sum())


@pytest.mark.parametrize("uneven", [False, True])
def test_chains_settle_at_the_reward_of_the_surrogate(uneven: bool, generator: torch.Generator) -> None:
    log_rewards = 2.0 * torch.randn(27, dtype=torch.float64, generator=generator)
    config = ImaginationConfig(num_chains=4096, moves=80, num_parents=27, niche=0.0)
    # near and far letters: a change is then not as probable as the change back
    distance = embedded(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 9.0], [4.0, 9.0, 0.0]])) if uneven else hamming(3)
    chains = SurrogateChains(config, distance, length=3)
    everything = decode(torch.arange(27), 3, 3)

    def log_reward(tokens: Tensor) -> Tensor:
        return log_rewards[(tokens * POWERS).sum(dim=-1)]

    chains.refresh(everything, log_rewards, log_reward, NONE, generator)
    assert chi_square(chains.states, log_rewards) < 26 + 6 * math.sqrt(2 * 26)
    assert len(chains.visited) > len(chains.states)


def test_repairs_keep_the_letters_they_were_given_and_settle_at_the_best_completions(
    generator: torch.Generator,
) -> None:
    log_rewards = 2.0 * torch.randn(27, dtype=torch.float64, generator=generator)
    config = ImaginationConfig(num_chains=2, moves=81, num_parents=27, niche=0.0)
    chains = SurrogateChains(config, hamming(3), length=3)
    everything = decode(torch.arange(27), 3, 3)

    def log_reward(tokens: Tensor) -> Tensor:
        return log_rewards[(tokens * POWERS).sum(dim=-1)]

    drawn = torch.tensor([[2, 1, 0]]).expand(6000, 3)
    chains.refresh(everything, log_rewards, log_reward, drawn, generator)
    assert len(chains.states) == 2
    last, given = chains.visited[-6000:], chains.given[-6000:]
    for num in range(1, 3):
        assert torch.equal(last[given == num][:, :num], drawn[given == num][:, :num])
    # two letters are given: the third has the reward's conditional distribution
    thirds = last[given == 2][:, 2].bincount(minlength=3).double()
    target = torch.softmax(log_rewards[21:24], dim=0) * thirds.sum()
    assert float(((thirds - target).square() / target).sum()) < 2 + 6 * math.sqrt(4)
    designs, of_them = chains.draw(50, generator)
    assert designs.shape == (50, 3)
    assert of_them.shape == (50,)


def num_twos(tokens: Tensor) -> Tensor:
    return (tokens == 2).sum(dim=-1).double()


def test_the_search_finds_what_is_predicted_best_and_promise_decides_among_it(generator: torch.Generator) -> None:
    config = ImaginationConfig(num_chains=2, moves=0, num_parents=3, niche=0.0, spread=0.0)
    chains = SurrogateChains(config, hamming(3), length=30)
    parent, none = torch.zeros(1, 30, dtype=torch.int64), torch.empty(0, 30, dtype=torch.int64)
    chains.refresh(parent, torch.zeros(1).double(), num_twos, none, generator)
    near = chains.near_parents(50, num_twos, num_twos, generator)
    assert near.shape == (50, 30)
    assert len(near.unique(dim=0)) == 50
    assert float(num_twos(near).mean()) > 27.0
    ones = chains.near_parents(50, num_twos, lambda tokens: (tokens == 1).sum(dim=-1).double(), generator)
    assert float((ones == 1).double().mean()) > float((near == 1).double().mean()) + 0.05


def test_designs_of_the_search_lie_apart(generator: torch.Generator) -> None:
    config = ImaginationConfig(num_chains=2, moves=0, niche=0.1, spread=0.0)
    chains = SurrogateChains(config, hamming(3), length=30)
    parents = torch.randint(3, (50, 30), generator=generator)
    chains.refresh(parents, num_twos(parents), num_twos, torch.empty(0, 30, dtype=torch.int64), generator)
    near = chains.near_parents(10, num_twos, num_twos, generator)
    distances = (near.unsqueeze(1) != near).sum(dim=-1)
    assert int(distances[~torch.eye(10, dtype=torch.bool)].min()) > 0.1 * 30 * hamming(3).mean


def test_every_mode_has_children_of_its_own(generator: torch.Generator) -> None:
    config = ImaginationConfig(num_chains=2, moves=0, niche=0.0, mutations=0.5, candidates=8, spread=0.5, shifts=0.0)
    chains = SurrogateChains(config, hamming(3), length=12)
    good, other = torch.zeros(20, 12, dtype=torch.int64), torch.ones(20, 12, dtype=torch.int64)
    sequences = mutated(torch.cat([good, other]), hamming(3).neighbours, torch.full((40, 1), 0.1), generator)
    none = torch.empty(0, 12, dtype=torch.int64)

    def log_reward(
        tokens: Tensor,
    ) -> Tensor:  # twelve zeros are better than twelve ones, and both than what lies between
        zeros, ones = ((tokens == letter).sum(dim=-1).double() for letter in (0, 1))
        return torch.maximum(2.0 * zeros, ones)

    chains.refresh(sequences, log_reward(sequences), log_reward, none, generator)
    assert bool((chains.modes[0] == 0).sum() >= 10)
    assert bool(((chains.modes == 1).sum(dim=-1) >= 10).any())
    near = chains.near_parents(200, log_reward, log_reward, generator)
    of_ones = (near == 1).sum(dim=-1) >= 8
    assert not bool(of_ones[:100].any())
    assert int(of_ones[100:].sum()) > 10


def test_some_chains_are_held_out(generator: torch.Generator) -> None:
    config = ImaginationConfig(num_chains=32, moves=8, num_parents=27, niche=0.0)
    chains = SurrogateChains(config, hamming(3), length=3)
    everything, drawn = decode(torch.arange(27), 3, 3), torch.zeros(5, 3, dtype=torch.int64)
    chains.refresh(
        everything, torch.zeros(27).double(), lambda tokens: torch.zeros(len(tokens)).double(), drawn, generator
    )
    assert torch.equal(chains.held_out, chains.states[::8])
    assert len(chains.visited) == len(chains.given)
    assert len(chains.visited) % (28 + 5) == 0
