"""Observed letters at their intended positions: alignment by edit distance, and the nearest order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stochflow.environments.alignment import UNSEEN, Alignment, Strings, align, nearest
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")
words = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def strings(*texts: str) -> Strings:
    tokens = [DNA.letters.index(letter) for text in texts for letter in text]
    return Strings(np.array(tokens, dtype=np.int16), np.array([len(text) for text in texts]))


def aligned(intended: str, observed: str) -> tuple[str, list[int]]:
    """What became of every letter, a dash for nothing, and the number of edits."""
    found = align(strings(intended), strings(observed))
    assert found.kept.all()
    row = "".join("-" if token == UNSEEN else DNA.letters[token] for token in found.observed.tokens)
    return row, found.edits[0].tolist()


@pytest.mark.parametrize(
    ("intended", "observed", "row", "edits"),
    [
        ("ACGTAC", "ACGTAC", "ACGTAC", [0, 0, 0]),
        ("ACGTAC", "ACTTAC", "ACTTAC", [0, 0, 0]),
        ("ACGTAC", "ACTAC", "AC-TAC", [1, 0, 0]),
        ("ACGTAC", "ACGGTAC", "ACGTAC", [0, 1, 0]),
        ("ACGTAC", "ACGCTAC", "ACGTAC", [0, 0, 1]),
        ("ACGTA", "CGTAA", "CGTAA", [0, 0, 0]),  # too short for a shift to be likelier than substitutions
        ("ACGTACGTAC", "CGTACGTACC", "-CGTACGTAC", [1, 1, 0]),  # one deletion and one copy, not ten substitutions
    ],
)
def test_letters_lost_and_added_are_told_from_substitutions(
    intended: str, observed: str, row: str, edits: list[int]
) -> None:
    assert aligned(intended, observed) == (row, edits)


def test_strings_without_much_in_common_are_not_kept() -> None:
    found = align(strings("ACGTAC", "ACGTAC", "A"), strings("TTGGT", "TGCATG", "AC"))
    assert found.kept.tolist() == [False, False, True]


def test_strings_of_equal_length_are_kept_up_to_two_thirds_of_their_letters() -> None:
    observed = ("CCCCCCCCCAAA", "CCCCCCCCAAAA", "CCCC")
    found = align(strings("A" * 12, "A" * 12, "A" * 4), strings(*observed))
    assert found.kept.tolist() == [False, True, True]


@given(st.lists(st.tuples(words, words), min_size=1, max_size=6))
def test_letters_add_up(pairs: list[tuple[list[int], list[int]]]) -> None:
    texts = [["".join(DNA.letters[token] for token in word) for word in pair] for pair in pairs]
    found = align(strings(*(pair[0] for pair in texts)), strings(*(pair[1] for pair in texts)))
    ends = np.cumsum(found.observed.lengths)
    for index, (intended, observed) in enumerate(texts):
        row = found.observed.tokens[ends[index] - len(intended) : ends[index]]
        deletions, duplications, insertions = found.edits[index]
        if found.kept[index]:
            assert (row == UNSEEN).sum() == deletions
            assert len(intended) - deletions + duplications + insertions == len(observed)
            alone = align(strings(intended), strings(observed))
            np.testing.assert_array_equal(alone.observed.tokens, row)


def test_letters_that_could_not_be_read_are_not_seen() -> None:
    tokens = np.array([0, UNSEEN, 2, 3, 0, 1, 1], dtype=np.int16)
    found: Alignment = align(strings("ACGTAC"), Strings(tokens, np.array([7])))
    assert found.observed.tokens.tolist() == [0, UNSEEN, 2, 3, 0, 1]
    assert found.edits.tolist() == [[0, 1, 0]]


def test_reads_belong_to_the_nearest_order() -> None:
    orders = ["ACGTACGTAC", "ACGTACGTTT", "GGGGGGGGGG"]
    reads = ["ACGTACGTAC", "ACGTAGTAC", "ACGTACGTTA", "CCCCCCCCCC", "GGGGGGGTGG"]
    indices, ambiguous = nearest(reads, orders)
    # the third is one letter from the second order and two from the first; the fourth is far from all
    assert indices.tolist() == [0, 0, 1, -1, 2]
    assert not ambiguous.any()
    assert nearest(["ACGTACGTAT"], orders)[1].tolist() == [True]
