"""Codes and sequences are inverse to each other, in the order of a dictionary; first rows are the earliest."""

import itertools

import pytest
import torch

from stochflow.core.codes import decode, encode, first_rows, place_values


@pytest.mark.parametrize(("base", "length"), [(2, 1), (2, 5), (4, 3), (20, 2)])
def test_codes_number_all_sequences_in_lexicographic_order(base: int, length: int) -> None:
    sequences = torch.tensor(list(itertools.product(range(base), repeat=length)))
    assert encode(sequences, base).tolist() == list(range(base**length))
    assert torch.equal(decode(torch.arange(base**length), base, length), sequences)


def test_the_empty_sequence_has_the_code_zero() -> None:
    assert place_values(4, 0).tolist() == []
    assert encode(torch.empty(3, 0, dtype=torch.int64), 4).tolist() == [0, 0, 0]
    assert decode(torch.zeros(3, dtype=torch.int64), 4, 0).shape == (3, 0)


def test_codes_keep_leading_dimensions() -> None:
    tokens = torch.randint(7, (2, 3, 5), generator=torch.Generator().manual_seed(0))
    assert encode(tokens, 7).shape == (2, 3)
    assert torch.equal(decode(encode(tokens, 7), 7, 5), tokens)


def test_first_rows_are_the_earliest_of_each_group() -> None:
    groups = torch.randint(11, (200,), generator=torch.Generator().manual_seed(1))
    assert first_rows(groups, 11).tolist() == [groups.tolist().index(group) for group in range(11)]


def test_first_rows_may_be_given_by_number() -> None:
    found = first_rows(torch.tensor([1, 0, 1, 0]), 2, rows=torch.tensor([7, 9, 3, 8]))
    assert found.tolist() == [8, 3]
