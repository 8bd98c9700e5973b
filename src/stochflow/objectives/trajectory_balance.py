"""Trajectory balance: the whole way down costs as much flow as it delivers; log Z is log F of the empty prefix.

On the intended path it is SGFN-TB, with log P̂ and a backward policy over intentions; on the realised path GFN-TB.
"""

import numpy as np
import torch
from torch import Tensor

from stochflow.config.schema import ObjectiveConfig
from stochflow.core.arrays import Array
from stochflow.core.logspace import pick
from stochflow.objectives.path_gradients import PathGradient
from stochflow.objectives.path_terms import PathBalance, Steps
from stochflow.objectives.regression_losses import balance_loss


def tb_residual(log_flows: Tensor, log_ratio: Tensor, valid: Tensor | None) -> Tensor:
    """δ = log Z + Σ_t (log π + log P̂ − log π_B) − log R(x) over the real steps; zero at balance.

    A path that starts from a given prefix has that prefix's flow in the place of Z.

    Args:
        log_flows: log F of every state with log R(x) at the end, [batch, time + 1].
        log_ratio: log π + log P̂ − log π_B of every step, [batch, time].
        valid: [batch, time]; None where every step is real.

    Returns:
        [batch].
    """
    if valid is None:
        return log_flows[:, 0] + log_ratio.sum(dim=-1) - log_flows[:, -1]
    log_start = pick(log_flows, valid.int().argmax(dim=-1))
    return log_start + torch.where(valid, log_ratio, 0.0).sum(dim=-1) - log_flows[:, -1]


def tb_gradient(values: Array) -> PathGradient:
    """Mean of δ² over paths of real steps with its gradient; from the five terms of every step, [5, batch, time]."""
    log_flow, log_forward, log_dynamics, log_next_flow, log_backward = values
    log_ratio = log_forward + log_dynamics - log_backward
    residual = log_flow[..., 0] + np.add.reduce(log_ratio, axis=-1) - log_next_flow[..., -1]
    size = residual.shape[-1]
    coefficient = (2.0 / size) * residual
    flow = np.zeros_like(log_flow)
    flow[..., 0] = coefficient
    return PathGradient(residual @ residual / size, np.repeat(coefficient[..., None], flow.shape[-1], axis=-1), flow)


class TrajectoryBalance(PathBalance):
    """One residual per trajectory; of the flows only that of its start is learned."""

    gradient = staticmethod(tb_gradient)

    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        residual = tb_residual(steps.log_flows, steps.log_ratio, steps.valid)
        return balance_loss(residual, None if steps.valid is None else steps.valid.any(dim=-1), config.loss)
