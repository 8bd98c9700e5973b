"""What a residual costs: the same near balance, chosen far from it, and never more than a number can hold."""

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from stochflow.config.schema import LossShape
from stochflow.objectives.regression_losses import balance_loss, shaped

SHAPES: tuple[LossShape, ...] = get_args(LossShape)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_near_balance_every_shape_is_the_square(shape: LossShape) -> None:
    residual = double(-1e-3, -1e-4, 0.0, 1e-4, 1e-3)
    torch.testing.assert_close(shaped(residual, shape), residual.square(), rtol=1e-3, atol=1e-15)


def test_hand_worked_costs() -> None:
    residual = double(math.log(4.0), -math.log(4.0))
    expected: dict[LossShape, Tensor] = {
        "squared": double(math.log(4.0) ** 2, math.log(4.0) ** 2),
        "linex": 2.0 * double(0.25 + math.log(4.0) - 1.0, 4.0 - math.log(4.0) - 1.0),
        "linex-half": 8.0 * double(0.5 + math.log(2.0) - 1.0, 2.0 - math.log(2.0) - 1.0),
        "linex-reversed": 2.0 * double(4.0 - math.log(4.0) - 1.0, 0.25 + math.log(4.0) - 1.0),
        "shifted-cosh": double(4.0 + 0.25 - 2.0, 0.25 + 4.0 - 2.0),
    }
    assert set(expected) == set(SHAPES)
    for shape, cost in expected.items():
        torch.testing.assert_close(shaped(residual, shape), cost)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_on_policy_gradient_is_that_of_the_divergence(shape: LossShape, generator: torch.Generator) -> None:
    logits, back_logits = (torch.randn(5, dtype=torch.float64, generator=generator) for _ in range(2))
    logits.requires_grad_()
    log_forward, log_backward = torch.log_softmax(logits, dim=0), torch.log_softmax(back_logits, dim=0)
    residual, forward, backward = log_forward - log_backward, log_forward.exp(), log_backward.exp()
    sampled = (forward.detach() * shaped(residual, shape)).sum()
    reverse_kl, forward_kl = (forward * residual).sum(), -(backward * residual).sum()
    chi_square = ((forward - backward).square() / backward).sum()
    divergences = {
        "squared": 2.0 * reverse_kl,
        "linex": 2.0 * forward_kl,
        "linex-half": 4.0 * (forward.sqrt() - backward.sqrt()).square().sum(),
        "linex-reversed": chi_square,
        "shifted-cosh": 0.5 * chi_square + forward_kl,
    }
    of_loss, of_divergence = (
        torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (sampled, divergences[shape])
    )
    torch.testing.assert_close(of_loss, of_divergence)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e2, 1e4])
def test_value_and_gradient_stay_finite_and_point_back_to_balance(shape: LossShape, size: float) -> None:
    residual = torch.tensor([-size, size], requires_grad=True)
    cost = shaped(residual, shape)
    cost.sum().backward()
    assert bool(torch.isfinite(cost).all())
    assert bool((cost > 0).all())
    assert residual.grad is not None
    assert bool(torch.isfinite(residual.grad).all())
    assert residual.grad[0] < 0 < residual.grad[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_agrees_with_finite_differences_on_both_sides_of_the_knee(shape: LossShape) -> None:
    residual = double(-25.0, -12.0, -9.0, -1.0, 0.0, 0.5, 9.0, 12.0, 25.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda values: shaped(values, shape), residual)


def test_the_mean_is_over_real_steps_and_the_default_is_the_mean_square_to_the_last_bit() -> None:
    residual = torch.tensor([[0.3, -2.7, 50.0], [1.9, 50.0, 50.0]])
    valid = torch.tensor([[True, True, False], [True, False, False]])
    squares = torch.where(valid, residual.square(), 0.0).sum() / 3
    assert torch.equal(balance_loss(residual, valid), squares)
    expected = shaped(torch.tensor([0.3, -2.7, 1.9]), "linex").mean()
    torch.testing.assert_close(balance_loss(residual, valid, "linex"), expected)
