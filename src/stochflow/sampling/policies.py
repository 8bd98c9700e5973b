"""What can be judged: anything that draws intentions and knows the exact probability of what comes of them."""

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from stochflow.core.logspace import log_marginal, safe_log
from stochflow.environments.channels import Channel
from stochflow.models.flow_network import FlowNetwork
from stochflow.sampling.rollout import Array, NetworkSampler, Sampler, Walk
from stochflow.truth.prefix_tree import policy_log_marginals, terminal_log_probs

_BLOCK = 2**22  # entries of one block of the table designs × kept sequences


class Policy(Protocol):
    """A finished way of making designs, without exploration."""

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        """Intentions for a batch of designs, letter by letter."""

    def terminal_log_probs(self, channel: Channel) -> Tensor:
        """log P(x) of every sequence in lexicographic order, float64, [K^L]; for enumerable tasks only."""

    def log_probs(self, outcomes: Tensor, channel: Channel) -> Tensor:
        """log P(x) of given sequences, float64; [num, L] → [num]."""

    def intended(self, walk: Walk) -> Tensor:
        """Distribution of the intention before every letter of a walk, float64, [num, L, K]."""


class NetworkPolicy:
    """π(a|s) of a network: each letter is intended with what came before in view."""

    def __init__(self, network: FlowNetwork) -> None:
        self._network = network

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        return NetworkSampler(self._network, batch_size)

    def terminal_log_probs(self, channel: Channel) -> Tensor:
        """One sweep down the prefix tree."""
        return terminal_log_probs(policy_log_marginals(self._tree(), channel))

    def log_probs(self, outcomes: Tensor, channel: Channel) -> Tensor:
        log_marginals = log_marginal(self._log_policy(outcomes).double(), channel.log_matrices(outcomes.shape[1]))
        return log_marginals.gather(-1, outcomes.unsqueeze(-1)).sum(dim=(-2, -1))

    def intended(self, walk: Walk) -> Tensor:
        return self._log_policy(walk.outcomes).exp().double()

    def _tree(self) -> Iterator[Tensor]:
        """log π(·|s) level by level; without asking the network where its head is zero, as before training."""
        network, head = self._network, self._network.policy_head
        if network.mask is not None or any(bool(weight.any()) for weight in head.parameters()):
            yield from (level.cpu() for level in network.tree_log_policies())
            return
        for depth in range(network.length):
            yield torch.full((network.num_tokens**depth, network.num_tokens), -math.log(network.num_tokens))

    @torch.no_grad()
    def _log_policy(self, outcomes: Tensor) -> Tensor:
        tokens = outcomes.to(self._network.body.start.device)
        return self._network.all_prefixes(tokens).log_policy[:, :-1].cpu()


class OpenLoopPolicy:
    """Takes one of a list of sequences uniformly and intends it to the end, whatever comes.

    Attributes:
        sequences: distinct sequences, [num_kept, L].
        counts: how often each of them stands in the list, float64, [num_kept].
    """

    def __init__(self, kept: Tensor, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self.sequences, counts = kept.long().unique(dim=0, return_counts=True)
        self.counts = counts.double()

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        rows = torch.multinomial(self.counts, batch_size, replacement=True, generator=generator)
        return OpenLoopSampler(self.sequences[rows], self._num_tokens)

    def terminal_log_probs(self, channel: Channel) -> Tensor:
        """The counts, pushed through the channel one position at a time; sequences out of reach get log 1e-30."""
        length = self.sequences.shape[1]
        powers = self._num_tokens ** torch.arange(length - 1, -1, -1)
        codes = (self.sequences * powers).sum(dim=-1)
        probs = torch.zeros(self._num_tokens**length, dtype=torch.float64)
        probs[codes] = self.counts / self.counts.sum()
        for position in range(length):
            shape = (self._num_tokens**position, self._num_tokens, -1)
            probs = torch.einsum("pas,ab->pbs", probs.reshape(shape), channel.matrix(position))
        return safe_log(probs.reshape(-1))

    def log_probs(self, outcomes: Tensor, channel: Channel) -> Tensor:
        """log Σ_y count(y)/n·Π_t P(x_t|y_t): the products of all pairs are one matrix product of their logarithms."""
        log_matrices = channel.log_matrices(outcomes.shape[1])  # [L, K, K]
        positions = torch.arange(outcomes.shape[1])
        # [num_kept, L·K]: log P(b|y_t) of every letter b that could have come
        columns = log_matrices[positions, self.sequences].flatten(1)
        log_weights = (self.counts / self.counts.sum()).log()
        rows = one_hot(outcomes, self._num_tokens).double().flatten(1)
        blocks = rows.split(max(1, _BLOCK // len(columns)))
        return torch.cat([torch.logsumexp(block @ columns.T + log_weights, dim=-1) for block in blocks])

    def intended(self, walk: Walk) -> Tensor:
        """Certain: the whole sequence was chosen beforehand."""
        return one_hot(walk.intentions, self._num_tokens).double()


class OpenLoopSampler:
    """Intends given sequences letter by letter, [batch, L], blind to what comes."""

    def __init__(self, sequences: Tensor, num_tokens: int) -> None:
        self._log_policies = safe_log(one_hot(sequences, num_tokens).double()).numpy()
        self._depth = 0

    def log_policy(self) -> Array:
        return self._log_policies[:, self._depth]

    def allowed(self) -> Tensor | None:
        return None

    def advance(self, outcomes: Array) -> None:
        self._depth += 1


def as_policy(judged: Policy | FlowNetwork) -> Policy:
    """A network stands for its own π."""
    return NetworkPolicy(judged) if isinstance(judged, FlowNetwork) else judged
