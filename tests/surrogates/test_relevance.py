"""Positions that matter more have larger weights in the distance of a Gaussian process."""

import pytest
import torch
from torch import Tensor

from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.kernels import Mixture
from stochflow.surrogates.letter_distances import hamming
from stochflow.surrogates.relevance import relevances

LENGTH = 12
MATTERING = torch.tensor([1, 2, 7])


def rows(num: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Designs whose score depends on three of twelve positions, one of them only together with another."""
    tokens = torch.randint(4, (num, LENGTH), generator=generator)
    first, second, third = (tokens[:, MATTERING] == 0).double().unbind(dim=1)
    return tokens, 0.2 + first * second + 0.5 * third


def test_a_process_finds_the_positions_that_matter_and_predicts_better(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, scores = rows(300, generator)
    new, truth = rows(500, generator)

    def error() -> tuple[float, Tensor | None]:
        process = GaussianProcess(4, LENGTH)
        process.fit(tokens, scores)
        return float((process.predict_mean(new) - truth).square().mean() / truth.var()), process.relevances

    weighed, found = error()
    assert found is not None
    others = torch.ones(LENGTH, dtype=torch.bool).index_fill(0, MATTERING, False)
    assert float(found[MATTERING].min()) > 3.0 * float(found[others].max())
    monkeypatch.setattr("stochflow.surrogates.gaussian_process._RELEVANT_ROWS", 10**9)
    equal, nothing = error()
    assert nothing is None
    assert weighed < 0.5 * equal


def test_few_rows_weigh_all_positions_alike(generator: torch.Generator) -> None:
    process = GaussianProcess(4, LENGTH)
    process.fit(*rows(60, generator))
    assert process.relevances is None


def test_many_letters_are_counted_and_not_weighed(generator: torch.Generator) -> None:
    process = GaussianProcess(40, LENGTH)
    tokens = torch.randint(40, (200, LENGTH), generator=generator)
    process.fit(tokens, (tokens[:, 0] < 20).double() + 0.1)
    assert process.relevances is None


def test_weighted_distances_are_sums_over_positions(generator: torch.Generator) -> None:
    tokens, others = torch.randint(4, (2, 9, LENGTH), generator=generator)
    weights = torch.rand(LENGTH, generator=generator, dtype=torch.float64)
    expected = ((tokens.unsqueeze(1) != others) * weights).sum(dim=-1)
    found = hamming(4).with_relevances(weights).between(tokens, others)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


def test_a_restored_process_goes_on_with_its_weights(generator: torch.Generator) -> None:
    tokens, scores = rows(240, generator)
    process, restored = GaussianProcess(4, LENGTH), GaussianProcess(4, LENGTH)
    process.fit(tokens[:150], scores[:150])
    restored.load_state_dict({name: tensor.clone() for name, tensor in process.state_dict().items()})
    for each in (process, restored):
        each.fit(tokens, scores)
    assert process.relevances is not None
    assert restored.relevances is not None
    assert torch.equal(process.relevances, restored.relevances)
    assert torch.equal(process.predict_mean(tokens), restored.predict_mean(tokens))


def test_scores_that_nothing_explains_leave_the_weights_finite(generator: torch.Generator) -> None:
    points = torch.eye(4)[torch.randint(4, (120, LENGTH), generator=generator)]
    targets = torch.randn(120, generator=generator, dtype=torch.float64)
    spectrum = torch.zeros(120, 120)
    found = relevances(points, spectrum, Mixture(1e-8, 1.0), targets, torch.zeros(120), None)
    assert bool(found.isfinite().all())
    assert float(found.mean()) == pytest.approx(1.0)
