"""The dynamics models of several runs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from stochflow.trainer import Record, Trainer
from stochflow.trajectory import Trajectories


class StackedDynamics:
    """P̂ of every run; each is fitted by itself, which costs little where it is a table."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self._trainers = trainers

    def fit(self, fresh: Sequence[Trajectories], progress: float) -> list[Record]:
        """What `Trainer.fit_dynamics` does, for every run."""
        return [trainer.fit_dynamics(batch, progress) for trainer, batch in zip(self._trainers, fresh, strict=True)]

    def log_matrices(self, outcomes: Tensor) -> Tensor:
        """log P̂(b|s_t,a), without gradient; [runs, batch, time] → [runs, batch or 1, time, K, K]."""
        learners = [trainer.learner for trainer in self._trainers]
        return torch.stack([learner.log_dynamics(rows) for learner, rows in zip(learners, outcomes, strict=True)])
