"""Conditioning of features on a context by scale and shift (FiLM)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stochflow.models.initialisation import initialise_linears, set_to_zero


class Conditioner(nn.Module):
    """h ← h + W₂·gelu((W₁·h)⊙(1 + A·c) + B·c): the context scales and shifts what the features say.

    Without `scales` A is zero, which is a layer on features and context side by side. W₂ starts at zero, so a
    conditional network starts as the unconditional one.
    """

    def __init__(self, width: int, context_width: int, scales: bool = True) -> None:
        super().__init__()
        self.scales = scales
        self.read = nn.Linear(width, width)
        self.modulation = nn.Linear(context_width, 2 * width if scales else width)
        self.write = nn.Linear(width, width)

    def initialise(self, generator: torch.Generator) -> None:
        initialise_linears(self, generator)
        set_to_zero(self.write)

    def forward(self, features: Tensor, context: Tensor) -> Tensor:
        """Conditioned features, same shape.

        Args:
            features: [batch, width] or [batch, time, width].
            context: one vector per row, [batch, context_width], one for all, [context_width], or one per row and
                time, [batch, time, context_width].
        """
        modulation, read = per_row(self.modulation(context), features.ndim), self.read(features)
        if self.scales:
            scale, modulation = modulation.chunk(2, dim=-1)
            read = read * (1.0 + scale)
        return features + self.write(functional.gelu(read + modulation))


def per_row(values: Tensor, ndim: int) -> Tensor:
    """[batch, size] → [batch, 1, …, size] with `ndim` dimensions; what has so many, or is one for all, stays."""
    return values if values.ndim in (1, ndim) else values.reshape(len(values), *[1] * (ndim - 2), -1)
