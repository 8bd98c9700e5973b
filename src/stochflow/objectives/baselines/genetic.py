"""A genetic algorithm on the oracle itself: truncation selection, crossover and mutation."""

import torch
from torch import Tensor

from stochflow.objectives.baselines.population import Known, Population, crossed


class Genetic(Population):
    """Children of the `population.survivors` best paid designs.

    Two survivors are drawn uniformly for every child. It begins as the first, changes to the other at every letter with
    probability `population.crossover`, and has every letter replaced with probability `population.mutations`/L. A child
    that was paid for already is drawn again. Survivors are chosen among all paid designs, so the best is never lost.

    Holland 1975; truncation selection as in Mühlenbein and Schlierkamp-Voosen 1993, the breeder genetic algorithm.
    """

    def propose(self, num: int, generator: torch.Generator) -> Tensor:
        config = self.learner.config.population
        survivors, _ = self.best(config.survivors)
        first, second = survivors[torch.randint(len(survivors), (2, num), generator=generator)]
        children = crossed(first, second, config.crossover, generator)
        return self.mutants(children, Known(self.learner.memory.sequences), generator)[0]
