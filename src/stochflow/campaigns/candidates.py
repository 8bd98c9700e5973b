"""Designs among which a batch is chosen: all of a small space, otherwise what a search on the model finds."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.core.codes import decode

Value = Callable[[Tensor], Tensor]
_NUM_PARENTS = 100  # measured designs that the search begins with
_NUM_CHILDREN, _NUM_SURVIVORS, _NUM_GENERATIONS = 1500, 600, 20
_CHANGES = (1.0, 2.0, 4.0)  # letters of a child that are drawn anew, on average
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
    """Distinct feasible designs of high value, from the best measured ones by crossover and mutation.

    A genetic search on the model, which costs no measurement. In each of twenty generations 1,500 children of two
    parents exchange a stretch, a few of their letters are drawn anew, and of parents and children the 600 of highest
    value go on. All that have ever gone on are candidates.

    Args:
        value: of designs, [num, L] → [num]; what is known of their scores and what is not.
    """
    best = evidence.scores.argsort(descending=True, stable=True)[:_NUM_PARENTS]
    pool = evidence.tokens[best][space.feasible(evidence.tokens[best])]
    pool = torch.cat([pool, random_designs(space, _NUM_PARENTS, generator)]).unique(dim=0)
    values, seen = value(pool), [pool]
    for _ in range(_NUM_GENERATIONS):
        children = _children(pool, values, len(space.alphabet), generator)
        pool = torch.cat([pool, children[space.feasible(children)]]).unique(dim=0)
        values = value(pool)
        values, kept = values.topk(min(_NUM_SURVIVORS, len(pool)))
        pool = pool[kept]
        seen.append(pool)
    return torch.cat(seen).unique(dim=0)


def _children(pool: Tensor, values: Tensor, num_letters: int, generator: torch.Generator) -> Tensor:
    """Children of parents that are drawn by value; [num, L] → [num_children, L]."""
    num, length = _NUM_CHILDREN, pool.shape[1]
    weights = torch.softmax(values / values.std(correction=0).clamp(min=1e-12), dim=0)
    first, second = pool[torch.multinomial(weights, 2 * num, replacement=True, generator=generator)].split(num)
    ends = torch.randint(length + 1, (num, 2), generator=generator).sort(dim=1).values
    places = torch.arange(length)
    exchanged = (places >= ends[:, :1]) & (places < ends[:, 1:]) & (torch.rand(num, 1, generator=generator) < 0.5)
    rates = torch.tensor(_CHANGES)[torch.randint(len(_CHANGES), (num, 1), generator=generator)] / length
    anew = torch.rand(num, length, generator=generator) < rates
    letters = torch.randint(num_letters, (num, length), generator=generator)
    return torch.where(anew, letters, torch.where(exchanged, second, first))
