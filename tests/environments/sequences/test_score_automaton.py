"""Scores along an automaton, and the smallest automaton with the same scores."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from stochflow.environments.sequences.score_automaton import ScoreAutomaton


def counting(modulus: int, copies: int, factors: bool) -> ScoreAutomaton:
    """Counts ones modulo a number, with every state several times over and one that is never reached."""
    states = torch.arange(modulus * copies)
    after = torch.stack([states, (states + 1) % (modulus * copies)], dim=-1)
    after = torch.cat([after, torch.tensor([[0, 0]])])
    scores = (1.0 + torch.arange(modulus * copies + 1).double() % modulus) / modulus
    log_factors = torch.tensor([[-0.1, 0.2]], dtype=torch.float64).expand(len(after), 2) if factors else None
    return ScoreAutomaton(after, scores, log_factors)


def all_bits(length: int) -> Tensor:
    return torch.tensor(list(itertools.product(range(2), repeat=length)))


def test_a_score_is_that_of_the_last_state_times_all_factors() -> None:
    tokens = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    assert counting(3, 1, factors=False).score(tokens).tolist() == pytest.approx([1.0, 2 / 3, 1 / 3])
    expected = [math.exp(0.3), 2 / 3, math.exp(0.6) / 3]
    assert counting(3, 1, factors=True).score(tokens).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("factors", [False, True])
def test_the_smallest_automaton_has_as_many_states_as_can_be_told_apart_and_the_same_scores(factors: bool) -> None:
    large = counting(3, 4, factors)
    small = large.minimised()
    assert (large.num_states, small.num_states) == (13, 3)
    torch.testing.assert_close(small.score(all_bits(7)), large.score(all_bits(7)), rtol=0, atol=0)


def test_factors_tell_states_apart_that_have_the_same_scores() -> None:
    swap = torch.tensor([[1, 1], [0, 0]])
    alike = ScoreAutomaton(swap, torch.ones(2).double())
    apart = ScoreAutomaton(swap, torch.ones(2).double(), torch.tensor([[0.0, 0.0], [0.0, -1.0]]).double())
    assert (alike.minimised().num_states, apart.minimised().num_states) == (1, 2)


def test_reachable_states_are_those_of_all_sequences_and_the_lowest_score_is_their_lowest() -> None:
    automaton = counting(3, 2, factors=True)
    assert [level.tolist() for level in automaton.reachable(3)] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    lowest = float(automaton.score(all_bits(5)).log().min())
    assert automaton.lowest(5) == pytest.approx(lowest, abs=1e-12)
