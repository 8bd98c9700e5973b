"""Soft Q-learning with the entropy of outcomes: the attainable optimum, learned from realised transitions alone."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.logspace import entropy, log_marginal, masked_mean
from stochflow.objectives.base import Objective, Terms
from stochflow.objectives.baselines.critics import Critics, bellman_targets, critic_loss
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.trajectories import Trajectories


def outcome_soft_value(log_policy: Tensor, log_dynamics: Tensor, action_values: Tensor) -> Tensor:
    """V(s) = Σ_a π(a|s)·Q(s,a) + H(M(·|s)), M = πP̂; [..., K], [..., K, K], [..., K] → [...].

    With Q(s,a) = Σ_b P(b|s,a)·V(s_b) it is Σ_b M(b|s)·[V(s_b) − log M(b|s)], and its maximum over π is the soft value
    of the attainable optimum.
    """
    return (log_policy.exp() * action_values).sum(dim=-1) + entropy(log_marginal(log_policy, log_dynamics))


class SoftQ(Objective):
    """A critic Q(s,a) over intentions and a soft actor that maximises E_π[Q] + H(M).

    `BootstrappedKL` has the same fixed point. It looks ahead: at every state it asks the flow head for all K children
    and the memory for every leaf that was paid for, and weighs them by P̂. Here nothing is looked up and no child is
    imagined. Q is regressed on the V of the one successor that came, from a slow copy, so the world's noise is
    averaged by the critic instead of by P̂. P̂ enters in one place, the entropy of the outcome that the actor is paid
    for. While P̂ knows nothing that entropy is constant and the actor would settle on one letter for good, so the
    method's preset lets P̂ learn fast. Without noise M is π and this is soft Q-learning with an amortised softmax(Q).
    """

    learner: SequenceLearner

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        self.critics = Critics(learner.network, 1, 1.0, learner.generators["init"]).to(learner.device)
        self.own["critics"] = self.critics

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(batch, step)
            self.critics.follow(self.learner.config.rl.polyak)

    def terms(self, batch: Trajectories, step: int) -> Terms:
        learner = self.learner
        intentions, outcomes, valid = (
            tensor.to(learner.device) for tensor in (batch.intentions, batch.outcomes, batch.valid)
        )
        log_reward = learner.log_rewards(batch, step).float().to(learner.device)
        log_policy = learner.network.all_prefixes(outcomes).log_policy[:, :-1]
        log_dynamics = learner.log_dynamics_of(outcomes)
        with torch.no_grad():
            values = outcome_soft_value(log_policy, log_dynamics, self.critics.slow_values(outcomes))
        action_values = self.critics(outcomes)
        value_loss = critic_loss(action_values, intentions, bellman_targets(values, log_reward), valid)
        soft_values = outcome_soft_value(log_policy, log_dynamics, action_values[0].detach())
        actor_loss = -masked_mean(soft_values, valid)
        return {
            "loss": actor_loss + learner.config.rl.value_weight * value_loss,
            "actor_loss": actor_loss,
            "value_loss": value_loss,
        }

    @torch.no_grad()
    def log_z(self) -> float:
        """V of the empty prefix; it aims at log Z minus the smallest reachable KL."""
        learner = self.learner
        anything = torch.zeros(1, learner.network.length, dtype=torch.int64, device=learner.device)
        log_policy = learner.network.all_prefixes(anything).log_policy[:, :-1]
        values = outcome_soft_value(log_policy, learner.log_dynamics_of(anything), self.critics(anything)[0])
        return float(values[0, 0])
