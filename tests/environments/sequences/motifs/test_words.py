"""Words that count as binding sites."""

import itertools

import numpy as np
import pytest

from stochflow.environments.sequences.motifs.words import best_words, binding_sites, reverse_complement


@pytest.fixture
def matrix() -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(4, 0.7), size=5)


def test_the_best_words_are_the_best_of_all(matrix: np.ndarray) -> None:
    log_odds = np.rint(1000 * np.log2((matrix + 0.01) / 1.04 * 4)).astype(int)
    everything = {
        word: sum(int(log_odds[column, token]) for column, token in enumerate(word))
        for word in itertools.product(range(4), repeat=5)
    }
    ordered = sorted(everything.items(), key=lambda found: (-found[1], found[0]))
    assert list(best_words(matrix, num=24).items()) == ordered[:24]


def test_words_that_are_alike_come_in_alphabetical_order() -> None:
    assert list(best_words(np.full((3, 4), 0.25), num=3)) == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]


def test_sites_are_the_same_on_both_strands_and_strong_in_the_upper_half(matrix: np.ndarray) -> None:
    sites, words = binding_sites(matrix), best_words(matrix)
    assert all(sites[reverse_complement(word)] == strength for word, strength in sites.items())
    kept = {word: odds for word, odds in words.items() if odds >= max(words.values()) / 2}
    middle = (max(kept.values()) + min(kept.values())) / 2
    assert set(sites) == {strand for word in kept for strand in (word, reverse_complement(word))}
    for word, strength in sites.items():
        strands = [kept[strand] for strand in (word, reverse_complement(word)) if strand in kept]
        assert strength == (2 if max(strands) >= middle else 1)
    assert set(sites.values()) == {1, 2}


def test_a_matrix_that_prefers_nothing_has_no_sites() -> None:
    assert binding_sites(np.full((3, 4), 0.25)) == {}
