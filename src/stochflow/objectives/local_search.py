"""Trajectory balance with local search: the last letters of designs are cut off and written again by the policy.

Local search GFlowNets: Kim et al. 2023, arXiv:2310.02710.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from stochflow.models.base import Sampler
from stochflow.objectives.base import Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.trajectory_balance import TrajectoryBalance
from stochflow.sampling.policies import KeptLetters
from stochflow.sampling.trajectories import Trajectories


class LocalSearchBalance(TrajectoryBalance):
    """Trajectory balance on fresh designs and on rebuilds of them, which are accepted when they are no worse.

    A row of the batch is one design under search: drawn from the policy, rebuilt in the next `search.rounds` batches,
    and then drawn afresh; rows take turns, so that every batch has its share of fresh designs. A rebuild goes
    `search.cut`·L letters back, which is all that π_B can do on a tree, and forward again with π; it takes the place of
    its design when it scores no less. Everything is paid for, trained on and replayed.

    In a noisy world nobody can keep a prefix: it has to be written again. What scored is what came, so the letters that
    came are intended again, the world answers anew, and the policy goes on from its answer.

    Attributes:
        designs: under search, [num, L]; none before the first batch.
        scores: of these, float64, [num].
        num_batches: batches so far.
    """

    learner: SequenceLearner

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        self.designs = torch.empty(0, learner.network.length, dtype=torch.int64)
        self.scores = torch.empty(0, dtype=torch.float64)
        self.num_batches = 0

    def rebuilt(self, num: int) -> Tensor:
        """True in rows of the next batch that are rebuilt, [num]; the others are drawn from the policy."""
        rows = torch.arange(num)
        return (rows < len(self.designs)) & ((rows + self.num_batches) % (self.learner.config.search.rounds + 1) > 0)

    def sampler(self, batch_size: int) -> Sampler:
        sampler, rebuilt = super().sampler(batch_size), self.rebuilt(batch_size)
        if not bool(rebuilt.any()):
            return sampler
        network = self.learner.network
        num_kept = network.length - math.ceil(self.learner.config.search.cut * network.length)
        kept = rebuilt.unsqueeze(-1) & (torch.arange(network.length) < num_kept)
        # a last batch may be smaller than those before it
        designs = pad(self.designs, (0, 0, 0, batch_size - len(self.designs)))
        return KeptLetters(designs, kept, network.num_tokens, sampler)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        self._accept(fresh)
        yield from super().updates(fresh, step, progress)

    def _accept(self, batch: Trajectories) -> None:
        """Take what is fresh, and the better of every other design and its rebuild."""
        size = len(batch)
        before = pad(self.scores, (0, size - len(self.scores)), value=-math.inf)
        taken = ~self.rebuilt(size) | (batch.scores >= before)
        designs = pad(self.designs, (0, 0, 0, size - len(self.designs)))
        self.designs = torch.where(taken.unsqueeze(-1), batch.outcomes, designs)
        self.scores = torch.where(taken, batch.scores, before)
        self.num_batches += 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"designs": self.designs, "scores": self.scores, "num_batches": torch.tensor(self.num_batches)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.designs, self.scores, self.num_batches = state["designs"], state["scores"], int(state["num_batches"])
