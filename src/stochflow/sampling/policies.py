"""Policies that can be evaluated: anything that draws intentions and knows the exact probability of what comes.

A `Policy` is finished and stands for itself; a `Sampler` steps one batch of it forward and is used up by that.
"""

import math
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from stochflow.core.arrays import Array
from stochflow.core.codes import decode, encode
from stochflow.core.logspace import masked_log_softmax, safe_log
from stochflow.models.base import FlowModel, Sampler
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.graph_network import GraphNetwork, GraphSampler
from stochflow.models.history import HistoryNetwork
from stochflow.models.masks import IntentionMask
from stochflow.sampling.history_policy import HistoryPolicy
from stochflow.sampling.rollout import Walk
from stochflow.truth import dag
from stochflow.truth.prefix_tree import policy_log_marginals, terminal_log_probs, walked_log_marginals

_BLOCK = 2**22  # entries of one block of the table designs × kept sequences
_FEW_TOKENS = 16


class Policy(Protocol):
    """A finished way of making objects, without exploration.

    Every method takes an environment of the policy's own family, perhaps with other noise than it was trained in.
    """

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        """Intentions for a batch of episodes, step by step."""

    def terminal_log_probs(self, environment: Any) -> Tensor:
        """log P(x) of everything that an enumerable environment can make, float64, in the order of its objects."""

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        """log P(x) of what the episodes of a walk made, float64, [num]."""

    def visits(self, walk: Walk, environment: Any) -> Tensor:
        """Share of every state and intention in what the policy does, float64, [..., A]; they sum to one.

        States are those of `Environment.dynamics`: every node of a graph, or the prefixes of a walk.
        """


class NetworkPolicy:
    """π(a|s) of a network over prefixes: each letter is intended with what came before in view."""

    def __init__(self, network: FlowNetwork) -> None:
        self._network = network

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        return self._network.sampler(batch_size)

    def terminal_log_probs(self, environment: Any) -> Tensor:
        """One sweep down the prefix tree."""
        return terminal_log_probs(policy_log_marginals(self._tree(), environment.channel))

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        outcomes = walk.outcomes
        return walked_log_marginals(self._log_policy(outcomes), outcomes, environment.channel).sum(dim=-1)

    def visits(self, walk: Walk, environment: Any) -> Tensor:
        return self._log_policy(walk.outcomes).exp().double() / walk.outcomes.numel()

    def _tree(self) -> Iterator[Tensor]:
        """log π(·|s) level by level; without evaluating the network where its head is zero, as before training."""
        network, head = self._network, self._network.policy_head
        if network.mask is not None or any(bool(weight.any()) for weight in head.parameters()):
            yield from (level.cpu() for level in network.tree_log_policies())
            return
        for depth in range(network.length):
            yield torch.full((network.num_tokens**depth, network.num_tokens), -math.log(network.num_tokens))

    @torch.no_grad()
    def _log_policy(self, outcomes: Tensor) -> Tensor:
        return self._network.evaluate(AtPrefixes(outcomes)).heads().log_policy[:, :-1].cpu()


