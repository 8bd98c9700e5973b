"""Critics Q(s, a) over intentions with slow copies for the targets, and objectives whose policy follows them."""

import copy
from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from stochflow.core.logspace import masked_mean, pick
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.q_network import ActionValues
from stochflow.objectives.base import Objective, TensorTerms, Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_terms import observed_paths
from stochflow.objectives.state_flows import Paths
from stochflow.sampling.trajectories import Trajectories


class Critics(nn.Module):
    """Several Q that differ by their first weights; where one number is asked for, it is the least of them."""

    def __init__(self, network: FlowNetwork, num: int, temperature: float, generator: torch.Generator) -> None:
        super().__init__()
        self.fast = nn.ModuleList(ActionValues(network, temperature) for _ in range(num))
        for critic in self.fast:
            assert isinstance(critic, ActionValues)
            critic.initialise(generator)
        self.slow = copy.deepcopy(self.fast).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Q of every critic at every unfinished prefix; [batch, L] → [num, batch, L, K]."""
        return torch.stack([critic(tokens) for critic in self.fast])

    @torch.no_grad()
    def slow_values(self, tokens: Tensor) -> Tensor:
        """Least Q of the slow copies; [batch, L] → [batch, L, K]."""
        return torch.stack([critic(tokens) for critic in self.slow]).amin(dim=0)

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move the slow copies a share of the way (Polyak averaging)."""
        for slow, fast in zip(self.slow.parameters(), self.fast.parameters(), strict=True):
            slow.lerp_(fast, share)


def bellman_targets(next_values: Tensor, log_reward: Tensor) -> Tensor:
    """What Q(s_t, a_t) should be: V(s_{t+1}), and log R(x) at the last step.

    Args:
        next_values: V at the unfinished prefixes s_0 … s_{L−1}, [batch, L]; V(s_0) is nobody's successor.
        log_reward: [batch].

    Returns:
        [batch, L].
    """
    return torch.cat([next_values[:, 1:], log_reward.to(next_values.dtype).unsqueeze(-1)], dim=1)


def critic_loss(values: Tensor, intentions: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """Sum over critics of the mean of (Q(s_t, a_t) − target)²; [num, batch, L, K] and [batch, L] → a scalar."""
    chosen = pick(values, intentions.expand(len(values), -1, -1))
    errors = (chosen - targets.detach()).square()
    return len(values) * masked_mean(errors, valid.expand_as(errors))


class ActorCritic(Objective):
    """A policy that maximises a soft value of its critics; both learn from fresh and remembered batches.

    Attributes:
        critics: Q(s,a) over intentions.
    """

    learner: SequenceLearner

    def __init__(self, learner: SequenceLearner, num_critics: int, temperature: float) -> None:
        super().__init__(learner)
        self.critics = Critics(learner.network, num_critics, temperature, learner.generators["init"])
        self.own["critics"] = self.critics.to(learner.device)

    @abstractmethod
    def soft_values(self, log_policy: Tensor, action_values: Tensor, log_dynamics: Tensor | None) -> Tensor:
        """V(s) of unfinished prefixes; [batch, L, K] twice → [batch, L].

        Args:
            log_dynamics: log P̂(b|s_t,a), [batch or 1, L, K, K]; None where the objective does not read it.
        """

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(observed_paths(self.learner, batch, step), self._log_policy(batch.outcomes))
            self.critics.follow(self.learner.config.rl.polyak)

    def terms(self, paths: Paths, log_policy: Tensor) -> TensorTerms:
        """Losses of actor and critics along paths with their log π, [batch, L, K]."""
        log_dynamics = self._log_dynamics(paths.outcomes)
        with torch.no_grad():
            values = self.soft_values(log_policy, self.critics.slow_values(paths.outcomes), log_dynamics)
        action_values = self.critics(paths.outcomes)
        targets = bellman_targets(values, paths.log_reward)
        value_loss = critic_loss(action_values, paths.intentions, targets, paths.valid)
        least = action_values.detach().amin(dim=0)
        actor_loss = -masked_mean(self.soft_values(log_policy, least, log_dynamics), paths.valid)
        loss = actor_loss + self.learner.config.rl.value_weight * value_loss
        return {"loss": loss, "actor_loss": actor_loss, "value_loss": value_loss}

    @torch.no_grad()
    def log_z(self) -> float:
        """V of the empty prefix; without noise and at temperature one it aims at log Z."""
        anything = torch.zeros(1, self.learner.network.length, dtype=torch.int64, device=self.learner.device)
        action_values = self.critics(anything).amin(dim=0)
        return float(self.soft_values(self._log_policy(anything), action_values, self._log_dynamics(anything))[0, 0])

    def _log_policy(self, outcomes: Tensor) -> Tensor:
        """log π at every unfinished prefix; [batch, L] → [batch, L, K]."""
        return self.learner.network.evaluate(AtPrefixes(outcomes)).heads().log_policy[:, :-1]

    def _log_dynamics(self, outcomes: Tensor) -> Tensor | None:
        return self.learner.log_dynamics_of(outcomes) if self.reads_dynamics else None
