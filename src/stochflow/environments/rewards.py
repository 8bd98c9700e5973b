"""From score to reward."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Reward:
    """R(x) = max(score(x)^β(t), floor) with β(t) = 1 + (β − 1)·(1 − 1/(1 + t/ramp)); ramp 0 means β at once.

    >>> reward = Reward(beta=3.0, floor=1e-6, ramp=0.0)
    >>> reward.log_reward(torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)).exp().tolist()
    [1.0, 0.125, 1e-06]
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
        """log R for scores of any shape, on the CPU; the power is never formed, so that it cannot overflow."""
        # in numpy, whose operations on a handful of numbers cost a fraction of torch's
        with np.errstate(divide="ignore"):
            logarithms = np.log(np.maximum(scores.numpy(), 0.0))
        return torch.from_numpy(np.asarray(np.maximum(self.exponent(step) * logarithms, math.log(self.floor))))
