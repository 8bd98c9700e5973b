"""Designs among which a batch is chosen: all of a small space, otherwise what a search on the model finds."""

import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.core.codes import decode
from stochflow.surrogates.genetic_search import Value, genetic_search

_NUM_PARENTS = 100  # measured designs that the search begins with
_MAX_TRIES = 200
_MAX_PREDICTED = 2**18  # designs whose scores are all predicted at once


def enumerable(space: DesignSpace) -> bool:
    """True where the scores of all designs can be predicted at once."""
    return float(len(space.alphabet)) ** min(space.length, 64) <= _MAX_PREDICTED


def all_designs(space: DesignSpace) -> Tensor:
    """Every string of a small space in lexicographic order, [K^L, L]."""
    num_letters = len(space.alphabet)
    return decode(torch.arange(num_letters**space.length), num_letters, space.length)


def random_designs(space: DesignSpace, num: int, generator: torch.Generator) -> Tensor:
    """Distinct feasible designs at random; fewer than `num` where there are no more, or hardly any others come."""
    if enumerable(space):
        designs = all_designs(space)
        designs = designs[space.feasible(designs)]
        return designs[torch.randperm(len(designs), generator=generator)[:num]]
    found = torch.empty(0, space.length, dtype=torch.int64)
    for _ in range(_MAX_TRIES):
        found = torch.cat([found, space.draw(2 * num, generator)]).unique(dim=0)
        if len(found) >= num:
            break
    return found[torch.randperm(len(found), generator=generator)[:num]]


def searched_designs(space: DesignSpace, evidence: Evidence, value: Value, generator: torch.Generator) -> Tensor:
    """Distinct feasible designs of high value, by a genetic search from the best measured ones.

    Args:
        value: of designs, [num, L] → [num]; what is known of their scores and what is not.
    """
    best = evidence.scores.argsort(descending=True, stable=True)[:_NUM_PARENTS]
    pool = torch.cat([evidence.tokens[best], random_designs(space, _NUM_PARENTS, generator)])

    def feasible_value(designs: Tensor) -> Tensor:
        return torch.where(space.feasible(designs), value(designs).double(), -torch.inf)

    return genetic_search(pool, feasible_value, len(space.alphabet), generator)[0]
