"""The dynamics models of several runs, fitted together where they are tables."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.descent import Record
from stochflow.dynamics_fitter import dynamics_learning_rate
from stochflow.models.dynamics import Codes, DynamicsModel, transition_counts
from stochflow.models.table_fit import TableDescent
from stochflow.trainer import Trainer
from stochflow.trajectory import Trajectories


class StackedDynamics:
    """P̂ of every run. Tables are fitted in one program; what sees the state is fitted run by run."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self._trainers = trainers
        self._singles = [tables for trainer in trainers if (tables := trainer.dynamics_fitter.tables) is not None]
        self._tables: TableDescent | None = None
        self._log_tables: Tensor | None = None  # where no state enters, the same until P̂ is fitted again
        if self._singles:
            models = [model for trainer in trainers if isinstance(model := trainer.learner.dynamics, DynamicsModel)]
            self._tables = TableDescent(models, trainers[0].learner.config.dynamics.clip)
            for run, single in enumerate(self._singles):
                self._tables.load_state_dict(single.state_dict(), run)

    def fit(self, fresh: Sequence[Trajectories], progress: float) -> list[Record]:
        """What `Trainer.fit_dynamics` does, for every run."""
        self._log_tables = None
        pairs = list(zip(self._trainers, fresh, strict=True))
        if self._tables is None:
            return [trainer.fit_dynamics(batch, progress) for trainer, batch in pairs]
        learning_rate = dynamics_learning_rate(self._trainers[0].learner.config.dynamics, progress)
        blocks = zip(*(trainer.dynamics_fitter.codes(batch) for trainer, batch in pairs), strict=True)
        losses = np.concatenate([self._tables.fit(self._counts(block), learning_rate) for block in blocks])
        return [{"forward_dynamics_loss": loss} for loss in losses.mean(axis=0).tolist()]

    def _counts(self, drawn: Sequence[tuple[Codes, npt.NDArray[np.bool_] | None]]) -> npt.NDArray[np.int64]:
        """`transition_counts` of what every run has drawn, [rounds, runs, L, K, K]."""
        codes, masks = zip(*drawn, strict=True)
        valid = None
        if any(mask is not None for mask in masks):
            valid = np.concatenate([np.ones(codes[0].shape, np.bool_) if mask is None else mask for mask in masks])
        counts = transition_counts(np.concatenate(codes), valid, self._trainers[0].learner.network.num_tokens)
        return counts.reshape(len(drawn), -1, *counts.shape[1:]).swapaxes(0, 1)

    def log_matrices(self, outcomes: Tensor) -> Tensor:
        """log P̂(b|s_t,a), without gradient; [runs, batch, time] → [runs, batch or 1, time, K, K]."""
        if self._log_tables is not None:
            return self._log_tables
        if self._tables is not None:
            found = torch.from_numpy(self._tables.log_probs()).unsqueeze(1)
            self._log_tables = found.expand(-1, -1, outcomes.shape[2], -1, -1)
            return self._log_tables
        learners = [trainer.learner for trainer in self._trainers]
        found = torch.stack([learner.log_dynamics(rows) for learner, rows in zip(learners, outcomes, strict=True)])
        if not learners[0].dynamics.sees_state:
            self._log_tables = found
        return found

    def settle(self) -> None:
        """Give every run its own moments."""
        if self._tables is not None:
            for run, single in enumerate(self._singles):
                single.load_state_dict(self._tables.state_dict(run))
