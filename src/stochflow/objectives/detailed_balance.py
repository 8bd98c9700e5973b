"""Detailed balance: the flow into each transition equals the flow out of it.

On the intended path it is SGFN-DB, with the world's dynamics in the balance; on the realised path the ordinary GFN-DB.
"""

from torch import Tensor

from stochflow.config import ObjectiveConfig
from stochflow.objectives.balance import PathBalance, Steps
from stochflow.objectives.losses import balance_loss


def db_residual(
    log_flow: Tensor, log_forward: Tensor, log_dynamics: Tensor, log_next_flow: Tensor, log_backward: Tensor
) -> Tensor:
    """δ_t = log F(s) + log π(a|s) + log P̂(s'|s,a) − log F(s') − log π_B(s,a|s') (`ll_diff`); all [batch, time]."""
    # detached: the policy must not gain by bending the dynamics model
    return log_flow + log_forward + log_dynamics.detach() - log_next_flow - log_backward


class DetailedBalance(PathBalance):
    """Every step for itself."""

    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        residual = db_residual(
            steps.log_flow, steps.log_forward, steps.log_dynamics, steps.log_next_flow, steps.log_backward
        )
        return balance_loss(residual, steps.valid, config.loss)
