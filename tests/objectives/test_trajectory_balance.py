"""Trajectory balance and its stretches: sums of detailed balance, with the reward at the end."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.objectives.detailed_balance import db_residual
from stochflow.objectives.path_terms import Steps
from stochflow.objectives.regression_losses import balance_loss
from stochflow.objectives.subtrajectory_balance import subtb_loss, subtb_residual, subtb_weights
from stochflow.objectives.trajectory_balance import tb_residual

BATCH, TIME = 5, 4
# stretches i < j in the order of the residuals
PAIRS = [(start, end) for start in range(TIME + 1) for end in range(start + 1, TIME + 1)]


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_steps(generator: torch.Generator, valid: Tensor | None = None) -> Steps:
    flows = torch.randn(BATCH, TIME + 1, dtype=torch.float64, generator=generator)
    forward, dynamics, backward = (torch.randn(BATCH, TIME, dtype=torch.float64, generator=generator) for _ in range(3))
    real = torch.ones(BATCH, TIME, dtype=torch.bool) if valid is None else valid
    return Steps(flows[:, :-1], forward, dynamics, flows[:, 1:], backward, real)


def detailed(steps: Steps) -> Tensor:
    return db_residual(steps.log_flow, steps.log_forward, steps.log_dynamics, steps.log_next_flow, steps.log_backward)


def test_a_hand_worked_trajectory() -> None:
    # Z = 8; π·P̂/π_B = (½·¾)/½ and then (½·½)/⅓; R = 3: 8·¾·¾ = 4.5 arrives where 3 is paid
    flows = double(8.0, 77.0, 3.0).log()[None]
    ratio = double(0.5 * 0.75 / 0.5, 0.5 * 0.5 / (1 / 3)).log()[None]
    residual = tb_residual(flows, ratio, torch.ones(1, 2, dtype=torch.bool))
    assert residual.item() == pytest.approx(math.log(1.5))


def test_a_trajectory_is_the_sum_of_its_steps(generator: torch.Generator) -> None:
    steps = random_steps(generator)
    torch.testing.assert_close(tb_residual(steps.log_flows, steps.log_ratio, steps.valid), detailed(steps).sum(dim=-1))


def test_every_stretch_is_the_sum_of_its_steps(generator: torch.Generator) -> None:
    steps = random_steps(generator)
    expected = torch.stack([detailed(steps)[:, start:end].sum(dim=-1) for start, end in PAIRS], dim=1)
    torch.testing.assert_close(subtb_residual(steps.log_flows, steps.log_ratio), expected)


def test_stretches_weigh_lambda_per_step() -> None:
    weights = subtb_weights(torch.ones(2, TIME, dtype=torch.bool), 0.5)
    expected = double(*(0.5 ** (end - start) for start, end in PAIRS))
    torch.testing.assert_close(weights, expected.expand(2, -1))


def test_the_ends_of_lambda_are_detailed_and_trajectory_balance(generator: torch.Generator) -> None:
    steps = random_steps(generator)
    residual = subtb_residual(steps.log_flows, steps.log_ratio)
    short, long = (subtb_loss(residual, subtb_weights(steps.valid, decay)) for decay in (1e-9, 1e9))
    torch.testing.assert_close(short, balance_loss(detailed(steps), steps.valid), atol=1e-7, rtol=0)
    whole = tb_residual(steps.log_flows, steps.log_ratio, steps.valid).square().mean()
    torch.testing.assert_close(long, whole, atol=1e-7, rtol=0)


def test_a_given_prefix_replaces_the_root_and_costs_nothing(generator: torch.Generator) -> None:
    valid = torch.ones(BATCH, TIME, dtype=torch.bool)
    valid[0, :2] = False
    steps = random_steps(generator, valid)
    residual = tb_residual(steps.log_flows, steps.log_ratio.masked_fill(~valid, torch.nan), valid)
    torch.testing.assert_close(residual[0], detailed(steps)[0, 2:].sum())
    torch.testing.assert_close(residual[1:], detailed(steps)[1:].sum(dim=-1))
    weights = subtb_weights(valid, 0.9)
    assert [pair for pair, weight in zip(PAIRS, weights[0], strict=True) if weight > 0] == [(2, 3), (2, 4), (3, 4)]
    stretches = subtb_residual(steps.log_flows, steps.log_ratio)
    spoilt = torch.where(weights > 0, stretches, 1e6)
    torch.testing.assert_close(subtb_loss(spoilt, weights), subtb_loss(stretches, weights))


def test_each_term_gets_its_sign_and_the_dynamics_no_gradient() -> None:
    parts = [torch.zeros(2, 3, requires_grad=True) for _ in range(5)]
    steps = Steps(*parts, valid=torch.ones(2, 3, dtype=torch.bool))
    tb_residual(steps.log_flows, steps.log_ratio, steps.valid).sum().backward()
    log_flow, log_forward, log_dynamics, log_next_flow, log_backward = parts
    assert log_dynamics.grad is None
    assert torch.equal(log_forward.grad, torch.ones(2, 3))
    assert torch.equal(log_backward.grad, -torch.ones(2, 3))
    # of the flows only those of the root and of the end, which is the reward
    assert torch.equal(log_flow.grad, torch.tensor([1.0, 0.0, 0.0]).expand(2, -1))
    assert torch.equal(log_next_flow.grad, torch.tensor([0.0, 0.0, -1.0]).expand(2, -1))


def test_stretches_leave_the_dynamics_alone_too() -> None:
    parts = [torch.zeros(2, 3, requires_grad=True) for _ in range(5)]
    steps = Steps(*parts, valid=torch.ones(2, 3, dtype=torch.bool))
    subtb_residual(steps.log_flows, steps.log_ratio).sum().backward()
    assert parts[2].grad is None
    # the first of three steps lies inside the three stretches that start at the root, the second inside four
    assert torch.equal(parts[1].grad, torch.tensor([3.0, 4.0, 3.0]).expand(2, -1))


def test_the_gradients_agree_with_finite_differences(generator: torch.Generator) -> None:
    steps = random_steps(generator)

    def losses(flows: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
        whole = balance_loss(tb_residual(flows, ratio, steps.valid), steps.valid.any(dim=-1))
        return whole, subtb_loss(subtb_residual(flows, ratio), subtb_weights(steps.valid, 0.8))

    assert torch.autograd.gradcheck(losses, (steps.log_flows.requires_grad_(), steps.log_ratio.requires_grad_()))
