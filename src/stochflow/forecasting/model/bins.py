"""Values as tokens: bins whose width follows the data, with tails that go on for ever."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# outermost edge in units of the largest value seen
REACH = 1.25
# mean excess of a value beyond the outermost edge, in units of that edge
TAIL = 0.25


@dataclass(frozen=True)
class TokenBins:
    """B bins between `edges` [B − 1]; the first and the last are open and hold exponential tails."""

    edges: Tensor
    tail: float

    @property
    def num_bins(self) -> int:
        return len(self.edges) + 1

    @property
    def centres(self) -> Tensor:
        """Value that stands for each token, [B]; an open bin is as wide as its tail's mean excess times two."""
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        return torch.cat([self.edges[:1] - self.tail, middle, self.edges[-1:] + self.tail])

    def encode(self, values: Tensor) -> Tensor:
        """Token of each value, same shape."""
        return torch.bucketize(values.contiguous(), self.edges)

    def decode(self, tokens: Tensor) -> Tensor:
        """Centre of each token's bin, same shape; `encode` leads back to the token."""
        return self.centres[tokens]

    def spread(self, tokens: Tensor, uniform: Tensor) -> Tensor:
        """A value inside each token's bin, chosen by `uniform` in [0, 1): evenly, beyond the edges by the tail."""
        low = self.edges[(tokens - 1).clamp(min=0)]
        high = self.edges[tokens.clamp(max=self.num_bins - 2)]
        excess = -self.tail * torch.log1p(-uniform)
        inside = low + uniform * (high - low)
        return torch.where(tokens == 0, low - excess, torch.where(tokens == self.num_bins - 1, high + excess, inside))


def place_bins(values: NDArray[np.float64], num_bins: int) -> TokenBins:
    """Bins for scaled values [n]: as narrow at the centre as the values lie there, wider by sinh towards the tails.

    The unit of the sinh is the median |value| and the outermost edge lies beyond the largest, so that both ends of
    the quantile curve set the grid, and a token in the middle is worth about as much probability as one outside.
    """
    size = np.abs(values[np.isfinite(values)])
    unit = max(float(np.median(size)), 1e-3) if len(size) else 1.0
    reach = max(REACH * float(size.max()) if len(size) else 0.0, 4 * unit)
    limit = np.arcsinh(reach / unit)
    edges = unit * np.sinh(np.linspace(-limit, limit, num_bins - 1))
    return TokenBins(torch.as_tensor(edges, dtype=torch.float64), tail=TAIL * reach)
