"""Strings of unequal lengths as tokens, and back."""

import pytest
import torch

from stochflow.core.errors import DataError
from stochflow.environments.sequences.variable_length import LengthRules, StopAlphabet

ALPHABET = StopAlphabet("ACGT", LengthRules(4, 1, 4, deletion=0.1, duplication=0.1))


def test_strings_come_back_as_they_were() -> None:
    strings = ["A", "ACGT", "TT", "GCA"]
    tokens = ALPHABET.encode(strings)
    assert tokens.tolist()[0] == [0, 4, 4, 4]
    assert tokens.shape == (4, 4)
    assert ALPHABET.decode(tokens) == strings
    assert ALPHABET.encode([]).shape == (0, 4)


def test_gaps_are_dropped_doubles_written_twice_and_nothing_follows_the_stop() -> None:
    gap, double_g = 5, 6 + 2
    assert ALPHABET.decode(torch.tensor([[0, gap, double_g, 3], [1, 4, 4, 4], [gap, gap, gap, gap]])) == [
        *("AGGT", "C", "")
    ]


def test_every_token_has_a_name() -> None:
    assert ALPHABET.labels == ["A", "C", "G", "T", "stop", "gap", "AA", "CC", "GG", "TT"]
    assert len(ALPHABET) == len(ALPHABET.labels)
    assert StopAlphabet("AB", LengthRules(2, 1, 2)).labels == ["A", "B", "stop"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="has 5 letters, and designs have 4 at most; raise --max-length"):
        ALPHABET.encode(["A", "ACGTA"])
    with pytest.raises(DataError, match=r"\['X'\] are not in the alphabet ACGT"):
        ALPHABET.encode(["A", "AX"])
