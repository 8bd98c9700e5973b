"""Populations: designs bred from the best ones that were paid for, by crossover and mutation."""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.models.base import Sampler
from stochflow.objectives.base import ARITHMETIC, Objective, Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.policies import OpenLoopPolicy, OpenLoopSampler, Policy
from stochflow.sampling.trajectories import Trajectories

_TRIES = 16  # mutations of a parent until one is new; where all designs near it are known there is none


def crossed(first: Tensor, second: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Children that begin as the first parent and change to the other at every letter with that rate; [num, L] each.

    >>> generator = torch.Generator().manual_seed(0)
    >>> crossed(torch.zeros(1, 4), torch.ones(1, 4), 1.0, generator)
    tensor([[1., 0., 1., 0.]])
    """
    switches = torch.rand(first.shape, generator=generator) < rate
    return torch.where(switches.cumsum(dim=1) % 2 == 1, second, first)


def mutated(parents: Tensor, num_tokens: int, rate: float, generator: torch.Generator) -> Tensor:
    """Parents with every letter replaced by another one at that rate, [num, L]."""
    replaced = torch.rand(parents.shape, generator=generator) < rate
    shifts = torch.randint(1, num_tokens, parents.shape, generator=generator)
    return torch.where(replaced, (parents + shifts) % num_tokens, parents)


class Known:
    """A set of designs that need not be tried: those that were paid for, [num, L], and those that were added."""

    def __init__(self, paid: Tensor) -> None:
        self._rows = set(_names(paid))

    def added(self, designs: Tensor) -> Tensor:
        """Add designs, [num, L]; True in those that were new, [num]."""
        new = []
        for name in _names(designs):
            new.append(name not in self._rows)
            self._rows.add(name)
        return torch.tensor(new, dtype=torch.bool)


def _names(designs: Tensor) -> list[bytes]:
    return [row.tobytes() for row in designs.to(torch.uint8).numpy()]


class Population(Objective):
    """A search that breeds its next batch from the paid designs; nothing else is kept, and no gradient is taken.

    The world makes something of every child, and that is what is paid for, scored and bred from. A first batch is
    uniform.

    The policy that is evaluated is a list of designs to make: a paid design is taken in proportion to its reward and
    intended as it is. Without noise no policy over the paid designs has a larger J, which is then log Σ R.
    """

    learner: SequenceLearner
    reward_mean = ARITHMETIC  # of the score memory
    reads_dynamics = False
    reads_behaviour = False

    def sampler(self, batch_size: int) -> Sampler:
        """Children of the paid designs; anything before the first one."""
        network, generator = self.learner.network, self.learner.generators["policy"]
        if len(self.learner.memory):
            designs = self.propose(batch_size, generator)
        else:
            designs = torch.randint(network.num_tokens, (batch_size, network.length), generator=generator)
        return OpenLoopSampler(designs, network.num_tokens)

    @abstractmethod
    def propose(self, num: int, generator: torch.Generator) -> Tensor:
        """Designs to intend next, [num, L]."""

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        yield from ()

    def mutants(self, parents: Tensor, known: Known, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """One mutant of every parent, and True in those that are new; [num, L] → [num, L], [num].

        A mutant that is known is drawn again, sixteen times at most.
        """
        network = self.learner.network
        rate = min(1.0, self.learner.config.population.mutations / network.length)
        children, new = parents.clone(), torch.zeros(len(parents), dtype=torch.bool)
        for _ in range(_TRIES):
            missing = (~new).nonzero().squeeze(1)
            if not len(missing):
                break
            children[missing] = mutated(parents[missing], network.num_tokens, rate, generator)
            new[missing] = known.added(children[missing])
        return children, new

    def policy(self) -> Policy:
        """The best paid designs in proportion to their rewards, and uniform intentions before the first step."""
        if not len(self.learner.memory):
            return super().policy()
        designs, scores = self.best(self.learner.config.population.kept)
        weights = self.learner.reward.log_reward(scores).softmax(dim=0)
        return OpenLoopPolicy(designs, self.learner.network.num_tokens, weights)

    def log_z(self) -> float:
        """log Σ R over the paid designs, a lower bound."""
        if not len(self.learner.memory):
            return super().log_z()
        return float(self.learner.reward.log_reward(self.learner.memory.scores).logsumexp(dim=0))

    def best(self, num: int) -> tuple[Tensor, Tensor]:
        """At most so many paid designs, best first and of equal ones the latest, with their scores; [n, L], [n]."""
        scores = self.learner.memory.scores
        order = len(scores) - 1 - scores.flip(0).argsort(descending=True, stable=True)[:num]
        return self.learner.memory.sequences[order], scores[order]
