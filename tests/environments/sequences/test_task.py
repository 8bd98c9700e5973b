"""Alphabets and the enumeration of a task, on values worked by hand."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.sequences.task import Alphabet, Task

ACGT = Alphabet("ACGT")


class CountingTask(Task):
    """Score = the sequence read as a ternary number; counts how many sequences were scored."""

    name = "counting"
    description = "a task for tests"
    alphabet = Alphabet("xyz")
    length = 3
    mode_threshold = 0.0

    def __init__(self) -> None:
        self.num_scored = 0

    def score(self, tokens: Tensor) -> Tensor:
        self.num_scored += len(tokens)
        return tokens[:, 0] * 9.0 + tokens[:, 1] * 3.0 + tokens[:, 2]


def test_a_letter_becomes_its_place_in_the_alphabet() -> None:
    tokens = ACGT.encode(["ACGT", "TTAG"])
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [[0, 1, 2, 3], [3, 3, 0, 2]]


@given(st.lists(st.text("ACGT", min_size=5, max_size=5), min_size=1, max_size=20))
def test_decoding_undoes_encoding(sequences: list[str]) -> None:
    assert ACGT.decode(ACGT.encode(sequences)) == sequences


def test_the_order_of_letters_need_not_be_alphabetical() -> None:
    alphabet = Alphabet("TGα")
    assert alphabet.encode(["αTG"]).tolist() == [[2, 0, 1]]
    assert alphabet.decode(torch.tensor([[2, 0, 1]])) == ["αTG"]


@pytest.mark.parametrize("sequence", ["ACGU", "acgt", "AC-T", "ACGé"])
def test_a_letter_outside_the_alphabet_is_named(sequence: str) -> None:
    with pytest.raises(DataError, match="not in the alphabet ACGT"):
        ACGT.encode(["ACGT", sequence])


def test_sequences_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r"lengths \[2, 3\]"):
        ACGT.encode(["AC", "ACG"])


def test_no_sequences_make_an_empty_table() -> None:
    assert len(ACGT.encode([])) == 0


def test_all_sequences_are_in_lexicographic_order() -> None:
    expected = ["".join(letters) for letters in itertools.product("xyz", repeat=3)]
    assert CountingTask.alphabet.decode(CountingTask().all_sequences) == expected


def test_all_scores_follow_the_order_of_all_sequences_and_are_computed_once() -> None:
    task = CountingTask()
    for _ in range(2):
        torch.testing.assert_close(task.all_scores, torch.arange(27, dtype=torch.float64), atol=0, rtol=0)
    assert task.num_scored == 27


@pytest.mark.parametrize(("length", "enumerable"), [(10, True), (11, False)])
def test_a_task_is_enumerable_up_to_a_million_sequences(length: int, enumerable: bool) -> None:
    task = CountingTask()
    task.alphabet, task.length = ACGT, length
    assert task.enumerable is enumerable
