"""Task + channel + policy → trajectories. The one loop over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.core.logspace import masked_log_softmax
from stochflow.environments.channels import Channel
from stochflow.models.engine.prefix_layout import PrefixTree, num_complete_levels
from stochflow.models.flow_network import FlowNetwork

Array = npt.NDArray[Any]

_MAX_RECORDED = 2**23  # numbers per layer that are kept for the loss: about a third of a gigabyte for all layers


class Sampler(Protocol):
    """Walks a batch of prefixes forward, one token at a time."""

    def log_policy(self) -> Array:
        """log π(·|s) at the current prefixes, up to a constant in each row, [batch, K]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, on the CPU, [batch, K]; None for all."""

    def advance(self, outcomes: Array) -> None:
        """Append one token per row, [batch]."""


class NetworkSampler:
    """The policy network, its first layer computed incrementally and prefixes that rows share evaluated once."""

    @torch.no_grad()
    def __init__(self, network: FlowNetwork, batch_size: int, context: Tensor | None = None) -> None:
        self._network, self._context = network, context
        apart = not network.fused or (context is not None and context.ndim > 1)
        self._tree = PrefixTree(network.num_tokens, batch_size, network.body.start.device, apart=apart)
        self._sums = network.body.begin(self._tree.sizes[0])

    def log_policy(self) -> Array:
        tree = self._tree
        allowed = self._network.allowed(tree.node_tokens(tree.depth))
        return tree.at_rows(self._network.log_policy(self._sums, self._context, allowed)).detach().cpu().numpy()

    def allowed(self) -> Tensor | None:
        return _allowed(self._network, self._tree)

    def advance(self, outcomes: Array) -> None:
        tree = self._tree
        tree.advance(outcomes)
        if tree.depth < self._network.length:
            inherited = tree.inherited(self._sums, tree.depth)
            self._sums = self._network.body.extend(inherited, tree.node_tokens(tree.depth))


class RecordingSampler:
    """The same, keeping what was computed for a loss at the same weights; the first levels are evaluated at once."""

    @torch.no_grad()
    def __init__(self, network: FlowNetwork, batch_size: int) -> None:
        self._network = network
        num_complete = 0
        if network.mask is None:
            num_complete = num_complete_levels(network.num_tokens, network.length, batch_size)
        tree = PrefixTree(network.num_tokens, batch_size, network.body.start.device, num_complete)
        self.recorder = network.recorder(tree, num_complete)

    def log_policy(self) -> Array:
        recorder = self.recorder
        if recorder.num_levels == recorder.tree.depth:
            recorder.evaluate()
        logits = recorder.logits()
        if self._network.mask is None:
            return logits
        return masked_log_softmax(torch.from_numpy(logits), self.allowed()).numpy()

    def allowed(self) -> Tensor | None:
        return _allowed(self._network, self.recorder.tree)

    def advance(self, outcomes: Array) -> None:
        recorder, tree = self.recorder, self.recorder.tree
        tree.advance(outcomes)
        if recorder.needs_growth and tree.depth < self._network.length:
            recorder.grow()


def policy_sampler(network: FlowNetwork, batch_size: int) -> Sampler:
    """A sampler that keeps what a loss on the same episodes needs, where that can be kept and memory is no concern."""
    fits = batch_size * network.length * network.body.width <= _MAX_RECORDED
    return RecordingSampler(network, batch_size) if fits and network.records else NetworkSampler(network, batch_size)


def _allowed(network: FlowNetwork, tree: PrefixTree) -> Tensor | None:
    allowed = None if network.mask is None else network.mask.next(tree.tokens)
    return None if allowed is None else allowed.cpu()


@dataclass(frozen=True)
class Exploration:
    """How intentions are drawn during training; the default is the policy itself, which is how it is judged."""

    epsilon: float = 0.0
    temperature: float = 1.0
    restarts: float = 0.0

    def log_behaviour(self, log_policy: Array, allowed: Tensor | None = None) -> Array:
        """The logarithm of `behaviour`, up to a constant in each row."""
        if self.epsilon == 0.0 and self.temperature == 1.0 and allowed is None:
            return log_policy
        return self.behaviour(torch.from_numpy(log_policy), allowed).log().numpy()

    def behaviour(self, log_policy: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(1 − ε)·softmax(log π/temperature) + ε/K, over the allowed intentions alone; [batch, K] each."""
        if self.temperature != 1.0:
            log_policy = log_policy / self.temperature
        if allowed is None:
            probs = torch.softmax(log_policy, dim=-1)
            return probs.mul_(1.0 - self.epsilon).add_(self.epsilon / probs.shape[-1]) if self.epsilon else probs
        probs = masked_log_softmax(log_policy, allowed).exp()
        anything = self.epsilon / allowed.sum(dim=-1, keepdim=True) * allowed
        return (1.0 - self.epsilon) * probs + anything


