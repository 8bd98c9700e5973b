"""Proximal policy optimisation: a clipped surrogate, GAE, and the flow head as the value baseline."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.logspace import entropy, masked_mean, pick
from stochflow.models.evaluation import AtPrefixes
from stochflow.objectives.base import Objective, Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_terms import observed_paths
from stochflow.objectives.state_flows import Paths
from stochflow.sampling.trajectories import Trajectories


def generalised_advantages(rewards: Tensor, values: Tensor, decay: float) -> Tensor:
    """A_t = Σ_{i≥t} λ^{i−t}·[r_i + V(s_{i+1}) − V(s_i)] with V = 0 at the end and no discount.

    Args:
        rewards: reward after each step, [batch, L].
        values: V before each step, [batch, L].
        decay: λ; 1 gives the return less the baseline, 0 the one-step error.

    Returns:
        [batch, L].
    """
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    errors = rewards + following - values
    steps = torch.arange(rewards.shape[1], device=rewards.device)
    lags = (steps - steps.unsqueeze(-1)).clamp_min(0)  # [from t, to i]
    weights = torch.triu(torch.full_like(errors[0, 0], decay) ** lags)
    return errors @ weights.T


def clipped_surrogate(log_ratios: Tensor, advantages: Tensor, clip: float, valid: Tensor) -> Tensor:
    """−mean min(ρA, clamp(ρ, 1 − c, 1 + c)·A) over the real steps, ρ = π/π_old; [batch, L] each → a scalar."""
    ratios = log_ratios.exp()
    return -masked_mean(torch.minimum(ratios * advantages, ratios.clamp(1.0 - clip, 1.0 + clip) * advantages), valid)


def standardised(advantages: Tensor, valid: Tensor) -> Tensor:
    """Advantages of the real steps with mean zero and spread one, [batch, L]."""
    mean = masked_mean(advantages, valid)
    spread = masked_mean((advantages - mean).square(), valid).sqrt()
    return (advantages - mean) / (spread + 1e-8)


class PPO(Objective):
    """Maximises E[log R(x) − τ·Σ_t log π(a_t|s_t)], several epochs on each fresh batch and nothing remembered.

    The end pays log R, as is usual where a density is wanted and not only its peak; every step pays τ times its own
    surprise, which is the usual entropy bonus with a view to later steps. `rl.entropy_bonus` adds the other usual
    one, the entropy of the present step alone, to the loss. V(s) is the flow head; it starts from the entropy that a
    uniform policy earns.
    """

    learner: SequenceLearner
    reads_dynamics = False  # the gradient is that of sampled intentions

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        learner, config = self.learner, self.learner.config.rl
        paths = observed_paths(learner, fresh, step)
        with torch.no_grad():
            log_policy, values = self._heads(fresh)
        rewards = -config.temperature * pick(log_policy, paths.intentions)
        rewards[:, -1] += paths.log_reward
        advantages = generalised_advantages(rewards, values, config.gae_decay)
        for _ in range(learner.config.optimiser.updates):
            yield self.terms(fresh, paths, standardised(advantages, paths.valid), advantages + values)

    def _heads(self, batch: Trajectories) -> tuple[Tensor, Tensor]:
        """log π and V at every unfinished prefix, [batch, L, K] and [batch, L]."""
        heads = self.learner.network.evaluate(AtPrefixes(batch.outcomes)).heads()
        return heads.log_policy[:, :-1], heads.log_flow[:, :-1]

    def terms(self, fresh: Trajectories, paths: Paths, advantages: Tensor, returns: Tensor) -> Terms:
        """One epoch over the whole batch; advantages and returns stay those of the policy that drew it, [batch, L]."""
        config, (log_policy, values) = self.learner.config.rl, self._heads(fresh)
        log_ratios = pick(log_policy, paths.intentions) - fresh.log_behaviour.float().to(self.learner.device)
        actor_loss = clipped_surrogate(log_ratios, advantages, config.clip, paths.valid)
        value_loss = masked_mean((values - returns).square(), paths.valid)
        policy_entropy = masked_mean(entropy(log_policy), paths.valid)
        return {
            "loss": actor_loss + config.value_weight * value_loss - config.entropy_bonus * policy_entropy,
            "actor_loss": actor_loss,
            "value_loss": value_loss,
            "policy_entropy": policy_entropy,
        }
