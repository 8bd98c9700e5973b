"""EFlowNet's expected detailed balance: an intention carries the mean of the flows it may lead to.

Its exact solution is not reward-proportional under noise: `enumerated/fixed_points.py` has it.
"""

import torch
from torch import Tensor

from stochflow.core.logspace import log_marginal
from stochflow.objectives.base import ARITHMETIC, Terms
from stochflow.objectives.path_terms import Balance
from stochflow.objectives.regression_losses import balance_loss
from stochflow.objectives.state_flows import child_flows
from stochflow.sampling.trajectories import Trajectories


def log_expected_flow(log_dynamics: Tensor, log_child_flows: Tensor) -> Tensor:
    """log F(s,a) = log Σ_b P̂(b|s,a)·F(s_b) of every intention; [..., K, K], [..., K] → [..., K]."""
    # detached: the policy must not gain by bending the dynamics model
    return log_marginal(log_child_flows, log_dynamics.detach().transpose(-1, -2))


def edb_residual(log_flow: Tensor, log_policy: Tensor, log_expected: Tensor) -> Tensor:
    """δ(s,a) = log F(s) + log π(a|s) − log F(s,a); [...], [..., K], [..., K] → [..., K]."""
    return log_flow.unsqueeze(-1) + log_policy - log_expected


class ExpectedBalance(Balance):
    """All intentions of every visited state: with the children's flows at hand the untried ones cost nothing more.

    The children's flows are targets and are held fixed. A leaf that was paid for counts its reward; the flow head
    learns log R at the ends of the batch, for siblings that never were.
    """

    @property
    def reward_mean(self) -> str:
        """Balance follows the children's flows, and those of paid leaves are the memory's means of R."""
        return ARITHMETIC

    def terms(self, batch: Trajectories, step: int) -> Terms:
        learner = self.learner
        shape = learner.config.objective.loss
        outcomes, valid = batch.outcomes.to(learner.device), batch.valid.to(learner.device)
        log_reward = learner.log_rewards(batch.outcomes, batch.scores, step).float().to(learner.device)
        heads = learner.heads(batch)
        log_expected = log_expected_flow(learner.log_dynamics(outcomes), child_flows(learner, outcomes, step))
        residual = edb_residual(heads.log_flow[:, :-1], heads.log_policy[:, :-1], log_expected)
        real = valid.unsqueeze(-1).expand_as(residual)
        if learner.network.mask is not None:  # an intention that nobody may have carries no flow
            real = real & learner.network.mask.all_prefixes(outcomes)[:, :-1]
        balance = balance_loss(residual, real, shape)
        leaf_residual = heads.log_flow[:, -1] - log_reward
        leaves = balance_loss(leaf_residual, torch.ones_like(leaf_residual, dtype=torch.bool), shape)
        return {"loss": balance + leaves, "balance_loss": balance, "leaf_loss": leaves}
