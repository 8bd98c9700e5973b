"""SGFN-DB: flow into each transition equals flow out of it, with the world's dynamics in the balance."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.logmath import masked_mean
from stochflow.models.dynamics import chosen
from stochflow.objectives.base import Objective, Terms
from stochflow.trajectory import Trajectories


def db_residual(
    log_flow: Tensor, log_forward: Tensor, log_dynamics: Tensor, log_next_flow: Tensor, log_backward: Tensor
) -> Tensor:
    """δ_t = log F(s) + log π(a|s) + log P̂(s'|s,a) − log F(s') − log π_B(s,a|s') (`ll_diff`); all [batch, time]."""
    # detached: the policy must not gain by bending the dynamics model
    return log_flow + log_forward + log_dynamics.detach() - log_next_flow - log_backward


def balance_loss(residual: Tensor, valid: Tensor) -> Tensor:
    """Mean of δ² over the real steps; [batch, time] → scalar."""
    return masked_mean(residual.square(), valid)


def terminal_flows(log_flow: Tensor, log_reward: Tensor) -> Tensor:
    """log F(s') of every step with F(x) = R(x) at the end (`end_log_flow`); [batch, time + 1] → [batch, time]."""
    return torch.cat([log_flow[:, 1:-1], log_reward.to(log_flow.dtype).unsqueeze(-1)], dim=1)


class DetailedBalance(Objective):
    """Balances intended transitions, fresh and remembered alike: the residual is the same off-policy."""

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(batch, step)

    def terms(self, batch: Trajectories, step: int) -> Terms:
        """The loss with each of the five terms of δ, by mean and spread."""
        learner = self.learner
        intentions, outcomes, valid = (
            tensor.to(learner.device) for tensor in (batch.intentions, batch.outcomes, batch.valid)
        )
        log_reward = learner.reward.log_reward(batch.scores, step).float().to(learner.device)
        heads = learner.network.all_prefixes(outcomes)
        parts = {
            "log_flow": heads.log_flow[:, :-1],
            "log_forward": _pick(heads.log_policy[:, :-1], intentions),
            "log_dynamics": chosen(learner.log_dynamics(outcomes), intentions, outcomes),
            "log_next_flow": terminal_flows(heads.log_flow, log_reward),
            "log_backward": _pick(heads.log_backward[:, 1:], intentions),
        }
        terms = {"loss": balance_loss(db_residual(**parts), valid)}
        for name, part in parts.items():
            real = part.detach()[valid]
            terms[f"{name}_mean"], terms[f"{name}_std"] = real.mean(), real.std(correction=0)
        return terms

    def log_z(self) -> float:
        return self.learner.root_log_flow()


def _pick(log_probs: Tensor, actions: Tensor) -> Tensor:
    """Entries of [batch, time, K] at [batch, time]."""
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
