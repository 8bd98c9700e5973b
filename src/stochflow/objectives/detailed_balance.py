"""Detailed balance: the flow into each transition equals the flow out of it.

On the intended path it is SGFN-DB, with the world's dynamics in the balance; on the realised path the ordinary GFN-DB.
"""

import numpy as np
from torch import Tensor

from stochflow.config.schema import ObjectiveConfig
from stochflow.core.arrays import Array
from stochflow.objectives.path_gradients import PathGradient
from stochflow.objectives.path_terms import PathBalance, Steps
from stochflow.objectives.regression_losses import balance_loss


def db_residual(
    log_flow: Tensor, log_forward: Tensor, log_dynamics: Tensor, log_next_flow: Tensor, log_backward: Tensor
) -> Tensor:
    """δ_t = log F(s) + log π(a|s) + log P̂(s'|s,a) − log F(s') − log π_B(s,a|s') (`ll_diff`); all [batch, time]."""
    # detached: the policy must not gain by bending the dynamics model
    return log_flow + log_forward + log_dynamics.detach() - log_next_flow - log_backward


def db_gradient(values: Array) -> PathGradient:
    """Mean of δ² over all steps with its gradient; from the five terms of every step, [5, batch, time]."""
    log_flow, log_forward, log_dynamics, log_next_flow, log_backward = values
    residual = log_flow + log_forward + log_dynamics - log_next_flow - log_backward
    coefficient = (2.0 / residual.size) * residual
    flow = coefficient.copy()
    flow[..., 1:] -= coefficient[..., :-1]  # the next state of a step is where the following one begins
    return PathGradient(np.square(residual).mean(), coefficient, flow)


class DetailedBalance(PathBalance):
    """Every step for itself."""

    gradient = staticmethod(db_gradient)

    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        residual = db_residual(
            steps.log_flow, steps.log_forward, steps.log_dynamics, steps.log_next_flow, steps.log_backward
        )
        return balance_loss(residual, steps.valid, config.loss)