class MarkovPolicy:
    """π(a|t, last letters): one table per position, without a network.

    >>> policy = MarkovPolicy([torch.full((1, 2), 0.5), torch.eye(2)])  # any letter, and then the same again
    >>> policy.log_policy(torch.tensor([[1, 1]])).exp().round(decimals=3)
    tensor([[[0.5000, 0.5000],
             [0.0000, 1.0000]]])

    Attributes:
        tables: π of every position, [K^m, K] each; rows are the last m letters in lexicographic order, and m is zero at
            first and grows by one letter at most.
        mask: which intentions are allowed; None for all.
    """

    def __init__(self, tables: Sequence[Tensor], mask: IntentionMask | None = None) -> None:
        self.tables, self.mask = tables, mask
        self.num_tokens = tables[0].shape[1]

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        return MarkovSampler(self, batch_size)

    def terminal_log_probs(self, environment: Any) -> Tensor:
        """One sweep down the prefix tree."""
        return terminal_log_probs(policy_log_marginals(self._tree(), environment.channel))

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        outcomes = walk.outcomes
        return walked_log_marginals(self.log_policy(outcomes), outcomes, environment.channel).sum(dim=-1)

    def visits(self, walk: Walk, environment: Any) -> Tensor:
        return self.log_policy(walk.outcomes).exp() / walk.outcomes.numel()

    def log_policy(self, outcomes: Tensor) -> Tensor:
        """log π at every unfinished prefix of sequences; [num, L] → [num, L, K]."""
        rows, levels = torch.zeros(len(outcomes), dtype=torch.int64), []
        for position, letters in enumerate(outcomes.T):
            levels.append(self.at(position, rows, outcomes[:, :position]))
            rows = self.following(position, rows, letters)
        return torch.stack(levels, dim=1)

    def at(self, position: int, rows: Tensor, prefixes: Tensor) -> Tensor:
        """log π at rows of a table and the prefixes that they belong to; [num], [num, t] → [num, K]."""
        log_policy = safe_log(self.tables[position][rows])
        return log_policy if self.mask is None else masked_log_softmax(log_policy, self.mask.next(prefixes))

    def following(self, position: int, rows: Tensor, letters: Tensor) -> Tensor:
        """Rows of the next table; a row is a number whose last digits are the last letters. [num] each → [num]."""
        size = len(self.tables[position + 1]) if position + 1 < len(self.tables) else 1
        return (rows * self.num_tokens + letters) % size

    def _tree(self) -> Iterator[Tensor]:
        for position, table in enumerate(self.tables):
            numbers = torch.arange(self.num_tokens**position)
            yield self.at(position, numbers % len(table), decode(numbers, self.num_tokens, position))


class MarkovSampler:
    """Looks the intentions of a `MarkovPolicy` up."""

    def __init__(self, policy: MarkovPolicy, batch_size: int) -> None:
        self._policy, self._rows = policy, torch.zeros(batch_size, dtype=torch.int64)
        self._prefixes = torch.empty(batch_size, 0, dtype=torch.int64)

    def log_policy(self) -> Array:
        found: Array = self._policy.at(self._prefixes.shape[1], self._rows, self._prefixes).numpy()
        return found

    def allowed(self) -> Tensor | None:
        return None if self._policy.mask is None else self._policy.mask.next(self._prefixes)

    def advance(self, outcomes: Array) -> None:
        letters = torch.from_numpy(outcomes)
        self._rows = self._policy.following(self._prefixes.shape[1], self._rows, letters)
        self._prefixes = torch.cat([self._prefixes, letters.unsqueeze(1)], dim=1)


class GraphPolicy:
    """π(a|s) of a network over the nodes of a graph."""

    def __init__(self, network: GraphNetwork) -> None:
        self._network = network

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        return GraphSampler(self._network.graph, batch_size, self._network.policy_table())

    def terminal_log_probs(self, environment: Any) -> Tensor:
        return dag.object_log_probs(environment.graph, self._network.policy_table())

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        return self.terminal_log_probs(environment)[environment.made(walk.outcomes, walk.valid)]

    def visits(self, walk: Walk, environment: Any) -> Tensor:
        graph = environment.graph
        policies = self._network.policy_table().exp() * graph.valid_actions
        nodes = dag.node_visits(graph, dag.outcome_marginals(graph.dynamics, policies))[: graph.num_states]
        return (nodes / nodes.sum()).unsqueeze(-1) * policies


