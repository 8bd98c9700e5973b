"""The full prefix tree of a fixed-length task: its terminal distribution and its attainable optimum.

Level t holds all K^t prefixes in lexicographic order, so the children of row i are rows K·i … K·i + K − 1.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.core.logspace import TINY_PROBABILITY, log_marginal, pick
from stochflow.environments.channels import Channel
from stochflow.environments.memory_channels import MemoryChannel
from stochflow.truth.state_optimum import StateOptimum, blahut_arimoto, state_optimum

# beyond it a channel hardly tells its intentions apart, and solving for them is mere rounding
_LARGEST_INVERSE = 1e6
_ROUNDING = 1e-9


def terminal_log_probs(log_marginals: Iterable[Tensor]) -> Tensor:
    """log P_π(x) of every complete sequence from log M(·|s) of every level; [K^t, K] each → [K^L]."""
    log_probs = None
    for level in log_marginals:
        log_probs = level.reshape(-1) if log_probs is None else (log_probs.unsqueeze(-1) + level).reshape(-1)
    if log_probs is None:
        raise ValueError("a tree needs at least one level")
    return log_probs


def policy_log_marginals(log_policies: Iterable[Tensor], channel: Channel) -> Iterable[Tensor]:
    """log M(·|s) of every level under the true channel from log π(·|s); [K^t, K] each, float64.

    Impossible outcomes count as 1e-30, so every sum is above zero. All terms are positive: nothing cancels, and the
    product of matrices is as exact as a sum in log space. Of a channel with memory the belief goes with the prefix:
    what outcomes alone say of the hidden state, under a policy that reads no more.
    """
    if isinstance(channel, MemoryChannel):
        beliefs = channel.start.unsqueeze(0)
        for log_policy in log_policies:
            joint = hidden_marginals(log_policy, beliefs, channel)
            marginals = joint.sum(dim=-1)
            yield marginals.clamp_min(TINY_PROBABILITY).log()
            beliefs = ((joint / marginals.unsqueeze(-1).clamp_min(TINY_PROBABILITY)) @ channel.moves).flatten(0, 1)
        return
    for position, log_policy in enumerate(log_policies):
        yield (log_policy.double().exp() @ channel.matrix(position).clamp_min(TINY_PROBABILITY)).log()


def hidden_marginals(log_policy: Tensor, beliefs: Tensor, channel: MemoryChannel) -> Tensor:
    """P(b, z|s) = w(z)·Σ_a π(a|s)·P(b|a,z); [num, K], [num, H] → [num, K, H], float64."""
    return torch.einsum("na,nz,zab->nbz", log_policy.double().exp(), beliefs, channel.emissions)


def walked_log_marginals(log_policy: Tensor, outcomes: Tensor, channel: Channel) -> Tensor:
    """log M(x_t|x_<t) along sequences from log π of a policy that reads outcomes alone, float64.

    Args:
        log_policy: [num, L, K].
        outcomes: [num, L].

    Returns:
        [num, L].
    """
    if not isinstance(channel, MemoryChannel):
        return pick(log_marginal(log_policy.double(), channel.log_matrices(outcomes.shape[1])), outcomes)
    beliefs, found = channel.start.expand(len(outcomes), -1), []
    for letters, policy in zip(outcomes.T, log_policy.unbind(dim=1), strict=True):
        joint = hidden_marginals(policy, beliefs, channel)[torch.arange(len(letters)), letters]
        marginals = joint.sum(dim=-1).clamp_min(TINY_PROBABILITY)
        found.append(marginals.log())
        beliefs = (joint / marginals.unsqueeze(-1)) @ channel.moves
    return torch.stack(found, dim=1)


@dataclass(frozen=True)
class Attainable:
    """The smallest KL(P_π‖R/Z) that any policy can reach under a channel.

    Attributes:
        value: V(root); log Z − V(root) is `min_kl`.
        log_z: log Σ_x R(x).
        policies: π(a|s) that reaches it, per level, [K^t, K].
        log_probs: log P(x) of that policy, [K^L].
    """

    value: float
    log_z: float
    policies: list[Tensor]
    log_probs: Tensor

    @property
    def min_kl(self) -> float:
        """Never negative: without noise the true value is zero and only rounding remains."""
        return max(self.log_z - self.value, 0.0)


def attainable_optimum(
    log_reward: Tensor,
    channel: Channel,
    length: int,
    solver: str = "auto",
    tolerance: float = 1e-7,
) -> Attainable:
    """Solve the tree from the leaves up.

    Args:
        log_reward: log R(x) of every sequence in lexicographic order, [K^L].
        solver: "water-filling" (uniform slip only), "blahut-arimoto", or "auto" for the first that applies.
    """
    channel.check_length(length)
    num_tokens = channel.num_tokens
    values = log_reward.double()
    levels: list[StateOptimum] = []
    for position in reversed(range(length)):
        child_values = values.reshape(-1, num_tokens)
        if solver == "blahut-arimoto":
            level = blahut_arimoto(child_values, channel.matrix(position), tolerance)
        elif solver == "water-filling" and channel.slip is None:
            raise ValueError("water-filling needs a uniform slip channel")
        else:
            level = state_optimum(child_values, channel, position, tolerance)
        levels.append(level)
        values = level.values
    levels.reverse()
    return Attainable(
        value=float(values),
        log_z=float(torch.logsumexp(log_reward.double(), dim=0)),
        policies=[level.policies for level in levels],
        log_probs=terminal_log_probs(level.log_marginals for level in levels),
    )


def kl_to_target(log_probs: Tensor, log_reward: Tensor) -> float:
    """KL(P‖R/Z) in nats over all sequences; both [K^L]."""
    log_target = log_reward.double() - torch.logsumexp(log_reward.double(), dim=0)
    # P sums to one only up to rounding: normalised, the divergence cannot come out below zero
    log_probs = log_probs - torch.logsumexp(log_probs, dim=0)
    return float((log_probs.exp() * (log_probs - log_target)).sum())


def tv_to_target(log_probs: Tensor, log_reward: Tensor) -> float:
    """Total variation ½·Σ|P − R/Z|; both [K^L]."""
    target = torch.softmax(log_reward.double(), dim=0)
    return float((log_probs.exp() - target).abs().sum() / 2)


def entropy(log_probs: Tensor) -> float:
    """−Σ P·log P in nats, of a distribution that is normalised first; [K^L]."""
    log_probs = log_probs - torch.logsumexp(log_probs, dim=0)
    return -float((log_probs.exp() * log_probs).sum())


def infeasible_share(log_reward: Tensor, alpha: float, num_tokens: int) -> list[float]:
    """Per depth, the share of prefixes with a child whose target share F(s')/F(s) is below the slip floor α/K."""
    shares: list[float] = []
    log_flows = log_reward.double()
    floor = math.log(alpha / num_tokens) if alpha > 0 else -math.inf
    while log_flows.numel() > 1:
        children = log_flows.reshape(-1, num_tokens)
        log_flows = torch.logsumexp(children, dim=-1)
        shares.append(float(((children - log_flows.unsqueeze(-1)) < floor).any(dim=-1).double().mean()))
    return shares[::-1]


def unbalanced_share(log_reward: Tensor, channel: Channel, length: int) -> list[float] | None:
    """Per depth, the share of prefixes whose target M(·|s) = F(s')/F(s) no policy reaches; None without an inverse.

    M = πP has the one solution π = M·P⁻¹, and it is a policy when no entry is negative. Under uniform slip the entries
    are (M_b − α/K)/(1 − α), so this is `infeasible_share` for any invertible channel.
    """
    channel.check_length(length)
    shares: list[float] = []
    log_flows = log_reward.double()
    for position in reversed(range(length)):
        inverse, failed = torch.linalg.inv_ex(channel.matrix(position))
        if failed or inverse.abs().max() > _LARGEST_INVERSE:
            return None
        children = log_flows.reshape(-1, channel.num_tokens)
        log_flows = torch.logsumexp(children, dim=-1)
        intentions = (children - log_flows.unsqueeze(-1)).exp() @ inverse
        shares.append(float((intentions < -_ROUNDING).any(dim=-1).double().mean()))
    return shares[::-1]
