"""AdaLead (Sinai et al. 2020, arXiv:2010.02141): greedy rollouts on a surrogate from designs near the best one."""

import torch
from torch import Tensor

from stochflow.objectives.baselines.population import Known, Population, crossed
from stochflow.objectives.learners import SequenceLearner
from stochflow.surrogates.base import Surrogate
from stochflow.surrogates.letter_distances import letter_distance
from stochflow.surrogates.registry import make_surrogate

_AT_ONCE = 20  # rollouts side by side; few, so that they can be long


def paired(parents: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """The same number of recombinants: parents in random pairs exchange what follows a crossover; [num, L] → [num, L].

    Of an odd number one stays as it is.
    """
    shuffled = parents[torch.randperm(len(parents), generator=generator)]
    first, second, rest = shuffled.split([len(parents) // 2, len(parents) // 2, len(parents) % 2])
    child = crossed(first, second, rate, generator)
    # the other child has every letter that this one has not
    return torch.cat([child, first + second - child, rest])


class AdaLead(Population):
    """Batches of the best predicted mutants of the designs that score at least (1 − κ) of the best.

    In every round a surrogate, `population.surrogate`, is fitted to all paid designs. Those within κ of the best one
    (`population.threshold`), repeated to the size of a batch, are the parents. They recombine in pairs, and from a
    recombinant a rollout goes on from mutant to mutant, at a rate of `population.mutations`/L, as long as the surrogate
    expects no less of them than of the recombinant. Then another one begins, until `population.screened` designs are
    predicted for each of the batch. Of all new designs on the way those with the highest predictions are intended.

    The predictions are about what is made: noise between intention and outcome is not considered.
    """

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        self._surrogate()  # an unknown one is refused before anything is paid for

    def propose(self, num: int, generator: torch.Generator) -> Tensor:
        config, memory = self.learner.config.population, self.learner.memory
        surrogate = self._surrogate()
        surrogate.fit(memory.sequences, memory.scores)
        parents = self._parents(num, generator)
        known, left = Known(memory.sequences), config.screened * num
        nodes = found = parents[:0]
        least = predictions = torch.empty(0, dtype=torch.float64)  # what the roots of the nodes are expected to score
        while left > 0:
            # a rollout that has ended makes room for another root
            roots = paired(parents, config.crossover, generator)[: max(0, _AT_ONCE - len(nodes))]
            children, new = self.mutants(torch.cat([nodes, roots]), known, generator)
            nodes = children[new]
            of_roots, expected = surrogate.predict_mean(torch.cat([roots, nodes])).split([len(roots), len(nodes)])
            least = torch.cat([least, of_roots])[new]
            found, predictions = torch.cat([found, nodes]), torch.cat([predictions, expected])
            left -= len(roots) + len(nodes)
            nodes, least = nodes[expected >= least], least[expected >= least]
        best = predictions.argsort(descending=True, stable=True)[:num]
        chosen = found[best]
        # where nearly all designs are known there may be too few new ones
        return torch.cat([chosen, self.mutants(parents[: num - len(chosen)], known, generator)[0]])

    def _parents(self, num: int, generator: torch.Generator) -> Tensor:
        """Designs that score at least (1 − κ) of the best, in random order, again and again; [num, L]."""
        scores = self.learner.memory.scores
        near = (scores >= (1.0 - self.learner.config.population.threshold) * scores.max()).nonzero().squeeze(1)
        order = near[torch.randperm(len(near), generator=generator)]
        return self.learner.memory.sequences[order[torch.arange(num) % len(order)]]

    def _surrogate(self) -> Surrogate:
        network, task = self.learner.network, self.learner.environment.task
        name = self.learner.config.population.surrogate
        return make_surrogate(name, network.num_tokens, network.length, letter_distance(task))
