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

    One batch in every `search.rounds` + 1 is drawn from the policy. Each of the others goes `search.cut`·L letters back
    from the designs of the batch, which is all that π_B can do on a tree, and forward again with π; a rebuild takes the
    place of its design when it scores no less. Every batch is paid for, and all of them are trained on and replayed.

    In a noisy world nobody can keep a prefix: it has to be written again. What scored is what came, so the letters that
    came are intended again, the world answers anew, and the policy goes on from its answer.

    Attributes:
        designs: what is rebuilt next, [num, L]; empty before a fresh batch.
        scores: of these, float64, [num].
        num_left: rebuilds before the next fresh batch.
    """

    learner: SequenceLearner

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        self.designs = torch.empty(0, learner.network.length, dtype=torch.int64)
        self.scores = torch.empty(0, dtype=torch.float64)
        self.num_left = 0

    def sampler(self, batch_size: int) -> Sampler:
        sampler = super().sampler(batch_size)
        if not self.num_left:
            return sampler
        network = self.learner.network
        num_kept = network.length - math.ceil(self.learner.config.search.cut * network.length)
        missing = batch_size - len(self.designs)  # negative in a last batch that is smaller
        kept = torch.zeros(batch_size, network.length, dtype=torch.bool)
        kept[: len(self.designs), :num_kept] = True
        return KeptLetters(pad(self.designs, (0, 0, 0, missing)), kept, network.num_tokens, sampler)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        if self.num_left:
            self._accept(fresh)
        else:
            self.designs, self.scores = fresh.outcomes, fresh.scores
            self.num_left = self.learner.config.search.rounds
        yield from super().updates(fresh, step, progress)

    def _accept(self, rebuilt: Trajectories) -> None:
        """Keep the better of every design and its rebuild."""
        num = min(len(rebuilt), len(self.designs))
        better = rebuilt.scores[:num] >= self.scores[:num]
        self.designs = torch.where(better.unsqueeze(-1), rebuilt.outcomes[:num], self.designs[:num])
        self.scores = torch.where(better, rebuilt.scores[:num], self.scores[:num])
        self.num_left -= 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"designs": self.designs, "scores": self.scores, "num_left": torch.tensor(self.num_left)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.designs, self.scores, self.num_left = state["designs"], state["scores"], int(state["num_left"])
