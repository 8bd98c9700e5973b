"""Expected detailed balance: an intention carries the mean of the flows it may lead to."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.environments.channels import positional_slip
from stochflow.objectives.expected_balance import edb_residual, log_expected_flow
from stochflow.truth.fixed_points import expected_balance


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_hand_worked_state() -> None:
    log_dynamics = double(0.75, 0.25, 0.25, 0.75).view(2, 2).log()
    log_expected = log_expected_flow(log_dynamics, double(1.0, 3.0).log())
    torch.testing.assert_close(log_expected.exp(), double(1.5, 2.5))  # the mean of flows, not of their logarithms
    residual = edb_residual(double(8.0).log().squeeze(), double(0.5, 0.5).log(), log_expected)
    torch.testing.assert_close(residual, double(4.0 / 1.5, 4.0 / 2.5).log())


def test_rows_are_intentions_and_columns_outcomes() -> None:
    # the first intention always leads to the first child, the second to either
    log_dynamics = double(1.0, 1e-30, 0.5, 0.5).view(2, 2).log()
    log_expected = log_expected_flow(log_dynamics, double(1.0, 3.0).log())
    torch.testing.assert_close(log_expected.exp(), double(1.0, 2.0))


def test_the_residual_is_zero_at_the_exact_solution(generator: torch.Generator) -> None:
    channel = positional_slip(3, [0.1, 0.6])
    solution = expected_balance(torch.randn(9, dtype=torch.float64, generator=generator), channel, 2)
    for depth in range(2):
        log_expected = log_expected_flow(channel.matrix(depth).log(), solution.log_flows[depth + 1].view(-1, 3))
        residual = edb_residual(solution.log_flows[depth], solution.log_policies[depth], log_expected)
        torch.testing.assert_close(residual, torch.zeros_like(residual), atol=1e-12, rtol=0)


def test_no_gradient_reaches_the_dynamics_and_each_other_term_gets_its_sign() -> None:
    log_flow, log_policy = torch.zeros(2, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    log_dynamics, log_children = torch.zeros(2, 3, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    edb_residual(log_flow, log_policy, log_expected_flow(log_dynamics, log_children)).sum().backward()
    assert log_dynamics.grad is None
    assert torch.equal(log_flow.grad, torch.full((2,), 3.0))
    assert torch.equal(log_policy.grad, torch.ones(2, 3))
    torch.testing.assert_close(log_children.grad, -torch.ones(2, 3))


def test_value_and_gradient_stay_finite_at_extreme_flows() -> None:
    log_children = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    log_expected = log_expected_flow(torch.full((3, 3), 1.0 / 3.0).log(), log_children)
    log_expected.sum().backward()
    assert log_expected[0].item() == pytest.approx(1e4 - math.log(3.0))
    assert bool(torch.isfinite(log_children.grad).all())
