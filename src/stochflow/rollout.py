"""Task + channel + policy → trajectories. The one loop over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stochflow.channels import Channel
from stochflow.logmath import masked_log_softmax
from stochflow.models.body import PrefixBody
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.prefixes import SMALL_BATCH, PrefixTree, Recording


class Sampler(Protocol):
    """Walks a batch of prefixes forward, one token at a time."""

    def log_policy(self) -> Tensor:
        """log π(·|s) at the current prefixes, on the CPU, [batch, K]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, [batch, K]; None for all."""

    def advance(self, outcomes: Tensor) -> None:
        """Append one token per row, [batch]."""


class NetworkSampler:
    """The policy network, its first layer computed incrementally and prefixes that rows share evaluated once.

    With `records` it keeps what was computed, for a loss at the same weights.
    """

    def __init__(
        self, network: FlowNetwork, batch_size: int, context: Tensor | None = None, records: bool = False
    ) -> None:
        self._network, self._context = network, context
        self._records = records and isinstance(network.body, PrefixBody)
        merge = batch_size >= SMALL_BATCH and (context is None or context.ndim == 1)
        self._tree = PrefixTree(network.num_tokens, network.length, batch_size, network.body.start.device, merge)
        self._sums = [network.body.begin(len(self._tree.rows[0]))]
        self._indices: list[list[Tensor]] = []
        self._made: list[list[Tensor]] = []

    def log_policy(self) -> Tensor:
        tree, network = self._tree, self._network
        made: list[Tensor] | None = None
        if self._records:
            self._made.append(made := [])
        allowed = None if network.mask is None else network.allowed(tree.node_tokens(tree.depth))
        log_policy = network.log_policy(self._sums[-1], self._context, allowed, made)
        return (log_policy if tree.parted else log_policy.index_select(0, tree.which[-1])).cpu()

    def allowed(self) -> Tensor | None:
        if self._network.mask is None:
            return None
        return self._network.mask.next(self._tree.tokens).cpu()

    def advance(self, outcomes: Tensor) -> None:
        tree, body = self._tree, self._network.body
        tree.advance(outcomes.to(tree.which[-1].device))
        if tree.depth == self._network.length:
            return
        sums = tree.inherited(self._sums[-1], tree.depth)
        tokens = tree.node_tokens(tree.depth)
        if self._records and isinstance(body, PrefixBody):
            self._indices.append(body.last_indices(tokens))
            self._sums.append(body.add(sums, self._indices[-1]))
        else:
            self._sums = [body.extend(sums, tokens)]

    def recording(self) -> Recording | None:
        """What the network computed at all proper prefixes, once every token has been drawn; None if not kept."""
        return Recording(self._tree, self._sums, self._indices, self._made) if self._records else None


@dataclass(frozen=True)
class Exploration:
    """How intentions are drawn during training; the default is the policy itself, which is how it is judged."""

    epsilon: float = 0.0
    temperature: float = 1.0
    restarts: float = 0.0

    def behaviour(self, log_policy: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(1 − ε)·softmax(log π/temperature) + ε/K, over the allowed intentions alone; [batch, K] each."""
        if self.temperature != 1.0:
            log_policy = masked_log_softmax(log_policy / self.temperature, allowed)
        if self.epsilon == 0.0:
            return log_policy.exp()
        if allowed is None:
            return log_policy.exp().mul_(1.0 - self.epsilon).add_(self.epsilon / log_policy.shape[-1])
        anything = self.epsilon / allowed.sum(dim=-1, keepdim=True) * allowed
        return (1.0 - self.epsilon) * log_policy.exp() + anything


@dataclass(frozen=True)
class Walk:
    """An unscored batch of episodes; the fields are those of `Trajectories`."""

    intentions: Tensor
    outcomes: Tensor
    valid: Tensor
    log_behaviour: Tensor


@torch.no_grad()
def rollout(
    sampler: Sampler,
    channel: Channel,
    shape: tuple[int, int],
    generators: Mapping[str, torch.Generator],
    exploration: Exploration | None = None,
) -> Walk:
    """Sample episodes of fixed length.

    Args:
        shape: batch size and length.
        generators: "policy" draws intentions and starting prefixes, "channel" draws outcomes.
    """
    batch_size, length = shape
    exploration = exploration or Exploration()
    start_depths = _start_depths(batch_size, length, exploration.restarts, generators["policy"])
    valid = start_depths.unsqueeze(-1) <= torch.arange(length)
    steps = []
    for depth in range(length):
        behaviour = exploration.behaviour(sampler.log_policy(), sampler.allowed())
        intentions = draw(behaviour, generators["policy"])
        outcomes = channel.sample(intentions, depth, generators["channel"])
        if exploration.restarts:
            anything = torch.randint(channel.num_tokens, (batch_size,), generator=generators["policy"])
            outcomes = torch.where(valid[:, depth], outcomes, anything)
        sampler.advance(outcomes)
        steps.append((intentions, outcomes, behaviour))
    intentions, outcomes, behaviour = (torch.stack(column, dim=1) for column in zip(*steps, strict=True))
    chosen = behaviour.gather(-1, intentions.unsqueeze(-1)).squeeze(-1)
    return Walk(intentions, outcomes, valid, torch.where(valid, chosen.log(), 0.0))


def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """One index per row in proportion to its probabilities, [batch, K] → [batch].

    Exponential clocks race, as in `torch.multinomial` for one draw, whose checks of the input take longer than that.
    """
    clocks = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / clocks).argmax(dim=-1)


def _start_depths(batch_size: int, length: int, share: float, generator: torch.Generator) -> Tensor:
    """Length of the random prefix that each episode starts from; zero for most, [batch]."""
    if share == 0.0:
        return torch.zeros(batch_size, dtype=torch.int64)
    depths = torch.randint(length, (batch_size,), generator=generator)
    restarted = torch.rand(batch_size, generator=generator) < share
    return torch.where(restarted, depths, 0)
