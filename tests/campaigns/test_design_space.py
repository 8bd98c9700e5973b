"""Counts and feasibility against enumeration, probabilities against their formula."""

import itertools

import pytest
import torch

from stochflow.campaigns.design_space import DesignSpace
from stochflow.config.environment import ConstraintConfig
from stochflow.environments.channels import Channel, noiseless, positional_slip
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ({"max_homopolymer": 2}, lambda word: not any(letter * 3 in word for letter in "ACGT")),
        ({"gc": [0.25, 0.5]}, lambda word: 2 <= sum(map(word.count, "GC")) <= 3),
        ({"forbid": ["ACG"], "fixed": ".....T"}, lambda word: "ACG" not in word and word[-1] == "T"),
        ({"symmetric": True}, lambda word: word == word[::-1].translate(str.maketrans("ACGT", "TGCA"))),
    ],
)
def test_the_size_is_the_number_of_feasible_words(rules, allowed):
    words = ["".join(letters) for letters in itertools.product("ACGT", repeat=6)]
    space = DesignSpace(DNA, 6, noiseless(4), ConstraintConfig(**rules))
    expected = [allowed(word) for word in words]
    assert space.feasible(DNA.encode(words)).tolist() == expected
    assert space.size == sum(expected)


def test_without_constraints_everything_is_feasible_and_counted_at_any_length():
    space = DesignSpace(DNA, 50, noiseless(4), ConstraintConfig())
    assert space.size == 4**50
    assert space.feasible(torch.zeros(3, 50, dtype=torch.int64)).all()


def test_what_floats_cannot_count_is_not_counted():
    assert DesignSpace(DNA, 50, noiseless(4), ConstraintConfig(max_homopolymer=3)).size is None


def test_the_probability_of_the_exact_sequence_is_a_product_over_positions():
    matrix = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]], dtype=torch.float64)
    space = DesignSpace(Alphabet("HP"), 3, Channel(matrix, "made up"), ConstraintConfig())
    found = space.channel.exact_probability(torch.tensor([[0, 1, 1], [0, 0, 0]]))
    torch.testing.assert_close(found, torch.tensor([0.9 * 0.7 * 0.7, 0.9**3], dtype=torch.float64))


def test_each_position_has_its_own_channel():
    space = DesignSpace(DNA, 2, positional_slip(4, [0.0, 0.4]), ConstraintConfig())
    orders = torch.zeros(4000, 2, dtype=torch.int64)
    outcomes = space.realised(orders, torch.Generator().manual_seed(0))
    assert (outcomes[:, 0] == 0).all()
    # 1 − 0.4 + 0.4 / 4, five standard errors
    assert abs((outcomes[:, 1] == 0).double().mean() - 0.7) < 5 * (0.7 * 0.3 / 4000) ** 0.5
    assert space.channel.exact_probability(orders[:1]).item() == pytest.approx(0.7)
