"""k-mers of sequences, the sum of their weights along an automaton, and the ridge regression that finds them."""

import pytest
import torch
from torch import Tensor

from stochflow.objectives.planning.kmer_model import PlacedKmers, fit_ridge

PENALTIES = [4.0**power for power in range(-4, 7)]


def left_out(design: Tensor, targets: Tensor, penalty: float) -> float:
    """Squared error of every row predicted by a fit without it; the mean is that of all rows."""
    centred, total = targets - targets.mean(), 0.0
    for row in range(len(design)):
        others = torch.arange(len(design)) != row
        rest = design[others]
        normal = rest.T @ rest + penalty * torch.eye(design.shape[1]).double()
        total += float(centred[row] - design[row] @ torch.linalg.solve(normal, rest.T @ centred[others])) ** 2
    return total


@pytest.mark.parametrize(("num_tokens", "length", "longest"), [(3, 4, 2), (2, 5, 3), (4, 1, 3), (2, 3, 1)])
def test_the_sum_of_weights_is_a_sum_along_the_automaton(
    num_tokens: int, length: int, longest: int, generator: torch.Generator
) -> None:
    kmers = PlacedKmers(num_tokens, length, longest)
    tokens = torch.randint(num_tokens, (20, length), generator=generator)
    weights = torch.randn(kmers.num, generator=generator, dtype=torch.float64)
    found = kmers.automaton(weights, 0.5)
    states, sums = torch.zeros(20, dtype=torch.int64), torch.zeros(20, dtype=torch.float64)
    assert found.steps is not None
    for letters in tokens.T:
        sums += found.steps[states, letters]
        states = found.automaton.transitions[states, letters]
    expected = torch.from_numpy(kmers.design(tokens) @ weights.numpy()) + 0.5
    torch.testing.assert_close(sums + found.terminal[states], expected)


def test_every_kmer_of_a_position_has_a_number_of_its_own() -> None:
    everything = torch.cartesian_prod(*[torch.arange(2)] * 4)
    kmers = PlacedKmers(2, 4, longest=3)
    design = torch.from_numpy(kmers.design(everything).toarray())
    # one letter at four places, two at three, three at two
    assert design.sum(dim=1).unique().tolist() == [4 + 3 + 2]
    assert int((design.sum(dim=0) > 0).sum()) == 4 * 2 + 3 * 4 + 2 * 8
    for word in (everything[:, 1:3], everything[:, 1:4]):
        same = (word.unsqueeze(1) == word).all(dim=-1)
        assert any(torch.equal(column.bool(), row) for column in design.T for row in same)


@pytest.mark.parametrize(("num_tokens", "longest"), [(4, 3), (20, 2), (256, 1)])
def test_a_large_alphabet_has_short_kmers(num_tokens: int, longest: int) -> None:
    assert PlacedKmers(num_tokens, 6, 3).longest == longest


@pytest.mark.parametrize("num_rows", [12, 60])  # fewer rows than weights, and more
def test_the_penalty_has_the_smallest_error_on_rows_left_out(num_rows: int, generator: torch.Generator) -> None:
    kmers = PlacedKmers(2, 5, longest=2)
    design = kmers.design(torch.randint(2, (num_rows, 5), generator=generator))
    dense = torch.from_numpy(design.toarray())
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    targets = dense @ torch.randn(kmers.num, generator=generator, dtype=torch.float64) + 0.5 * noise
    found = fit_ridge(design, targets)
    best = min(PENALTIES, key=lambda penalty: left_out(dense, targets, penalty))
    normal = dense.T @ dense + best * torch.eye(kmers.num).double()
    expected = torch.linalg.solve(normal, dense.T @ (targets - targets.mean()))
    torch.testing.assert_close(found.weights, expected, atol=1e-9, rtol=1e-6)
    assert found.mean == pytest.approx(float(targets.mean()))


def test_what_cannot_be_predicted_has_no_weights() -> None:
    everything = torch.cartesian_prod(*[torch.arange(2)] * 5)
    design = PlacedKmers(2, 5, longest=3).design(everything)
    parity = everything.sum(dim=1).double() % 2  # of which no three letters know anything
    for targets in (parity, torch.full((32,), -2.0).double()):
        assert not fit_ridge(design, targets).weights.any()
    assert fit_ridge(design, everything[:, 2].double()).weights.any()
