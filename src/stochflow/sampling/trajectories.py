"""A batch of episodes as tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Trajectories:
    """What was intended, what came, and how it scored.

    Attributes:
        intentions: a_t, [batch, time].
        outcomes: what came instead, [batch, time]; the state at time t is a function of outcomes[:, :t].
        valid: True where a decision was made; False in a random starting prefix and after the end, [batch, time].
        scores: score of the finished object, float64, [batch].
        log_behaviour: log-probability of each intention under the policy that drew it, [batch, time]; zero where
            the step is not valid, for remembered trajectories, and where the objective does not read it.
    """

    intentions: Tensor
    outcomes: Tensor
    valid: Tensor
    scores: Tensor
    log_behaviour: Tensor

    def trimmed(self) -> "Trajectories":
        """The same without the last steps that no episode has taken; at least one step stays."""
        time = max(int(self.valid.sum(dim=1).amax()), 1) if self.valid.numel() else self.valid.shape[1]
        columns = (self.intentions, self.outcomes, self.valid)
        intentions, outcomes, valid = (column[:, :time] for column in columns)
        return Trajectories(intentions, outcomes, valid, self.scores, self.log_behaviour[:, :time])

    def __len__(self) -> int:
        return self.outcomes.shape[0]  # `len` of a tensor takes ten times as long


def no_trajectories(length: int) -> Trajectories:
    """A batch without episodes."""
    tokens = torch.empty(0, length, dtype=torch.int64)
    return Trajectories(tokens, tokens, tokens.bool(), torch.empty(0, dtype=torch.float64), tokens.float())
