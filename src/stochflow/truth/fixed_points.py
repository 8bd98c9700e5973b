"""Where balance conditions come to rest on the full prefix tree, and what is sampled there through the true channel.

Two conditions have a solution whatever the noise, and neither is proportional to the reward. Levels are ordered as in
`tree.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel
from stochflow.truth.prefix_tree import policy_log_marginals, terminal_log_probs

# log F of all children of every state of a level, its position → log F(s,a) of every intention; [K^t, K] both
EdgeFlows = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class FixedPoint:
    """A policy and flows that satisfy a balance condition exactly.

    Attributes:
        log_flows: log F(s) per level, [K^t]; the last level holds log R.
        log_policies: log π(a|s) per level, [K^t, K].
        log_probs: log P_π(x) under the true channel, [K^L].
    """

    log_flows: list[Tensor]
    log_policies: list[Tensor]
    log_probs: Tensor

    @property
    def log_z(self) -> float:
        """log F of the empty prefix: what the condition takes for log Z."""
        return float(self.log_flows[0])


def expected_balance(log_reward: Tensor, channel: Channel, length: int) -> FixedPoint:
    """EFlowNet's condition F(s)·π(a|s) = F(s,a) = Σ_b P(b|a)·F(s_b): π ∝ F(s,a) and F(s) = Σ_a F(s,a).

    Through the channel the policy then samples M(b|s) ∝ Σ_a P(b|a)·Σ_c P(c|a)·F(s_c), the flows blurred twice.

    Args:
        log_reward: log R(x) of every sequence in lexicographic order, [K^L].
    """

    def mean_flows(log_child_flows: Tensor, position: int) -> Tensor:
        return torch.logsumexp(safe_log(channel.matrix(position)) + log_child_flows.unsqueeze(-2), dim=-1)

    return _solve(log_reward, channel, length, mean_flows)


def blind_balance(log_reward: Tensor, channel: Channel, length: int) -> FixedPoint:
    """Balance of what came, F(s)·π(b|s) = F(s_b): π is the target's own conditional, and F(∅) = Z.

    Every realised step can be balanced at once, so detailed, trajectory and subtrajectory balance share this solution.
    The channel then blurs what the policy believes to be exact.

    Args:
        log_reward: log R(x) of every sequence in lexicographic order, [K^L].
    """
    return _solve(log_reward, channel, length, lambda log_child_flows, _: log_child_flows)


def _solve(log_reward: Tensor, channel: Channel, length: int, edge_flows: EdgeFlows) -> FixedPoint:
    """F(s) = Σ_a F(s,a) and π(a|s) = F(s,a)/F(s) from the leaves up."""
    channel.check_length(length)
    log_flows = [log_reward.double()]
    log_policies: list[Tensor] = []
    for position in reversed(range(length)):
        log_edges = edge_flows(log_flows[-1].reshape(-1, channel.num_tokens), position)
        log_flows.append(torch.logsumexp(log_edges, dim=-1))
        log_policies.append(torch.log_softmax(log_edges, dim=-1))
    log_policies.reverse()
    return FixedPoint(log_flows[::-1], log_policies, terminal_log_probs(policy_log_marginals(log_policies, channel)))
