"""A search that costs nothing: it climbs, recombines, keeps to what is allowed, and tells what it saw."""

import torch
from torch import Tensor

from stochflow.surrogates.genetic_search import SearchSize, genetic_search


def num_threes(designs: Tensor) -> Tensor:
    return (designs == 3).sum(dim=-1).double()


def test_values_belong_to_their_designs_and_no_design_is_told_twice(generator: torch.Generator) -> None:
    pool = torch.randint(4, (20, 10), generator=generator)
    found, values = genetic_search(pool, num_threes, 4, generator, SearchSize(100, 40, 5))
    assert torch.equal(values, num_threes(found))
    assert len(found.unique(dim=0)) == len(found)
    together = torch.cat([found, pool]).unique(dim=0)
    assert len(together) == len(found)


def test_halves_of_two_parents_are_joined(generator: torch.Generator) -> None:
    left = torch.cat([torch.full((1, 20), 3), torch.zeros(1, 20, dtype=torch.int64)], dim=1)
    pool = torch.cat([left, left.flip(1)])
    values = genetic_search(pool, num_threes, 4, generator, SearchSize(200, 100, 4))[1]
    assert float(values.max()) > 30.0


def test_what_is_not_allowed_is_never_told(generator: torch.Generator) -> None:
    def value(designs: Tensor) -> Tensor:
        return torch.where(designs[:, 0] == 0, num_threes(designs), -torch.inf)

    pool = torch.randint(4, (50, 8), generator=generator)
    found, values = genetic_search(pool, value, 4, generator)
    assert bool((found[:, 0] == 0).all())
    assert float(values.max()) == 7.0
    assert len(genetic_search(pool, lambda designs: torch.full((len(designs),), -torch.inf), 4, generator)[0]) == 0
