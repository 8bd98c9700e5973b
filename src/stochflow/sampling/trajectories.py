"""A batch of episodes as tensors."""

from dataclasses import dataclass

from torch import Tensor

from stochflow.models.engine.prefix_evaluation import Recorder


@dataclass(frozen=True)
class Trajectories:
    """What was meant, what came, and how it scored.

    Attributes:
        intentions: a_t, [batch, time].
        outcomes: the token that came instead, [batch, time]; the state at time t is outcomes[:, :t].
        valid: True where a decision was made; False in a random starting prefix and in padding, [batch, time].
        scores: score of the finished sequence, float64, [batch].
        log_behaviour: log-probability of each intention under the policy that drew it, [batch, time]; zero where
            the step is not valid, for remembered trajectories, and where the objective does not read it.
        recorder: what the network computed while it drew them, if it was kept; it holds until the next update.
    """

    intentions: Tensor
    outcomes: Tensor
    valid: Tensor
    scores: Tensor
    log_behaviour: Tensor
    recorder: Recorder | None = None

    def __len__(self) -> int:
        return self.outcomes.shape[0]  # `len` of a tensor takes ten times as long
