"""Soft values of all visited prefixes, from the leaves up."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.truth.state_optimum import blahut_arimoto

PLAN_TOLERANCE = 1e-4
PLAN_ITERATIONS = 64

FrontierValues = Callable[[Tensor], Tensor]
LevelDynamics = Callable[[Tensor, int], Tensor]
LevelAllowed = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True)
class Plan:
    """The attainable optimum on the trie, level by level for t = 0 … L − 1.

    Attributes:
        child_values: V of every child of a visited prefix, [num_nodes, K].
        values: V(s), [num_nodes].
        policies: π(a|s) that is best for these values, [num_nodes, K].
        visits: probability that this policy passes through the prefix, [num_nodes].
    """

    child_values: list[Tensor]
    values: list[Tensor]
    policies: list[Tensor]
    visits: list[Tensor]


def make_plan(
    trie: PrefixTrie,
    leaf_values: Tensor,
    frontier_values: FrontierValues,
    level_dynamics: LevelDynamics,
    level_allowed: LevelAllowed = lambda prefixes: None,
) -> Plan:
    """Run the backward recursion on visited prefixes only.

    Args:
        leaf_values: V of every stored sequence, [num_sequences].
        frontier_values: V of prefixes one token outside the trie, [rows, t] → [rows]; asked once per missing child.
        level_dynamics: P̂(b|s,a) for nodes of one level, from their example sequences and depth; [K, K] or
            [num_nodes, K, K].
        level_allowed: True for the intentions that there are at prefixes of one level, [num_nodes, t] →
            [num_nodes, K]; None for all.
    """
    if not len(trie):
        raise ValueError("nothing was visited yet; insert sequences into the trie before planning")
    child_values: list[Tensor] = []
    levels = []
    values = leaf_values
    for depth in reversed(range(trie.length)):
        children = trie.children[depth]
        level_values = values[children.clamp_min(0)]
        parents, tokens = (children < 0).nonzero(as_tuple=True)
        if len(parents):
            prefixes = trie.sequences[trie.examples[depth][parents], :depth]
            level_values[parents, tokens] = frontier_values(torch.cat([prefixes, tokens.unsqueeze(-1)], dim=1))
        examples = trie.sequences[trie.examples[depth]]
        allowed = level_allowed(examples[:, :depth])
        level = blahut_arimoto(level_values, level_dynamics(examples, depth), PLAN_TOLERANCE, PLAN_ITERATIONS, allowed)
        child_values.append(level_values)
        levels.append(level)
        values = level.values
    child_values.reverse()
    levels.reverse()
    visits = [torch.ones(1, dtype=leaf_values.dtype)]
    for depth in range(trie.length - 1):
        passing = visits[-1].unsqueeze(-1) * levels[depth].log_marginals.exp()
        children = trie.children[depth]
        reached = torch.zeros(len(trie.children[depth + 1]), dtype=leaf_values.dtype)
        reached[children[children >= 0]] = passing[children >= 0]
        visits.append(reached)
    return Plan(child_values, [level.values for level in levels], [level.policies for level in levels], visits)


def unplanned_nats(plan: Plan, num_tokens: int) -> float:
    """Expected log-number of completions that the plan knows nothing of: log K per letter after the trie is left.

    Zero where the policy of the plan ends in leaves of the trie, L·log K where nothing was visited. Values of prefixes
    outside the trie are the flow head's, so this is how much of the plan rests on it.
    """
    return math.log(num_tokens) * sum(1.0 - float(level.sum()) for level in plan.visits[1:])


def least_unplanned_nats(trie: PrefixTrie, level_dynamics: LevelDynamics) -> float:
    """The smallest `unplanned_nats` that any policy has on a trie, whatever its values: a bound of what a plan has.

    W(s) = max_a Σ_b P̂(b|s,a)·(1 + W(s_b)), over the children s_b in the trie, is the largest expected number of its
    prefixes after s. It costs one product per child that is there, and the network is not asked.

    Args:
        level_dynamics: as in `make_plan`.
    """
    following = torch.zeros(len(trie.children[-1]), dtype=torch.float64)  # W of one level
    for depth in reversed(range(trie.length - 1)):
        children = trie.children[depth]
        parents, tokens = (children >= 0).nonzero(as_tuple=True)
        dynamics = level_dynamics(trie.sequences[trie.examples[depth]], depth)
        arriving = dynamics.T[tokens] if dynamics.ndim == 2 else dynamics[parents, :, tokens]  # P̂(b|·), [children, K]
        weighed = (1.0 + following[children[parents, tokens].long()]).unsqueeze(-1) * arriving
        by_intention = torch.zeros(children.shape, dtype=torch.float64).index_add_(0, parents, weighed.double())
        following = by_intention.amax(dim=-1)
    return math.log(trie.num_tokens) * (trie.length - 1 - float(following[0]))
