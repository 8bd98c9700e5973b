"""Discrete soft actor-critic over intentions: twin critics, slow targets, replay."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from stochflow.core.logspace import entropy, masked_mean
from stochflow.objectives.base import Objective, Terms
from stochflow.objectives.baselines.critics import Critics, bellman_targets, critic_loss
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.trajectories import Trajectories


def intention_soft_value(log_policy: Tensor, action_values: Tensor, temperature: Tensor) -> Tensor:
    """V(s) = Σ_a π(a|s)·[Q(s,a) − τ·log π(a|s)]; [..., K], [..., K], scalar → [...]."""
    return (log_policy.exp() * (action_values - temperature * log_policy)).sum(dim=-1)


def temperature_loss(log_temperature: Tensor, mean_entropy: Tensor, target_entropy: float) -> Tensor:
    """log τ·(H(π) − H_target): τ falls while the policy is more open than it should be, and rises otherwise."""
    return log_temperature * (mean_entropy.detach() - target_entropy)


class Temperature(nn.Module):
    """τ, kept as its logarithm; trained only when there is an entropy to aim at."""

    def __init__(self, start: float, trained: bool) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(start)), requires_grad=trained)

    def forward(self) -> Tensor:
        return self.log.detach().exp()


class SoftActorCritic(Objective):
    """Maximises E[log R] + τ·Σ_t H(π(·|s_t)): the entropy of what is meant, not of what comes.

    At τ = 1 and without noise the optimum samples from R/Z. With noise it does not: intentions that the world confuses
    are paid for as if they led to different things.
    """

    learner: SequenceLearner

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        config = learner.config.rl
        self.critics = Critics(learner.network, 2, config.temperature, learner.generators["init"]).to(learner.device)
        self.temperature = Temperature(config.temperature, config.target_entropy is not None).to(learner.device)
        self.own["critics"], self.own["temperature"] = self.critics, self.temperature

    @property
    def reads_dynamics(self) -> bool:
        """Intentions are valued by what came of them; the world is never modelled."""
        return False

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(batch, step)
            self.critics.follow(self.learner.config.rl.polyak)

    def terms(self, batch: Trajectories, step: int) -> Terms:
        learner, config = self.learner, self.learner.config.rl
        intentions, outcomes, valid = (
            tensor.to(learner.device) for tensor in (batch.intentions, batch.outcomes, batch.valid)
        )
        log_reward = learner.log_rewards(batch, step).float().to(learner.device)
        log_policy = learner.network.all_prefixes(outcomes).log_policy[:, :-1]
        temperature = self.temperature()
        with torch.no_grad():
            values = intention_soft_value(log_policy, self.critics.slow_values(outcomes), temperature)
        action_values = self.critics(outcomes)
        value_loss = critic_loss(action_values, intentions, bellman_targets(values, log_reward), valid)
        least = action_values.detach().amin(dim=0)
        actor_loss = -masked_mean(intention_soft_value(log_policy, least, temperature), valid)
        policy_entropy = masked_mean(entropy(log_policy), valid)
        loss = actor_loss + config.value_weight * value_loss
        if config.target_entropy is not None:
            target = config.target_entropy * math.log(learner.network.num_tokens)
            loss = loss + temperature_loss(self.temperature.log, policy_entropy, target)
        return {
            "loss": loss,
            "actor_loss": actor_loss,
            "value_loss": value_loss,
            "policy_entropy": policy_entropy,
            "temperature": temperature,
        }

    @torch.no_grad()
    def log_z(self) -> float:
        """V of the empty prefix; without noise and at τ = 1 it aims at log Z."""
        learner = self.learner
        anything = torch.zeros(1, learner.network.length, dtype=torch.int64, device=learner.device)
        log_policy = learner.network.all_prefixes(anything).log_policy[:, :-1]
        values = intention_soft_value(log_policy, self.critics(anything).amin(dim=0), self.temperature())
        return float(values[0, 0])
