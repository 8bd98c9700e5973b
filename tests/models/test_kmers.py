"""Numbering k-mers: own rows while they fit, hashed rows that see every letter when they do not."""

import pytest
import torch

from stochflow.models.kmers import Kmers, kmer_buckets, kmers_of_long_sequences


def test_codes_that_fit_keep_their_own_row() -> None:
    codes = torch.arange(64)
    assert torch.equal(kmer_buckets(codes, 64, 64), codes)


def test_hashed_codes_stay_inside_the_table_and_fill_it_evenly() -> None:
    rows = kmer_buckets(torch.arange(20**5), 20**5, 4096)
    assert rows.min() >= 0
    assert rows.max() < 4096
    counts = torch.bincount(rows, minlength=4096)
    # 781 codes a row on average; a hash that forgets letters would pile them up
    assert counts.min() > 0.8 * 20**5 / 4096
    assert counts.max() < 1.2 * 20**5 / 4096


def test_a_change_of_any_letter_moves_the_kmer() -> None:
    powers = 4 ** torch.arange(7)
    moved = kmer_buckets(1234 + powers, 4**7, 4096) != kmer_buckets(torch.tensor([1234]), 4**7, 4096)
    assert bool(moved.all())


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (1, Kmers((1,), (1,), (1,))),
        (2, Kmers((1,), (9, 13), (5, 9, 13))),
        (4, Kmers((1,), (4, 6), (2, 4, 6))),
        (20, Kmers((1,), (2, 3), (1, 2, 3))),
        (32, Kmers((1,), (2,), (1, 2))),
        (256, Kmers((1,), (1,), (1,))),
    ],
)
def test_kmers_of_long_sequences_fit_their_tables(num_tokens: int, expected: Kmers) -> None:
    assert kmers_of_long_sequences(num_tokens, 4096) == expected
