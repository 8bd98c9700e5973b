"""A genetic search on a model of the score, which costs no measurement."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Value = Callable[[Tensor], Tensor]
_CHANGES = (1.0, 2.0, 4.0)  # letters of a child that are drawn anew, on average


class SearchSize(NamedTuple):
    """How long a search takes."""

    num_children: int = 1500
    num_survivors: int = 600
    num_generations: int = 20


def genetic_search(
    pool: Tensor, value: Value, num_tokens: int, generator: torch.Generator, size: SearchSize | None = None
) -> tuple[Tensor, Tensor]:
    """Distinct designs of high value, by crossover and mutation, and their values.

    In every generation two parents that are drawn by value exchange a stretch, a few letters of the child are drawn
    anew, and of parents and children those of the highest value go on. All that have ever gone on are returned.

    >>> generator = torch.Generator().manual_seed(0)
    >>> pool = torch.randint(4, (10, 12), generator=generator)
    >>> found, values = genetic_search(pool, lambda designs: (designs == 3).sum(dim=1).double(), 4, generator)
    >>> values.max()
    tensor(12., dtype=torch.float64)

    Args:
        pool: that it begins with, [num, L].
        value: of designs, −∞ for those that are not allowed; [num, L] → float64, [num].
        num_tokens: K.
    """
    size = size or SearchSize()
    values = value(pool)
    pool, values = _distinct(pool, values)
    seen = [(pool, values)]
    for _ in range(size.num_generations):
        children = _children(pool, values, num_tokens, size.num_children, generator)
        pool, values = _distinct(torch.cat([pool, children]), torch.cat([values, value(children)]))
        values, kept = values.topk(min(size.num_survivors, len(pool)))
        pool = pool[kept]
        seen.append((pool, values))
    found, values = _distinct(torch.cat([rows for rows, _ in seen]), torch.cat([values for _, values in seen]))
    return found[values.isfinite()], values[values.isfinite()]


def _distinct(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Different rows in lexicographic order, with their values; equal rows have equal values."""
    found, labels = rows.unique(dim=0, return_inverse=True)
    return found, values.new_empty(len(found)).scatter_(0, labels, values)


def _children(pool: Tensor, values: Tensor, num_tokens: int, num: int, generator: torch.Generator) -> Tensor:
    """Children of parents that are drawn by value; [num_pool, L] → [num, L]."""
    length = pool.shape[1]
    finite = values[values.isfinite()]
    unit = finite.std(correction=0).clamp(min=1e-12) if len(finite) else 1.0
    weights = torch.softmax(values.clamp(min=torch.finfo(values.dtype).min) / unit, dim=0)
    first, second = pool[torch.multinomial(weights, 2 * num, replacement=True, generator=generator)].split(num)
    ends = torch.randint(length + 1, (num, 2), generator=generator).sort(dim=1).values
    places = torch.arange(length)
    exchanged = (places >= ends[:, :1]) & (places < ends[:, 1:]) & (torch.rand(num, 1, generator=generator) < 0.5)
    rates = torch.tensor(_CHANGES)[torch.randint(len(_CHANGES), (num, 1), generator=generator)] / length
    anew = torch.rand(num, length, generator=generator) < rates
    letters = torch.randint(num_tokens, (num, length), generator=generator)
    return torch.where(anew, letters, torch.where(exchanged, second, first))
