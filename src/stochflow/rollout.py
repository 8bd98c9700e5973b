"""Task + channel + policy → trajectories. The one loop over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stochflow.channels import Channel
from stochflow.logmath import masked_log_softmax
from stochflow.models.flow_network import FlowNetwork


class Sampler(Protocol):
    """Walks a batch of prefixes forward, one token at a time."""

    def log_policy(self) -> Tensor:
        """log π(·|s) at the current prefixes, on the CPU, [batch, K]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, [batch, K]; None for all."""

    def advance(self, outcomes: Tensor) -> None:
        """Append one token per row, [batch]."""


class NetworkSampler:
    """The policy network, with its first layer computed incrementally."""

    def __init__(self, network: FlowNetwork, batch_size: int, context: Tensor | None = None) -> None:
        self._network, self._context = network, context
        device = network.body.start.device
        self._tokens = torch.empty(batch_size, 0, dtype=torch.int64, device=device)
        self._sums = network.body.begin(batch_size)

    def log_policy(self) -> Tensor:
        return self._network.log_policy(self._sums, self._context, self._network.allowed(self._tokens)).cpu()

    def allowed(self) -> Tensor | None:
        allowed = self._network.allowed(self._tokens)
        return None if allowed is None else allowed.cpu()

    def advance(self, outcomes: Tensor) -> None:
        self._tokens = torch.cat([self._tokens, outcomes.to(self._tokens.device).unsqueeze(-1)], dim=1)
        self._sums = self._network.body.extend(self._sums, self._tokens)


@dataclass(frozen=True)
class Exploration:
    """How intentions are drawn during training; the default is the policy itself, which is how it is judged."""

    epsilon: float = 0.0
    temperature: float = 1.0
    restarts: float = 0.0

    def behaviour(self, log_policy: Tensor, allowed: Tensor | None = None) -> Tensor:
        """log of (1 − ε)·softmax(log π/temperature) + ε/K, over the allowed intentions alone; [batch, K] each."""
        tempered = masked_log_softmax(log_policy / self.temperature, allowed)
        if self.epsilon == 0.0:
            return tempered
        num_allowed = log_policy.shape[-1] if allowed is None else allowed.sum(dim=-1, keepdim=True)
        anything = self.epsilon / num_allowed * (1.0 if allowed is None else allowed)
        return ((1.0 - self.epsilon) * tempered.exp() + anything).log()


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
    starts = start_depths(batch_size, length, exploration.restarts, generators["policy"])
    steps = []
    for depth in range(length):
        log_behaviour = exploration.behaviour(sampler.log_policy(), sampler.allowed())
        intentions = torch.multinomial(log_behaviour.exp(), 1, generator=generators["policy"])
        outcomes = channel.sample(intentions.squeeze(-1), depth, generators["channel"])
        valid = starts <= depth
        if exploration.restarts:
            anything = torch.randint(channel.num_tokens, (batch_size,), generator=generators["policy"])
            outcomes = torch.where(valid, outcomes, anything)
        sampler.advance(outcomes)
        chosen = log_behaviour.gather(-1, intentions).squeeze(-1)
        steps.append((intentions.squeeze(-1), outcomes, valid, torch.where(valid, chosen, 0.0)))
    return Walk(*(torch.stack(column, dim=1) for column in zip(*steps, strict=True)))


def start_depths(batch_size: int, length: int, share: float, generator: torch.Generator) -> Tensor:
    """Length of the random prefix that each episode starts from; zero for most, [batch]."""
    if share == 0.0:
        return torch.zeros(batch_size, dtype=torch.int64)
    depths = torch.randint(length, (batch_size,), generator=generator)
    restarted = torch.rand(batch_size, generator=generator) < share
    return torch.where(restarted, depths, 0)
