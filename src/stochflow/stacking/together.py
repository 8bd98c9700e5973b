"""What several runs have, side by side: their batches, drawn by each for itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from stochflow.models.prefixes import Numbers
from stochflow.objectives.balance import Paths, observed_paths
from stochflow.objectives.base import Learner
from stochflow.objectives.written import Array
from stochflow.stacking.dynamics import StackedDynamics
from stochflow.stacking.network import StackedNetwork
from stochflow.trajectory import Trajectories

_COLUMNS = [field.name for field in fields(Trajectories) if field.name != "recorder"]
_DRAWN_AT_ONCE = 32  # updates whose remembered batches are drawn together


@dataclass(frozen=True)
class Together:
    """The parts of all runs that a stacked objective reads; the learners differ in weights, memory and replay."""

    learners: Sequence[Learner]
    network: StackedNetwork
    dynamics: StackedDynamics

    def replayed(self, fresh: Trajectories, step: int) -> Iterator[tuple[Paths, Numbers | None]]:
        """The fresh batches, then remembered ones, as in `Learner.replayed`; see `paths`.

        With the remembered ones the rows of their k-mers, see `StackedNetwork.rows`: they are found for many at once.
        """
        yield self.paths(fresh, step), None
        size, left = fresh.scores.shape[1], self.learners[0].config.optimiser.updates - 1
        while left:
            num = min(left, _DRAWN_AT_ONCE)
            left -= num
            # rows are drawn one after the other, so one draw of many batches is many draws of one
            drawn = [learner.replay.sample(num * size, learner.generators["replay"]) for learner in self.learners]
            paths = self.paths(side_by_side(drawn, num), step)
            rows = self.network.rows(paths.outcomes)
            for *columns, each in zip(*(column.unbind() for column in paths), rows, strict=True):
                yield Paths(*columns), each

    def paths(self, batch: Trajectories, step: int) -> Paths:
        """What the batches of all runs say by themselves, [..., runs, batch, ...]."""
        # rewards and masks are the same for all runs
        paths = observed_paths(self.learners[0], flattened(batch), step)
        return Paths(*(column.view(*batch.scores.shape, *column.shape[1:]) for column in paths))

    def all_real(self, paths: Paths) -> bool:
        """True where no step is but filled in; what was just seen has been added to the replay buffers."""
        return all(learner.replay.all_real for learner in self.learners) or bool(paths.valid.all())

    def flat_matrices(self, outcomes: Tensor) -> Array:
        """log P̂(b|s_t,a) of one run after the other; [runs, batch, t] → [runs·batch or runs, t, K, K]."""
        return self.dynamics.log_matrices(outcomes).flatten(0, 1).numpy()


def side_by_side(batches: Sequence[Trajectories], num: int) -> Trajectories:
    """The batches of runs, each cut into so many, with every field [num, runs, batch, ...]."""
    # in numpy, whose copies of a few numbers cost a fraction of torch's
    columns = {}
    for name in _COLUMNS:
        arrays = [getattr(batch, name).numpy() for batch in batches]
        columns[name] = np.stack([array.reshape(num, -1, *array.shape[1:]) for array in arrays], axis=1)
    return Trajectories(**{name: torch.from_numpy(column) for name, column in columns.items()}, recorder=None)


def flattened(batch: Trajectories) -> Trajectories:
    """The batches of all runs one after the other; [..., runs, batch, ...] → [...·runs·batch, ...]."""
    last = batch.scores.ndim - 1
    return Trajectories(**{name: getattr(batch, name).flatten(0, last) for name in _COLUMNS}, recorder=None)
