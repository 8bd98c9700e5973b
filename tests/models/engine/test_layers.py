"""Gradients that are written out equal those that autograd finds."""

import pytest
import torch
from torch import Tensor

from stochflow.models.kmer_body import PrefixBody


@pytest.fixture(params=[False, True], ids=["residual", "plain"])
def body(request: pytest.FixtureRequest, generator: torch.Generator) -> PrefixBody:
    made = PrefixBody(3, 4, (1,), 6, 2, plain=request.param)
    made.initialise(generator)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator))
    return made.double()


def random_sums(generator: torch.Generator) -> Tensor:
    return torch.randn(7, 6, generator=generator, dtype=torch.float64, requires_grad=True)


def test_fused_features_pass_gradcheck(body: PrefixBody, generator: torch.Generator) -> None:
    assert torch.autograd.gradcheck(body.engine_features, (random_sums(generator),))


def test_fused_features_have_the_values_and_gradients_of_the_layers(
    body: PrefixBody, generator: torch.Generator
) -> None:
    sums, weights = random_sums(generator), torch.randn(7, 6, generator=generator, dtype=torch.float64)
    asked = [sums, *(weight for name, weight in body.named_parameters() if name.startswith(("norm", "layers")))]
    plain, use_engine = body.features(sums), body.engine_features(sums)
    torch.testing.assert_close(use_engine, plain, atol=1e-13, rtol=0)
    expected = torch.autograd.grad((plain * weights).sum(), asked)
    found = torch.autograd.grad((use_engine * weights).sum(), asked)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=0)


def test_without_layers_only_the_first_activation_is_left(generator: torch.Generator) -> None:
    for plain in (False, True):
        body = PrefixBody(3, 4, (1,), 6, 0, plain=plain).double()
        assert torch.autograd.gradcheck(body.engine_features, (random_sums(generator),))


def test_products_in_a_lower_precision_err_by_it_and_no_more(body: PrefixBody, generator: torch.Generator) -> None:
    sums, weights = random_sums(generator), torch.randn(7, 6, generator=generator, dtype=torch.float64)
    asked = [sums, *(weight for name, weight in body.named_parameters() if name.startswith(("norm", "layers")))]
    exact = body.features(sums)
    expected = torch.autograd.grad((exact * weights).sum(), asked)
    body.precision = torch.float32
    for features in (body.features(sums), body.engine_features(sums)):
        assert features.dtype == torch.float64
        assert 1e-10 < float((features - exact).detach().abs().max()) < 1e-4
        found = torch.autograd.grad((features * weights).sum(), asked)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-4)
