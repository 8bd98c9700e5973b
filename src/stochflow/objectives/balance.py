"""What the balance conditions along a path have in common: five terms per step, and whose path it is."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.config import LossShape, ObjectiveConfig
from stochflow.models.dynamics import chosen
from stochflow.models.flow_network import Heads
from stochflow.objectives.base import ARITHMETIC, GEOMETRIC, Learner, Objective, Terms
from stochflow.objectives.flows import terminal_flows
from stochflow.rollout import NetworkSampler, Sampler
from stochflow.trajectory import Trajectories

# the mean of a noisy R at which E[g'(log F − log R)] = 0, by the shape g of the loss
REWARD_MEANS: dict[LossShape, str] = {
    "squared": GEOMETRIC,
    "linex": ARITHMETIC,
    "linex-half": "E[√R]²",
    "linex-reversed": "1/E[1/R]",
    "shifted-cosh": "√(E[R]/E[1/R])",
}


@dataclass(frozen=True)
class Steps:
    """The terms of every step of a batch; all [batch, time].

    Attributes:
        log_flow: log F(s_t).
        log_forward: log π(a_t|s_t).
        log_dynamics: log P̂(s_{t+1}|s_t,a_t).
        log_next_flow: log F(s_{t+1}), with log R(x) at the end.
        log_backward: log π_B(a_t|s_{t+1}).
        valid: True where a decision was made.
    """

    log_flow: Tensor
    log_forward: Tensor
    log_dynamics: Tensor
    log_next_flow: Tensor
    log_backward: Tensor
    valid: Tensor

    @property
    def log_ratio(self) -> Tensor:
        """log π + log P̂ − log π_B, forward over backward without the flows."""
        # detached: the policy must not gain by bending the dynamics model
        return self.log_forward + self.log_dynamics.detach() - self.log_backward

    @property
    def log_flows(self) -> Tensor:
        """log F(s_0) … log F(s_{L−1}), log R(x); [batch, time + 1]."""
        return torch.cat([self.log_flow, self.log_next_flow[:, -1:]], dim=1)

    def spread(self) -> Terms:
        """Mean and standard deviation of each of the five terms over the real steps."""
        names = ("log_flow", "log_forward", "log_dynamics", "log_next_flow", "log_backward")
        values = torch.stack([getattr(self, name).detach() for name in names]).flatten(1)  # [5, batch · time]
        shares = self.valid.flatten().to(values.dtype) / self.valid.sum()
        means = values @ shares
        spreads = ((values - means.unsqueeze(-1)).square() @ shares).sqrt()
        return {f"{name}_mean": mean for name, mean in zip(names, means, strict=True)} | {
            f"{name}_std": spread for name, spread in zip(names, spreads, strict=True)
        }


def pick(log_probs: Tensor, actions: Tensor) -> Tensor:
    """Entries of [batch, time, K] at [batch, time]."""
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def log_posterior(log_policy: Tensor, log_matrices: Tensor, outcomes: Tensor) -> Tensor:
    """log π(a|s)P̂(b|s,a)/M(b|s) at the outcomes b that came: which intention it was.

    With it as the backward policy δ = log F(s) + log M(b|s) − log F(s'), the same for every intention. The gradient
    goes through π here as well: it is then that of log M, whoever drew the intention.

    Args:
        log_policy: log π(·|s_t), [batch, time, K].
        log_matrices: log P̂(b|s_t,a), [batch or 1, time, K, K].
        outcomes: [batch, time].

    Returns:
        [batch, time, K].
    """
    rows = log_matrices.detach().expand(len(outcomes), -1, -1, -1)
    columns = outcomes[..., None, None].expand(*rows.shape[:-1], 1)
    return torch.log_softmax(log_policy + rows.gather(-1, columns).squeeze(-1), dim=-1)


def path_steps(learner: Learner, batch: Trajectories, step: int) -> Steps:
    """The terms of a batch, on the path that `objective.path` names.

    On the intended path the action is the intention, the world answers with P̂, and π_B says which intention led here.
    On the realised path the outcome counts as if it had been intended: P̂ has no place, and a state has one parent, so
    π_B is one.
    """
    intentions, outcomes, valid = (
        tensor.to(learner.device) for tensor in (batch.intentions, batch.outcomes, batch.valid)
    )
    log_reward = learner.log_rewards(batch.outcomes, batch.scores, step).float().to(learner.device)
    config = learner.config.objective
    heads = learner.heads(batch, leaves=config.path == "intended" and config.backward == "learned")
    length = outcomes.shape[1]
    log_flow, log_policy = heads.log_flow[:, :length], heads.log_policy[:, :length]
    log_next_flow = terminal_flows(log_flow, log_reward)
    if config.path == "realised":
        nothing = torch.zeros_like(log_flow)
        if learner.network.mask is not None:
            # noise made what the policy may not intend: a blind balance has no way to believe such a path
            meant = pick(learner.network.mask.all_prefixes(outcomes)[:, :-1], outcomes)
            valid = valid & meant.all(dim=-1, keepdim=True)
        return Steps(log_flow, pick(log_policy, outcomes), nothing, log_next_flow, nothing, valid)
    log_matrices = learner.log_dynamics(outcomes)
    return Steps(
        log_flow=log_flow,
        log_forward=pick(log_policy, intentions),
        log_dynamics=chosen(log_matrices, intentions, outcomes),
        log_next_flow=log_next_flow,
        log_backward=pick(_log_backward(config, heads, log_matrices, outcomes), intentions),
        valid=valid,
    )


def _log_backward(config: ObjectiveConfig, heads: Heads, log_matrices: Tensor, outcomes: Tensor) -> Tensor:
    """log π_B(·|s_{t+1}) over intentions, [batch, time, K]."""
    if config.backward == "learned":
        return heads.log_backward[:, 1:]
    log_policy = heads.log_policy
    if config.backward == "posterior":
        return log_posterior(log_policy, log_matrices, outcomes)
    return torch.log_softmax(torch.zeros_like(log_policy), dim=-1)


class Balance(Objective):
    """A condition on flows; its residual is the same off-policy, so fresh and remembered batches serve alike."""

    def sampler(self, batch_size: int) -> Sampler:
        return NetworkSampler(self.learner.network, batch_size, records=True)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(batch, step)

    @abstractmethod
    def terms(self, batch: Trajectories, step: int) -> Terms:
        """The loss of one batch and what is logged with it."""

    def log_z(self) -> float:
        return self.learner.root_log_flow()


class PathBalance(Balance):
    """Balance along a path: the loss with each of the five terms of its steps, by mean and spread."""

    @property
    def reward_mean(self) -> str:
        """Every measurement is a residual of its own, and log F(x) settles where E[g'(log F − log R)] is zero."""
        return REWARD_MEANS[self.learner.config.objective.loss]

    @property
    def reads_dynamics(self) -> bool:
        """On the realised path P̂ has no place."""
        return self.learner.config.objective.path != "realised"

    def terms(self, batch: Trajectories, step: int) -> Terms:
        steps = path_steps(self.learner, batch, step)
        return {"loss": self.loss(steps, self.learner.config.objective), **steps.spread()}

    @abstractmethod
    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        """What the residuals of these steps cost, a scalar."""
