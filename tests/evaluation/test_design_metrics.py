import itertools
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stochflow.evaluation import design_metrics as designs
from stochflow.evaluation.design_metrics import (
    _distances,
    mean_pairwise_edit,
    mean_pairwise_hamming,
    novelty,
    num_modes,
    top_k,
    unique_fraction,
)

LETTERS = "ACGT"
NO_ROWS = torch.empty(0, 4, dtype=torch.int64)
# the first call into torch may take long; which examples are tried must not change from run to run
checked = settings(deadline=None, derandomize=True, max_examples=150)


def encode(*sequences: str) -> Tensor:
    return torch.tensor([[LETTERS.index(letter) for letter in sequence] for sequence in sequences])


def as_tensor(rows: list[list[int]], length: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), length)


@st.composite
def designs_and_scores(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Few letters and few scores, so that duplicates, ties and contradictory scores are common."""
    length = draw(st.integers(1, 5))
    rows = draw(st.lists(st.lists(st.integers(0, 2), min_size=length, max_size=length), max_size=9))
    scores = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=len(rows), max_size=len(rows)))
    return as_tensor(rows, length), torch.tensor(scores, dtype=torch.float64)


def naive_hamming(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))


def naive_edit(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    if not left or not right:
        return len(left) + len(right)
    return min(
        naive_edit(left[1:], right) + 1,
        naive_edit(left, right[1:]) + 1,
        naive_edit(left[1:], right[1:]) + (left[0] != right[0]),
    )


def naive_ranking(tokens: Tensor, scores: Tensor) -> list[tuple[float, tuple[int, ...]]]:
    best: dict[tuple[int, ...], float] = {}
    for row, score in zip(tokens.tolist(), scores.tolist(), strict=True):
        best[tuple(row)] = max(score, best.get(tuple(row), score))
    return sorted(((score, row) for row, score in best.items()), key=lambda entry: (-entry[0], entry[1]))


def hamming(tokens: Tensor) -> Tensor:
    return _distances(tokens, tokens, padding=None)


def naive_num_modes(tokens: Tensor, scores: Tensor, score_threshold: float, distance_threshold: int) -> int:
    modes: list[tuple[int, ...]] = []
    for score, row in naive_ranking(tokens, scores):
        if score > score_threshold and all(naive_hamming(row, mode) > distance_threshold for mode in modes):
            modes.append(row)
    return len(modes)


def test_hamming_counts_the_positions_that_differ() -> None:
    distances = hamming(encode("ACGT", "ACGA", "TGCA"))
    assert distances.tolist() == [[0, 1, 4], [1, 0, 3], [4, 3, 0]]
    assert distances.dtype == torch.int64


def test_mean_hamming_averages_over_unordered_pairs() -> None:
    assert mean_pairwise_hamming(encode("ACGT", "ACGA", "TGCA")) == pytest.approx((1 + 4 + 3) / 3, abs=1e-15)


def test_mean_hamming_counts_a_repeated_row_as_a_pair_at_distance_zero() -> None:
    assert mean_pairwise_hamming(encode("AA", "AA", "CC")) == pytest.approx((0 + 2 + 2) / 3, abs=1e-15)


def test_a_shifted_sequence_is_two_edits_away_though_every_position_differs() -> None:
    shifted = encode("ACGT", "CGTA")
    assert mean_pairwise_hamming(shifted) == 4.0
    assert mean_pairwise_edit(shifted) == 2.0


def test_mean_edit_averages_over_unordered_pairs() -> None:
    # ACGT→CGTA 2 edits, ACGT→ACGA 1, CGTA→ACGA 2 (insert A, delete T)
    assert mean_pairwise_edit(encode("ACGT", "CGTA", "ACGA")) == pytest.approx(5 / 3, abs=1e-15)


@checked
@given(designs_and_scores())
def test_distances_agree_with_naive_ones(case: tuple[Tensor, Tensor]) -> None:
    tokens, _ = case
    rows = [tuple(row) for row in tokens.tolist()]
    pairs = list(itertools.combinations(rows, 2))
    assert hamming(tokens).tolist() == [[naive_hamming(a, b) for b in rows] for a in rows]
    expected_hamming = sum(naive_hamming(a, b) for a, b in pairs) / max(len(pairs), 1)
    assert mean_pairwise_hamming(tokens) == pytest.approx(expected_hamming, abs=1e-12)
    expected_edit = sum(naive_edit(a, b) for a, b in pairs) / max(len(pairs), 1)
    assert mean_pairwise_edit(tokens) == pytest.approx(expected_edit, abs=1e-12)


def test_edit_distance_does_not_depend_on_the_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.randint(4, (13, 6), generator=torch.Generator().manual_seed(0))
    whole = mean_pairwise_edit(tokens)
    monkeypatch.setattr(designs, "_PAIRS_PER_CHUNK", 5)
    assert mean_pairwise_edit(tokens) == whole


def test_byte_tokens_measure_like_int64_tokens() -> None:
    tokens = torch.randint(4, (20, 6), generator=torch.Generator().manual_seed(1))
    bytes_ = tokens.to(torch.uint8)
    assert torch.equal(hamming(bytes_), hamming(tokens))
    assert mean_pairwise_hamming(bytes_) == mean_pairwise_hamming(tokens)
    assert mean_pairwise_edit(bytes_) == mean_pairwise_edit(tokens)
    assert novelty(bytes_, bytes_[:3]) == novelty(tokens, tokens[:3])


def test_a_mode_swallows_its_neighbourhood_and_nothing_beyond() -> None:
    # distances to AAAA: 2 (inside), 3 (outside), 4 (outside, but 1 from the second mode)
    tokens = encode("AAAA", "AACC", "ACCC", "CCCC")
    scores = torch.tensor([1.0, 0.9, 0.8, 0.7])
    assert num_modes(tokens, scores, score_threshold=0.5) == 2
    assert num_modes(tokens, scores, score_threshold=0.5, distance_threshold=3) == 2
    assert num_modes(tokens, scores, score_threshold=0.5, distance_threshold=4) == 1
    assert num_modes(tokens, scores, score_threshold=0.5, distance_threshold=0) == 4


def test_the_best_design_opens_the_first_mode() -> None:
    # the middle one alone covers both ends; an end covers only the middle
    tokens = encode("AAAA", "AACC", "CCCC")
    assert num_modes(tokens, torch.tensor([0.6, 0.9, 0.7]), score_threshold=0.5) == 1
    assert num_modes(tokens, torch.tensor([0.9, 0.6, 0.7]), score_threshold=0.5) == 2


def test_equal_scores_open_modes_in_lexicographic_order() -> None:
    # AAAA comes first and leaves CCCC outside; starting from AACC would have covered both
    tokens = encode("AACC", "CCCC", "AAAA")
    assert num_modes(tokens, torch.ones(3), score_threshold=0.5) == 2


def test_a_score_equal_to_the_threshold_opens_no_mode() -> None:
    tokens = encode("AAAA", "CCCC")
    assert num_modes(tokens, torch.tensor([0.9, 0.95], dtype=torch.float64), score_threshold=0.9) == 1


@pytest.mark.parametrize("distance_threshold", [-1, 0, 2])
def test_a_repeated_design_opens_one_mode(distance_threshold: int) -> None:
    tokens = encode("AAAA", "AAAA", "AAAA")
    assert num_modes(tokens, torch.ones(3), 0.5, distance_threshold) == 1


@checked
@given(designs_and_scores(), st.sampled_from([-1.0, 0.0, 0.25, 1.0]), st.integers(0, 4))
def test_modes_agree_with_the_naive_count(
    case: tuple[Tensor, Tensor], score_threshold: float, distance_threshold: int
) -> None:
    expected = naive_num_modes(*case, score_threshold, distance_threshold)
    assert num_modes(*case, score_threshold, distance_threshold) == expected


def test_top_k_returns_distinct_designs_best_first() -> None:
    tokens = encode("AC", "GT", "GT", "CA", "TT")
    scores = torch.tensor([0.5, 0.9, 0.9, 0.5, 0.1])
    best, best_scores = top_k(tokens, scores, 3)
    assert torch.equal(best[:1], encode("GT"))
    assert sorted(best[1:].tolist()) == encode("AC", "CA").tolist()
    assert torch.equal(best_scores, torch.tensor([0.9, 0.5, 0.5]))


def test_designs_that_are_equally_good_are_chosen_without_regard_to_their_letters() -> None:
    tokens = torch.cartesian_prod(*[torch.arange(4)] * 6)
    best, _ = top_k(tokens, torch.ones(len(tokens)), 400)
    assert len(best.unique(dim=0)) == 400
    # each letter is expected 100 times at a position, hypergeometric with deviation √(400·¼·¾·(1 − 400/4096)) = 8.2
    counts = torch.stack([(best == letter).sum(dim=0) for letter in range(4)])
    assert (counts - 100).abs().max() < 4 * 8.2
    # and so is every pair of neighbours, 25 times with deviation 4.6
    pairs = torch.stack([(4 * best[:, t] + best[:, t + 1]).bincount(minlength=16) for t in range(5)])
    assert (pairs - 25).abs().max() < 4.5 * 4.6


def test_a_design_scored_twice_has_its_better_score() -> None:
    tokens = encode("AC", "GT", "AC")
    best, best_scores = top_k(tokens, torch.tensor([-3.0, -2.0, -1.0]), 5)
    assert torch.equal(best, encode("AC", "GT"))
    assert best_scores.tolist() == [-1.0, -2.0]


@checked
@given(designs_and_scores(), st.integers(0, 6))
def test_top_k_agrees_with_the_naive_ranking(case: tuple[Tensor, Tensor], k: int) -> None:
    best, best_scores = top_k(*case, k)
    expected = naive_ranking(*case)
    found = [(score, tuple(row)) for score, row in zip(best_scores.tolist(), best.tolist(), strict=True)]
    assert best_scores.tolist() == [score for score, _ in expected[:k]]
    assert len(set(found)) == len(found)
    assert set(found) <= set(expected)


def test_top_k_refuses_a_negative_k() -> None:
    with pytest.raises(ValueError, match="k is -1"):
        top_k(encode("AC"), torch.ones(1), -1)


@pytest.mark.parametrize("scores", [torch.tensor([0.5, torch.nan]), torch.ones(3), torch.ones(2, 1)])
def test_scores_that_do_not_fit_the_designs_are_refused(scores: Tensor) -> None:
    tokens = encode("AC", "GT")
    with pytest.raises(ValueError, match="give one number per design"):
        top_k(tokens, scores, 1)
    with pytest.raises(ValueError, match="give one number per design"):
        num_modes(tokens, scores, 0.0)


def test_novelty_is_the_mean_distance_to_the_nearest_reference() -> None:
    # nearest to ACGT is ACGA (1), to GGGG is ACGA or TGCA (3)
    assert novelty(encode("ACGT", "GGGG"), encode("ACGA", "TGCA")) == 2.0


def test_the_reference_set_itself_has_no_novelty() -> None:
    tokens = torch.randint(4, (50, 6), generator=torch.Generator().manual_seed(2))
    assert novelty(tokens, tokens.flip(0)) == 0.0


@checked
@given(designs_and_scores(), st.randoms(use_true_random=False), st.integers(1, 4))
def test_novelty_agrees_with_the_naive_one_in_chunks_of_any_size(
    case: tuple[Tensor, Tensor], random: Random, num_references: int
) -> None:
    tokens, _ = case
    length = tokens.shape[1]
    reference = as_tensor([[random.randrange(3) for _ in range(length)] for _ in range(num_references)], length)
    nearest = [min(naive_hamming(row, other) for other in reference.tolist()) for row in tokens.tolist()]
    expected = sum(nearest) / max(len(nearest), 1)
    for limit in (1, 2 * num_references, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(designs, "_DISTANCES_PER_CHUNK", limit)
            assert novelty(tokens, reference) == pytest.approx(expected, abs=1e-12)


def test_novelty_never_holds_more_distances_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    num_distances = []

    def recording_hamming(left: Tensor, right: Tensor) -> Tensor:
        num_distances.append(len(left) * len(right))
        return hamming(left, right)

    hamming = designs._hamming
    monkeypatch.setattr(designs, "_hamming", recording_hamming)
    monkeypatch.setattr(designs, "_DISTANCES_PER_CHUNK", 25)
    tokens = torch.randint(4, (17, 6), generator=torch.Generator().manual_seed(3))
    novelty(tokens, tokens[:10])
    assert max(num_distances) <= 25
    assert sum(num_distances) == 17 * 10


def test_novelty_against_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="empty reference set"):
        novelty(encode("ACGT"), NO_ROWS)


def test_novelty_against_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="length 4 and 3"):
        novelty(encode("ACGT"), encode("ACG"))


def test_unique_fraction_counts_each_design_once() -> None:
    assert unique_fraction(encode("AC", "AC", "GT", "CA")) == 0.75
    assert unique_fraction(encode("AC", "AC", "AC", "AC")) == 0.25


@checked
@given(designs_and_scores(), st.randoms(use_true_random=False))
def test_no_metric_depends_on_the_order_of_the_rows(case: tuple[Tensor, Tensor], random: Random) -> None:
    tokens, scores = case
    order = list(range(len(tokens)))
    random.shuffle(order)
    shuffled, shuffled_scores = tokens[order], scores[order]
    assert torch.equal(hamming(shuffled), hamming(tokens)[order][:, order])
    assert mean_pairwise_hamming(shuffled) == mean_pairwise_hamming(tokens)
    assert mean_pairwise_edit(shuffled) == mean_pairwise_edit(tokens)
    assert num_modes(shuffled, shuffled_scores, 0.0, 1) == num_modes(tokens, scores, 0.0, 1)
    for found, expected in zip(top_k(shuffled, shuffled_scores, 3), top_k(tokens, scores, 3), strict=True):
        assert torch.equal(found, expected)
    assert novelty(shuffled, torch.zeros_like(tokens[:1])) == novelty(tokens, torch.zeros_like(tokens[:1]))
    assert unique_fraction(shuffled) == unique_fraction(tokens)


def test_no_designs_have_no_modes_no_diversity_and_no_novelty() -> None:
    no_scores = torch.empty(0)
    assert hamming(NO_ROWS).shape == (0, 0)
    assert mean_pairwise_hamming(NO_ROWS) == 0.0
    assert mean_pairwise_edit(NO_ROWS) == 0.0
    assert num_modes(NO_ROWS, no_scores, 0.0) == 0
    best, best_scores = top_k(NO_ROWS, no_scores, 5)
    assert best.shape == (0, 4)
    assert best_scores.shape == (0,)
    assert novelty(NO_ROWS, encode("ACGT")) == 0.0
    assert unique_fraction(NO_ROWS) == 0.0


def test_a_single_design_is_one_mode_without_diversity() -> None:
    tokens, scores = encode("ACGT"), torch.tensor([0.9])
    assert hamming(tokens).tolist() == [[0]]
    assert mean_pairwise_hamming(tokens) == 0.0
    assert mean_pairwise_edit(tokens) == 0.0
    assert num_modes(tokens, scores, 0.5) == 1
    best, best_scores = top_k(tokens, scores, 5)
    assert torch.equal(best, tokens)
    assert torch.equal(best_scores, scores)
    assert novelty(tokens, encode("ACGA")) == 1.0
    assert unique_fraction(tokens) == 1.0


def levenshtein(one: str, other: str) -> int:
    """Textbook recursion, one cell at a time."""
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        current = [row]
        for column, its in enumerate(other, start=1):
            current.append(min(above[column] + 1, current[-1] + 1, above[column - 1] + (letter != its)))
        above = current
    return above[-1]


MIXED = ["", "a", "ab", "ba", "abab", "baba", "bbbbb", "aabab", "abba", "b"]


def padded(strings: list[str]) -> Tensor:
    """Letters a, b as 0, 1 and 2 after the end, [num, 6]."""
    return torch.tensor([["ab".index(letter) for letter in string] + [2] * (6 - len(string)) for string in strings])


def test_edit_distances_of_unequal_lengths_ignore_the_padding() -> None:
    pairs = [(one, other) for number, one in enumerate(MIXED) for other in MIXED[number + 1 :]]
    expected = sum(levenshtein(one, other) for one, other in pairs) / len(pairs)
    assert designs.mean_pairwise_edit(padded(MIXED), padding=2) == pytest.approx(expected)
    assert designs.mean_pairwise_edit(padded(MIXED)) != pytest.approx(expected)


@pytest.mark.parametrize("distance", [0, 1, 2, 4, 9])
def test_modes_of_unequal_lengths_lie_apart_in_edits(distance: int) -> None:
    scores = torch.arange(len(MIXED), 0, -1).double()
    modes: list[str] = []
    for design in MIXED[:-2]:  # the last two score too low
        if all(levenshtein(design, mode) > distance for mode in modes):
            modes.append(design)
    assert designs.num_modes(padded(MIXED), scores, 2.5, distance, padding=2) == len(modes)


def test_novelty_of_unequal_lengths_is_the_edit_distance_to_the_nearest() -> None:
    reference = ["ab", "bbbb"]
    drawn = [*MIXED, "abab"]
    expected = [min(levenshtein(design, known) for known in reference) for design in drawn]
    # the reference may be filled up to another width
    found = designs.novelty(padded(drawn), padded(reference)[:, :5], padding=2)
    assert found == pytest.approx(sum(expected) / len(expected))
