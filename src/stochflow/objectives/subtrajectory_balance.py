"""SubTB(λ): balance between any two states of a path, longer stretches weighing λ per step.

λ near zero leaves single steps (detailed balance), a large λ the whole path (trajectory balance).
"""

import torch
from torch import Tensor

from stochflow.config.schema import LossShape, ObjectiveConfig
from stochflow.objectives.path_terms import PathBalance, Steps
from stochflow.objectives.regression_losses import shaped


def subtb_residual(log_flows: Tensor, log_ratio: Tensor) -> Tensor:
    """δ_ij = log F(s_i) + Σ_{i≤t<j} (log π + log P̂ − log π_B) − log F(s_j) of all i < j; zero at balance.

    Args:
        log_flows: log F of every state with log R(x) at the end, [batch, time + 1].
        log_ratio: [batch, time].

    Returns:
        [batch, pairs], the pairs in the order of `_pairs`.
    """
    # a difference of potentials: what is behind a state is subtracted from its flow
    behind = torch.nn.functional.pad(log_ratio.cumsum(dim=-1), (1, 0))
    potential = log_flows - behind
    starts, ends = _pairs(log_flows)
    return potential[:, starts] - potential[:, ends]


def subtb_weights(valid: Tensor, decay: float) -> Tensor:
    """λ^(j − i) of every stretch whose steps are all real, zero for the others; [batch, time] → [batch, pairs]."""
    real = torch.nn.functional.pad(valid.int().cumsum(dim=-1), (1, 0))
    starts, ends = _pairs(real)
    lengths = ends - starts
    whole = real[:, ends] - real[:, starts] == lengths
    return whole * torch.tensor(decay, dtype=torch.float64, device=valid.device) ** lengths


def subtb_loss(residual: Tensor, weights: Tensor, shape: LossShape = "squared") -> Tensor:
    """Weighted mean of g(δ_ij), a scalar; both [batch, pairs]."""
    weights = (weights / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)).to(residual.dtype)
    return (weights * torch.where(weights > 0, shaped(residual, shape), 0.0)).sum()


def _pairs(states: Tensor) -> tuple[Tensor, Tensor]:
    """Indices i < j of the columns of [batch, time + 1], each [pairs]."""
    starts, ends = torch.triu_indices(states.shape[1], states.shape[1], offset=1, device=states.device)
    return starts, ends


class SubtrajectoryBalance(PathBalance):
    """Every stretch of a path, weighted by its length."""

    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        residual = subtb_residual(steps.log_flows, steps.log_ratio)
        valid = torch.ones_like(steps.log_flow, dtype=torch.bool) if steps.valid is None else steps.valid
        return subtb_loss(residual, subtb_weights(valid, config.decay), config.loss)
