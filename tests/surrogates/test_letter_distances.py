"""Distances of letters: exact where they are integers, and a kernel for every rate."""

import pytest
import torch

from stochflow.core.errors import DataError
from stochflow.environments.registry import make_task
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.surrogates.blosum62 import AMINO_ACIDS, blosum62
from stochflow.surrogates.letter_distances import (
    LetterDistance,
    amino_acids,
    bit_words,
    embedded,
    hamming,
    letter_distance,
)


@pytest.mark.parametrize("distance", [hamming(20), hamming(256), bit_words(256), amino_acids(AMINO_ACIDS)])
def test_sums_over_positions_are_those_of_the_table(distance: LetterDistance) -> None:
    num_tokens = len(distance.embedding)
    tokens = torch.randint(num_tokens, (30, 100), generator=torch.Generator().manual_seed(0))
    others = tokens.flip(0)[:7].clone()
    expected = distance.table[tokens.unsqueeze(1), others].sum(dim=-1)
    exact = distance.table.frac().count_nonzero() == 0
    found = distance.between(tokens, others).double()
    torch.testing.assert_close(found, expected, atol=0.0 if exact else 1e-3, rtol=0)
    assert exact or num_tokens == 20


def test_bits_are_counted() -> None:
    expected = [[(a ^ b).bit_count() for b in range(8)] for a in range(8)]
    assert bit_words(8).table.tolist() == expected


@pytest.mark.parametrize("distance", [hamming(5), bit_words(8), amino_acids(AMINO_ACIDS), amino_acids(AMINO_ACIDS, 23)])
@pytest.mark.parametrize("rate", [0.01, 0.5, 3.0])
def test_every_rate_gives_a_kernel(distance: LetterDistance, rate: float) -> None:
    assert torch.linalg.eigvalsh((-rate * distance.table).exp()).min() > -1e-9


def test_blosum62_is_symmetric_and_orders_amino_acids() -> None:
    matrix = blosum62(AMINO_ACIDS)
    assert torch.equal(matrix, matrix.T)
    assert matrix.diagonal().tolist() == [4, 5, 6, 6, 9, 5, 5, 6, 8, 4, 4, 5, 5, 6, 7, 4, 5, 11, 7, 4]
    assert int(matrix.sum()) == -426
    letters = "ACDEFGHIKLMNPQRSTVWY"
    distance = amino_acids(letters)
    assert distance.mean == pytest.approx(1.0, abs=1e-5)
    row = distance.table[letters.index("I")]
    assert row.argsort()[:3].tolist() == [letters.index(letter) for letter in "IVL"]
    log_odds = blosum62(letters)
    raw = (log_odds.diagonal().unsqueeze(1) + log_odds.diagonal()) / 2 - log_odds
    torch.testing.assert_close(distance.table, raw / (raw.sum() / 380), atol=1e-5, rtol=0)


def test_tokens_after_the_letters_are_far_from_all_others() -> None:
    table = amino_acids(AMINO_ACIDS, 22).table
    assert table.shape == (22, 22)
    torch.testing.assert_close(table[:20, :20], amino_acids(AMINO_ACIDS).table)
    assert table[20, 21].item() == pytest.approx(1.0)
    assert 0.8 < table[20, :20].mean().item() < 1.2


def test_unknown_letters_and_tables_that_give_no_kernel_are_refused() -> None:
    with pytest.raises(DataError, match="does not know"):
        blosum62("AXB")
    with pytest.raises(DataError, match="symmetric"):
        embedded(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    # three letters in a row: the outer ones are further apart than squared distances allow
    with pytest.raises(DataError, match="squared Euclidean"):
        embedded(torch.tensor([[0.0, 1.0, 9.0], [1.0, 0.0, 1.0], [9.0, 1.0, 0.0]]))


def test_a_task_has_the_distance_that_fits_its_letters() -> None:
    class Protein(Task):
        name, alphabet, length, mode_threshold, description = "p", Alphabet(AMINO_ACIDS[::-1]), 3, 1.0, ""

        def score(self, tokens: torch.Tensor) -> torch.Tensor:
            return tokens.double().sum(dim=1)

    torch.testing.assert_close(letter_distance(Protein()).table, amino_acids(AMINO_ACIDS[::-1]).table)
    assert torch.equal(letter_distance(make_task("bits:16,8")).table, bit_words(256).table)
    for name in ("tfbind8", "ehrlich:20,15,2,4"):
        task = make_task(name)
        assert torch.equal(letter_distance(task).table, hamming(task.num_tokens).table)


def test_counted_differences_are_those_of_the_embeddings_to_the_bit() -> None:
    counted = hamming(30)
    tokens = torch.randint(30, (50, 12), generator=torch.Generator().manual_seed(0))
    by_points = counted.between_points(counted.points(tokens), counted.points(tokens[:20]))
    assert type(counted) is not type(hamming(4))
    assert torch.equal(counted.between(tokens, tokens[:20]), by_points)
