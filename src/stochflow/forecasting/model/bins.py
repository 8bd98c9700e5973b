"""Quantisation of residuals into bins whose width follows the data, with exponential tails at both ends."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stochflow.forecasting.data.series import Array

# outermost edge in units of the largest value seen
REACH = 1.25
# mean excess of a value beyond the outermost edge, in units of that edge
TAIL = 0.25


@dataclass(frozen=True)
class Bins:
    """B bins between `edges` [B − 1]; the first and the last are open, with an exponential tail of mean `tail`."""

    edges: Tensor
    tail: float

    @property
    def num_bins(self) -> int:
        return len(self.edges) + 1

    @property
    def centres(self) -> Tensor:
        """Value that represents each bin, [B]; of an open bin the mean of its tail."""
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        return torch.cat([self.edges[:1] - self.tail, middle, self.edges[-1:] + self.tail])

    def encode(self, values: Tensor) -> Tensor:
        """Index of each value's bin, same shape."""
        return torch.bucketize(values.contiguous(), self.edges)

    def sample(self, index: Tensor, uniform: Tensor) -> Tensor:
        """A value inside each bin at the quantile `uniform` in [0, 1): uniform inside, exponential in the tails."""
        low = self.edges[(index - 1).clamp(min=0)]
        high = self.edges[index.clamp(max=self.num_bins - 2)]
        excess = -self.tail * torch.log1p(-uniform)
        inside = low + uniform * (high - low)
        return torch.where(index == 0, low - excess, torch.where(index == self.num_bins - 1, high + excess, inside))


def place_bins(values: Array, num_bins: int) -> Bins:
    """Bins for scaled values [n]: edges evenly spaced in arcsinh(value / median |value|), beyond the largest |value|.

    The grid is linear where the values are dense and exponential in the tails, so that bins hold comparable mass.
    """
    size = np.abs(values[np.isfinite(values)])
    unit = max(float(np.median(size)), 1e-3) if len(size) else 1.0
    reach = max(REACH * float(size.max()) if len(size) else 0.0, 4 * unit)
    limit = np.arcsinh(reach / unit)
    edges = unit * np.sinh(np.linspace(-limit, limit, num_bins - 1))
    return Bins(torch.as_tensor(edges, dtype=torch.float64), tail=TAIL * reach)
