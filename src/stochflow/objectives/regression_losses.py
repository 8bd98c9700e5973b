"""Regression losses g(δ) of a balance residual: zero at balance, with the divergence that each one minimises."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.config.schema import LossShape
from stochflow.core.logspace import masked_mean

# past this exponent e^x goes on as a straight line: one wild residual must not drown a batch, let alone overflow
_STEEPEST = 10.0


def shaped(residual: Tensor, shape: LossShape) -> Tensor:
    """g(δ) ≥ 0 of forward minus backward log-flow, with g(δ) ≈ δ² near zero; same shape as `residual`.

    With trajectories from the policy itself the gradient of E[g(δ)] is that of a divergence between the flow forward
    P_F and the flow backward P_B (Hu et al. 2024), where h'(u) = g'(log u) in D = Σ P_B·h(P_F/P_B):

    - squared: δ², 2·KL(P_F‖P_B), which forgives missing modes;
    - linex: 2·(e^−δ + δ − 1), 2·KL(P_B‖P_F), which forgives nothing that is missing;
    - linex-half: 8·(e^(−δ/2) + δ/2 − 1), 8·H² with H² = ½·Σ(√P_F − √P_B)², between the two;
    - linex-reversed: 2·(e^δ − δ − 1), χ²(P_F‖P_B), harshest where the policy has too much;
    - shifted-cosh: e^δ + e^−δ − 2, ½·χ²(P_F‖P_B) + KL(P_B‖P_F), harsh on both sides.
    """
    return _SHAPES[shape](residual)


def balance_loss(residual: Tensor, valid: Tensor | None, shape: LossShape = "squared") -> Tensor:
    """Mean of g(δ) over the entries where `valid` is True, all of them without it; any common shape → scalar."""
    return masked_mean(shaped(residual, shape), valid)


def _excess(exponent: Tensor) -> Tensor:
    """e^x − x − 1, a straight line beyond the steepest exponent."""
    return torch.expm1(exponent.clamp_max(_STEEPEST)) + _overshoot(exponent) - exponent


def _overshoot(exponent: Tensor) -> Tensor:
    """What the tangent at the steepest exponent adds beyond it, zero before."""
    tangent = torch.tensor(_STEEPEST, dtype=exponent.dtype, device=exponent.device).exp()
    return tangent * (exponent - _STEEPEST).clamp_min(0.0)


_SHAPES: dict[LossShape, Callable[[Tensor], Tensor]] = {
    "squared": torch.square,
    "linex": lambda residual: 2.0 * _excess(-residual),
    "linex-half": lambda residual: 8.0 * _excess(-residual / 2.0),
    "linex-reversed": lambda residual: 2.0 * _excess(residual),
    "shifted-cosh": lambda residual: _excess(residual) + _excess(-residual),
}