@dataclass(frozen=True)
class Walk:
    """An unscored batch of episodes; the fields are those of `Trajectories`."""

    intentions: Tensor
    outcomes: Tensor
    valid: Tensor
    log_behaviour: Tensor


def rollout(
    sampler: Sampler,
    channel: Channel,
    shape: tuple[int, int],
    generators: Mapping[str, torch.Generator],
    exploration: Exploration | None = None,
    judge_behaviour: bool = True,
) -> Walk:
    """Sample episodes of fixed length.

    Args:
        shape: batch size and length.
        generators: "policy" draws intentions and starting prefixes, "channel" draws outcomes.
        judge_behaviour: False to leave `log_behaviour` at zero.
    """
    batch_size, length = shape
    exploration = exploration or Exploration()
    # made by numpy, which takes a tenth of the time
    valid = torch.from_numpy(np.ones((batch_size, length), np.bool_))
    if exploration.restarts:
        starts = start_depths(batch_size, length, exploration.restarts, generators["policy"])
        valid = starts[:, None] <= torch.arange(length)
    intentions, outcomes = (np.empty((batch_size, length), np.int64) for _ in range(2))
    log_behaviours, log_clocks = [], np.empty((0, 0, 0))
    # element by element, so one draw for all steps is the draws of the steps; a world that obeys draws nothing
    chance = None if channel.slip == 0.0 else channel.draw((length, batch_size), generators["channel"]).numpy()
    with torch.inference_mode():
        for depth in range(length):
            log_behaviour = exploration.log_behaviour(sampler.log_policy(), sampler.allowed())
            if depth == 0 or exploration.restarts:
                num = 1 if exploration.restarts else length
                log_clocks = _log_clocks((num, *log_behaviour.shape), log_behaviour.dtype, generators["policy"])
            # exponential clocks race: this is how `torch.multinomial` draws, without its checks of the input
            intended = (log_behaviour - log_clocks[depth % len(log_clocks)]).argmax(axis=-1)
            outcome = intended if chance is None else channel.realised(intended, depth, chance[depth])
            if exploration.restarts:
                anything = torch.randint(channel.num_tokens, (batch_size,), generator=generators["policy"])
                outcome = np.where(valid[:, depth].numpy(), outcome, anything.numpy())
            sampler.advance(outcome)
            intentions[:, depth], outcomes[:, depth] = intended, outcome
            log_behaviours.append(log_behaviour)
    chosen = torch.from_numpy(np.zeros((batch_size, length), np.float32))
    if judge_behaviour:
        chosen = _chosen(torch.from_numpy(np.stack(log_behaviours, axis=1)), torch.from_numpy(intentions))
        if exploration.restarts:
            chosen.masked_fill_(~valid, 0.0)
    return Walk(torch.from_numpy(intentions), torch.from_numpy(outcomes), valid, chosen)


def _log_clocks(shape: tuple[int, ...], dtype: npt.DTypeLike, generator: torch.Generator) -> Array:
    clocks = torch.from_numpy(np.empty(shape, dtype))
    return clocks.exponential_(generator=generator).log_().numpy()


def _chosen(logits: Tensor, intentions: Tensor) -> Tensor:
    """log softmax of the logits at the intentions; [batch, time, K], [batch, time] → [batch, time]."""
    return torch.log_softmax(logits, dim=-1).gather(-1, intentions.unsqueeze(-1)).squeeze(-1)


def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """One index per row in proportion to its probabilities, [batch, K] → [batch], as `rollout` draws them."""
    clocks = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / clocks).argmax(dim=-1)


def start_depths(batch_size: int, length: int, share: float, generator: torch.Generator) -> Tensor:
    """Length of the random prefix that each episode starts from; zero for most, [batch]."""
    if share == 0.0:
        return torch.zeros(batch_size, dtype=torch.int64)
    depths = torch.randint(length, (batch_size,), generator=generator)
    restarted = torch.rand(batch_size, generator=generator) < share
    return torch.where(restarted, depths, 0)