class OpenLoopPolicy:
    """Takes one of a list of sequences by weight, by default uniformly, and intends it to the end, whatever comes.

    Attributes:
        sequences: distinct sequences, [num_kept, L].
        counts: how often each of them stands in the list, or the sum of its weights, float64, [num_kept].
    """

    def __init__(self, kept: Tensor, num_tokens: int, weights: Tensor | None = None) -> None:
        self._num_tokens = num_tokens
        self.sequences, rows = kept.long().unique(dim=0, return_inverse=True)
        self.counts = torch.bincount(rows, weights=weights, minlength=len(self.sequences)).double()

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        rows = torch.multinomial(self.counts, batch_size, replacement=True, generator=generator)
        return OpenLoopSampler(self.sequences[rows], self._num_tokens)

    def terminal_log_probs(self, environment: Any) -> Tensor:
        """The counts, pushed through the channel one position at a time; sequences out of reach get log 1e-30."""
        length = self.sequences.shape[1]
        probs = torch.zeros(self._num_tokens**length, dtype=torch.float64)
        probs[encode(self.sequences, self._num_tokens)] = self.counts / self.counts.sum()
        for position in range(length):
            shape = (self._num_tokens**position, self._num_tokens, -1)
            probs = torch.einsum("pas,ab->pbs", probs.reshape(shape), environment.channel.matrix(position))
        return safe_log(probs.reshape(-1))

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        """log Σ_y count(y)/n·Π_t P(x_t|y_t)."""
        log_matrices = environment.channel.log_matrices(walk.outcomes.shape[1])  # [L, K, K]
        log_weights = (self.counts / self.counts.sum()).log()
        blocks = walk.outcomes.split(max(1, _BLOCK // len(self.sequences)))
        few = self._num_tokens <= _FEW_TOKENS
        pairs = self._product_of_pairs(blocks, log_matrices) if few else self._looked_up(blocks, log_matrices)
        return torch.cat([torch.logsumexp(block + log_weights, dim=-1) for block in pairs])

    def _product_of_pairs(self, blocks: Sequence[Tensor], log_matrices: Tensor) -> Iterator[Tensor]:
        """log Π_t P(x_t|y_t) of all pairs as a product of matrices; [num, L] each → [num, num_kept] each."""
        # [num_kept, L·K]: log P(b|y_t) of every letter b that could have come
        columns = log_matrices[torch.arange(len(log_matrices)), self.sequences].flatten(1)
        for block in blocks:
            yield one_hot(block, self._num_tokens).double().flatten(1) @ columns.T

    def _looked_up(self, blocks: Sequence[Tensor], log_matrices: Tensor) -> Iterator[Tensor]:
        """The same position by position: where there are many letters, most entries of the product are zero."""
        for block in blocks:
            total = torch.zeros(len(block), len(self.sequences), dtype=torch.float64)
            for log_matrix, came, intended in zip(log_matrices, block.T, self.sequences.T, strict=True):
                total += log_matrix.T[came][:, intended]
            yield total

    def visits(self, walk: Walk, environment: Any) -> Tensor:
        """Certain: the whole sequence was chosen beforehand."""
        return one_hot(walk.intentions, self._num_tokens).double() / walk.intentions.numel()


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


class DesignsFirst:
    """Intends given designs in the first rows, blind to what comes, and what another sampler says in the others."""

    def __init__(self, designs: Tensor, num_tokens: int, rest: Sampler) -> None:
        self._num, self._designs, self._rest = len(designs), OpenLoopSampler(designs, num_tokens), rest

    def log_policy(self) -> Array:
        log_policy = self._rest.log_policy().copy()
        log_policy[: self._num] = self._designs.log_policy()
        return log_policy

    def allowed(self) -> Tensor | None:
        return self._rest.allowed()

    def advance(self, outcomes: Array) -> None:
        self._designs.advance(outcomes)
        self._rest.advance(outcomes)


class KeptLetters:
    """Intends some letters of given designs, whatever comes, and what another sampler says in place of the others.

    Exploration leaves the kept letters alone. Where noise has led to a prefix at which constraints forbid a kept
    letter, the other sampler chooses there too.
    """

    def __init__(self, designs: Tensor, kept: Tensor, num_tokens: int, rest: Sampler) -> None:
        """The designs, and True where a letter is kept, [batch, L] each."""
        self._letters, self._kept, self._rest = one_hot(designs, num_tokens).bool(), kept, rest
        self._depth = 0

    def log_policy(self) -> Array:
        return self._rest.log_policy()

    def allowed(self) -> Tensor | None:
        allowed, kept = self._rest.allowed(), self._kept[:, self._depth, None]
        if not kept.any():
            return allowed
        letters = self._letters[:, self._depth]
        if allowed is None:
            return letters | ~kept
        possible = letters & allowed
        return torch.where(kept & possible.any(dim=-1, keepdim=True), possible, allowed)

    def advance(self, outcomes: Array) -> None:
        self._depth += 1
        self._rest.advance(outcomes)


@singledispatch
def policy_of(network: FlowModel) -> Policy:
    """The policy that a network stands for."""
    raise TypeError(f"{type(network).__name__} has no policy to evaluate; give Objective.policy one")


@policy_of.register
def _(network: FlowNetwork) -> Policy:
    return NetworkPolicy(network)


@policy_of.register
def _(network: HistoryNetwork) -> Policy:
    return HistoryPolicy(network)


@policy_of.register
def _(network: GraphNetwork) -> Policy:
    return GraphPolicy(network)
