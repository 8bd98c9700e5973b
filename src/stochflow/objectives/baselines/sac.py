"""Discrete soft actor-critic over intentions: twin critics, slow targets, replay."""

import math

import torch
from torch import Tensor, nn

from stochflow.core.logspace import entropy, masked_mean
from stochflow.objectives.base import TensorTerms
from stochflow.objectives.baselines.critics import ActorCritic
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.state_flows import Paths


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


class SoftActorCritic(ActorCritic):
    """Maximises E[log R] + τ·Σ_t H(π(·|s_t)): the entropy of what is meant, not of what comes.

    At τ = 1 and without noise the optimum samples from R/Z. With noise it does not: intentions that the world confuses
    are paid for as if they led to different things.
    """

    reads_dynamics = False  # intentions are valued by what came of them

    def __init__(self, learner: SequenceLearner) -> None:
        config = learner.config.rl
        super().__init__(learner, num_critics=2, temperature=config.temperature)
        self.temperature = Temperature(config.temperature, config.target_entropy is not None).to(learner.device)
        self.own["temperature"] = self.temperature

    def soft_values(self, log_policy: Tensor, action_values: Tensor, log_dynamics: Tensor | None) -> Tensor:
        return intention_soft_value(log_policy, action_values, self.temperature())

    def terms(self, paths: Paths, log_policy: Tensor) -> TensorTerms:
        learner, terms = self.learner, super().terms(paths, log_policy)
        policy_entropy = masked_mean(entropy(log_policy), paths.valid)
        share = learner.config.rl.target_entropy
        if share is not None:
            target = share * math.log(learner.network.num_tokens)
            terms["loss"] = terms["loss"] + temperature_loss(self.temperature.log, policy_entropy, target)
        return terms | {"policy_entropy": policy_entropy, "temperature": self.temperature()}
