"""The states of a plan under each other, and draws of them in proportion to its visits."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.objectives.planning.plan import Plan
from stochflow.sampling.prefix_trie import PrefixTrie


class DrawnStates(NamedTuple):
    """Distinct states in order of their depth; what was drawn several times is here once.

    Attributes:
        nodes: their rows in `PlannedStates`, [rows].
        tokens: a sequence that begins with each, [rows, L].
        depths: tokens of each prefix, [rows].
        weights: those of a level sum to its share of visits over the number of levels, float32, [rows].
        counts: how often each was drawn, [rows].
        sizes: states per level.
    """

    nodes: Tensor
    tokens: Tensor
    depths: Tensor
    weights: Tensor
    counts: Tensor
    sizes: list[int]


class PlannedStates:
    """What there is to learn at every state of a plan, the levels under each other.

    Attributes:
        log_targets: log softmax of V(children), float32, [states, K].
        values: V(s), float32, [states].
        policies: π(a|s) of the plan, float64, [states, K].
    """

    def __init__(self, plan: Plan, trie: PrefixTrie) -> None:
        self._visits, self._trie = plan.visits, trie
        sizes = [len(visits) for visits in plan.visits]
        self._firsts = np.cumsum([0, *sizes[:-1]]).tolist()
        # the trie may have grown since the plan was made: newer nodes stand behind those of the plan
        self._examples = torch.cat([trie.examples[depth][:size] for depth, size in enumerate(sizes)])
        self.log_targets = torch.log_softmax(torch.cat(plan.child_values), dim=-1).float()
        self.values, self.policies = torch.cat(plan.values).float(), torch.cat(plan.policies)

    def draw(self, num_rows: int, generator: torch.Generator) -> DrawnStates:
        """So many states of every level, or all of them, as `draw_states` says."""
        levels = [self._level(visits, num_rows, generator) for visits in self._visits]
        sizes = [len(distinct) for distinct, _, _ in levels]
        distinct, weights, counts = (np.concatenate(column) for column in zip(*levels, strict=True))
        nodes = torch.from_numpy(distinct + np.repeat(self._firsts, sizes))
        return DrawnStates(
            nodes,
            self._trie.sequences.index_select(0, self._examples.index_select(0, nodes)),
            torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)),
            torch.from_numpy(weights.astype(np.float32) / len(sizes)),
            torch.from_numpy(counts),
            sizes,
        )

    def _level(self, visits: Tensor, num_rows: int, generator: torch.Generator) -> tuple[Array, Array, Array]:
        """Distinct nodes of one level, the sums of their weights and how often each was drawn; [distinct] each."""
        drawn, weights = (column.numpy() for column in draw_states(visits, num_rows, generator))
        if len(visits) <= num_rows:
            return drawn, weights, np.ones_like(drawn)
        nodes, counts = np.unique(drawn, return_counts=True)
        return nodes, counts * weights[0], counts


def draw_states(visits: Tensor, num_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """States of one level and their weights; the weights sum to the level's share of visits.

    All of them, weighted by their visits, when they fit into `num_rows`; otherwise a draw in proportion to visits.
    """
    if len(visits) <= num_rows:
        return torch.arange(len(visits)), visits
    total = visits.sum()
    nodes = torch.multinomial(visits.clamp_min(torch.finfo(visits.dtype).tiny), num_rows, True, generator=generator)
    return nodes, (total / num_rows).expand(num_rows)
