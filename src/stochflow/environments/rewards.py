"""From score to reward."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Reward:
    """Reward R(x) = max(score(x)^β(t), floor) with the schedule β(t) = 1 + (β − 1)·(1 − 1/(1 + t/ramp)).

    >>> reward = Reward(beta=3.0, floor=1e-6, ramp=0.0)
    >>> reward.log_reward(torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64))
    tensor([  0.0000,  -2.0794, -13.8155], dtype=torch.float64)

    Attributes:
        beta: β, the final exponent.
        floor: smallest reward, applied after the power.
        ramp: training steps after which half of the way from 1 to β is covered; 0 for a constant β.
    """

    beta: float
    floor: float
    ramp: float

    def exponent(self, step: int | None = None) -> float:
        """β(t) at a training step; the final β without one."""
        if step is None or self.ramp == 0:
            return self.beta
        return 1.0 + (self.beta - 1.0) * (1.0 - 1.0 / (1.0 + step / self.ramp))

    def log_reward(self, scores: Tensor, step: int | None = None) -> Tensor:
        """log R of scores of any shape, on the CPU; computed in log space, so that no power can overflow."""
        # numpy has a smaller overhead per operation than torch on few numbers
        with np.errstate(divide="ignore"):
            logarithms = np.log(np.maximum(scores.numpy(), 0.0))
        return torch.from_numpy(np.asarray(np.maximum(self.exponent(step) * logarithms, math.log(self.floor))))
