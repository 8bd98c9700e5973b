"""The training loop of several runs that differ in their seed alone: one step of all of them is one program."""

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stochflow.descent import FAR, LARGE, Record, finite_numbers, learning_rate_factor
from stochflow.errors import NumericsError
from stochflow.objectives.balance import PathBalance
from stochflow.objectives.divergence import TrajectoryKL
from stochflow.planning.memory import SharedTable
from stochflow.rollout import Walk
from stochflow.stacking.descent import Array, StackedDescent
from stochflow.stacking.dynamics import StackedDynamics
from stochflow.stacking.network import StackedNetwork
from stochflow.stacking.objectives import StackedBalance, StackedObjective, StackedTerms, StackedTrajectoryKL
from stochflow.stacking.rollout import draw_all, stacked_rollout
from stochflow.stacking.together import Together
from stochflow.trainer import Trainer
from stochflow.trajectory import Trajectories


class StackedTrainer:
    """Takes all runs forward step by step.

    Every run keeps its own generators, memory, replay and counters, and draws from them what it would draw alone. Its
    network's weights are views into stacks [runs, ...], of which some wait for their moves: call `settle` before a run
    is judged, sampled from or kept. A run that was part of a stack goes on alone only after it was restored from a
    checkpoint.

    Args:
        trainers: runs of one config but for the seed, after the same number of steps.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = list(trainers)
        learners = [trainer.learner for trainer in self.trainers]
        batch_size = learners[0].config.optimiser.batch_size
        self._network = StackedNetwork([learner.network for learner in learners], batch_size)
        self._dynamics = StackedDynamics(self.trainers)
        self._descent = StackedDescent(
            self._network.weights, learners[0].network, [trainer.descent for trainer in trainers]
        )
        self._table: SharedTable | None = None
        if all(trainer.pays_for_all for trainer in self.trainers):
            self._table = SharedTable.of([learner.memory for learner in learners])
        self._moved = math.inf
        self._objective = make_stacked_objective(
            Together(learners, self._network, self._dynamics), [trainer.objective for trainer in self.trainers]
        )

    @property
    def progress(self) -> float:
        """Share of the budget that is spent, the same for every run."""
        return self.trainers[0].progress

    @property
    def finished(self) -> bool:
        return self.trainers[0].finished

    @property
    def settled(self) -> bool:
        """True where nothing waits, so that a run that ends here and goes on later is the same as one that goes on."""
        return self._network.weights.table.settled

    def train_step(self) -> list[Record]:
        """Sample a batch of every run, learn from it, and say what happened; one record per run."""
        started = time.perf_counter()
        first = self.trainers[0]
        config = first.learner.config.optimiser
        before = first.progress
        fresh, together = self._collect()
        progress = first.progress_within(before, len(fresh[0]))
        records = self._dynamics.fit(fresh, progress)
        learning_rate = config.learning_rate * learning_rate_factor(progress, config.warmup)
        names: list[str] = []
        updates: list[Array] = []
        for terms in self._objective.updates(together, first.step, progress):
            names = list(terms)
            updates.append(self._checked(terms))
            loss = terms["loss"]
            if isinstance(loss, Tensor) and loss.requires_grad:
                loss.sum().backward()
                self._network.weights.take_gradients()
            self._descend(learning_rate)
        self._require_finite_weights()
        if self._network.weights.table.due:
            self._network.weights.table.rest()
        means = np.add.reduce(updates) / len(updates)  # [terms, runs]
        # what a step took is shared out: all runs together take as long as their records say
        seconds = (time.perf_counter() - started) / len(self.trainers)
        return [
            trainer.advance(batch, learning_rate, seconds, record | dict(zip(names, column.tolist(), strict=True)))
            for trainer, batch, record, column in zip(self.trainers, fresh, records, means.T, strict=True)
        ]

    def settle(self) -> None:
        """Make every run's own state whole, as a checkpoint or a judgement needs it."""
        self._descent.settle()
        self._dynamics.settle()

    def _collect(self) -> tuple[list[Trajectories], Trajectories]:
        """The fresh batch of every run, and all of them with the runs in front of every field."""
        first = self.trainers[0]
        size, learner = first.batch_size, first.learner
        sampler, dtype = self._objective.sampler(size)
        shape = (size, learner.network.length)
        runs = [trainer.learner.generators for trainer in self.trainers]
        draws = draw_all(runs, first.channel, shape, first.exploration.restarts, dtype)
        judge = first.objective.reads_behaviour
        walks = stacked_rollout(sampler, first.channel, draws, first.exploration, judge)
        each = [Walk(*columns) for columns in zip(*(column.unbind() for column in vars(walks).values()), strict=True)]
        if self._table is None:
            kept = [trainer.keep(walk) for trainer, walk in zip(self.trainers, each, strict=True)]
            scores = torch.stack([batch.scores for batch in kept])
        else:
            before = [trainer.calls for trainer in self.trainers]
            scores = self._table.pay(walks.outcomes, first.oracle)
            paid = zip(self.trainers, each, scores, before, strict=True)
            kept = [trainer.remember(walk, row, calls) for trainer, walk, row, calls in paid]
        return kept, Trajectories(**vars(walks), scores=scores)

    def _descend(self, learning_rate: float) -> None:
        """Move all weights against the gradients of one batch."""
        norms = self._descent.clip(self._network.read)
        self._checked({"norm of the gradient": norms})
        self._moved += learning_rate if norms.max() < LARGE else math.inf
        self._descent.step(learning_rate, self._network.read)
        self._network.forget()

    def _checked(self, terms: StackedTerms) -> Array:
        """The terms as one array, [terms, runs], once all of them are known to be finite."""
        values = np.array([term.detach().numpy() if isinstance(term, Tensor) else term for term in terms.values()])
        if not np.isfinite(values).all():
            for trainer, column in zip(self.trainers, values.T, strict=True):
                self._blame(trainer, dict(zip(terms, column.tolist(), strict=True)))
        return values

    def _require_finite_weights(self) -> None:
        """See `Descent.require_finite`."""
        if self._moved >= FAR:
            self._checked({"sum of all weights": self._network.sums()})
            self._moved = 0.0

    def _blame(self, trainer: Trainer, terms: Record) -> None:
        try:
            finite_numbers(terms)
        except NumericsError as error:
            raise NumericsError(f"seed {trainer.learner.config.seed}: {error}") from None


def make_stacked_objective(together: Together, objectives: Sequence[object]) -> StackedObjective:
    """The stacked form of the objectives of all runs."""
    balances = [objective for objective in objectives if isinstance(objective, PathBalance)]
    if len(balances) == len(objectives):
        return StackedBalance(together, balances)
    divergences = [objective for objective in objectives if isinstance(objective, TrajectoryKL)]
    if len(divergences) == len(objectives):
        return StackedTrajectoryKL(together, divergences)
    raise TypeError(f"{type(objectives[0]).__name__} cannot be stacked")
