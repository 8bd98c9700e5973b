"""Task + channel + policy → trajectories. The one loop over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stochflow.channels import Channel
from stochflow.logmath import masked_log_softmax
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.prefixes import PrefixTree, num_complete_levels

_MAX_RECORDED = 2**23  # numbers per layer that are kept for the loss: about a third of a gigabyte for all layers


class Sampler(Protocol):
    """Walks a batch of prefixes forward, one token at a time."""

    def log_policy(self) -> Tensor:
        """log π(·|s) at the current prefixes, up to a constant in each row, on the CPU, [batch, K]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, [batch, K]; None for all."""

    def advance(self, outcomes: Tensor) -> None:
        """Append one token per row, [batch]."""


class NetworkSampler:
    """The policy network, its first layer computed incrementally and prefixes that rows share evaluated once."""

    @torch.no_grad()
    def __init__(self, network: FlowNetwork, batch_size: int, context: Tensor | None = None) -> None:
        self._network, self._context = network, context
        apart = not network.fused or (context is not None and context.ndim > 1)
        self._tree = PrefixTree(network.num_tokens, batch_size, network.body.start.device, apart=apart)
        self._sums = network.body.begin(self._tree.sizes[0])

    def log_policy(self) -> Tensor:
        tree = self._tree
        allowed = self._network.allowed(tree.node_tokens(tree.depth))
        return tree.at_rows(self._network.log_policy(self._sums, self._context, allowed)).cpu()

    def allowed(self) -> Tensor | None:
        return _allowed(self._network, self._tree)

    def advance(self, outcomes: Tensor) -> None:
        tree = self._tree
        tree.advance(outcomes.to(self._sums.device))
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
        device = network.body.start.device
        self._on_cpu = device.type == "cpu"
        self.recorder = network.recorder(PrefixTree(network.num_tokens, batch_size, device, num_complete), num_complete)

    def log_policy(self) -> Tensor:
        recorder, tree = self.recorder, self.recorder.tree
        if recorder.num_levels == tree.depth:
            recorder.evaluate()
        logits = tree.at_rows(recorder.logits(tree.depth))
        logits = logits if self._on_cpu else logits.cpu()
        return logits if self._network.mask is None else masked_log_softmax(logits, self.allowed())

    def allowed(self) -> Tensor | None:
        return _allowed(self._network, self.recorder.tree)

    def advance(self, outcomes: Tensor) -> None:
        recorder, tree = self.recorder, self.recorder.tree
        tree.advance(outcomes if self._on_cpu else outcomes.to(tree.device))
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

    def log_behaviour(self, log_policy: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The logarithm of `behaviour`, up to a constant in each row."""
        if self.epsilon == 0.0 and self.temperature == 1.0 and allowed is None:
            return log_policy
        return self.behaviour(log_policy, allowed).log()

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
    valid = torch.ones(batch_size, length, dtype=torch.bool)
    if exploration.restarts:
        starts = start_depths(batch_size, length, exploration.restarts, generators["policy"])
        valid = starts[:, None] <= torch.arange(length)
    steps = []
    log_clocks: list[Tensor] = []
    with torch.inference_mode():
        for depth in range(length):
            log_behaviour = exploration.log_behaviour(sampler.log_policy(), sampler.allowed())
            if not log_clocks:
                # element by element, so one draw for all steps is the draws of the steps
                num = 1 if exploration.restarts else length
                clocks = log_behaviour.new_empty(num, *log_behaviour.shape)
                log_clocks = list(clocks.exponential_(generator=generators["policy"]).log_())[::-1]
            # exponential clocks race: this is how `torch.multinomial` draws, without its checks of the input
            intentions = (log_behaviour - log_clocks.pop()).argmax(dim=-1)
            outcomes = channel.sample(intentions, depth, generators["channel"])
            if exploration.restarts:
                anything = torch.randint(channel.num_tokens, (batch_size,), generator=generators["policy"])
                outcomes = torch.where(valid[:, depth], outcomes, anything)
            sampler.advance(outcomes)
            steps.append((intentions, outcomes, log_behaviour))
    # in a world that obeys they are the same tensors
    obeyed = all(intended is outcome for intended, outcome, _ in steps)
    intentions, log_behaviour = (torch.stack([step[place] for step in steps], dim=1) for place in (0, 2))
    outcomes = intentions if obeyed else torch.stack([step[1] for step in steps], dim=1)
    chosen = torch.log_softmax(log_behaviour, dim=-1).gather(-1, intentions.unsqueeze(-1)).squeeze(-1)
    return Walk(intentions, outcomes, valid, chosen.masked_fill_(~valid, 0.0) if exploration.restarts else chosen)


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
