"""Critics: one or more Q(s, a) over intentions, each with a slow copy that the targets are taken from."""

import copy

import torch
from torch import Tensor, nn

from stochflow.core.logspace import masked_mean, pick
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.q_network import ActionValues


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
