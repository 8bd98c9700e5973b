"""A proposal distribution over changes of one letter of a sequence."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot

from stochflow.core.logspace import masked_log_softmax
from stochflow.models.initialisation import initialise_linears, set_to_zero

_NUM_LAYERS = 2


class EditProposal(nn.Module):
    """A distribution over all changes of one letter; uniform before it has learned anything."""

    def __init__(self, num_tokens: int, length: int, width: int, uniform_share: float) -> None:
        super().__init__()
        self._num_tokens, self._uniform_share = num_tokens, uniform_share
        sizes = [length * num_tokens, *[width] * _NUM_LAYERS]
        self.layers = nn.ModuleList(nn.Linear(wide, high) for wide, high in pairwise(sizes))
        self.head = nn.Linear(width, length * num_tokens)

    def initialise(self, generator: torch.Generator) -> None:
        initialise_linears(self.layers, generator)
        set_to_zero(self.head)

    def forward(self, sequences: Tensor) -> Tensor:
        """log-probability of putting a letter at a position, one that is there already excluded.

        [batch, L] → [batch, L, K]; a share of the probability is uniform, so that every edit stays possible.
        """
        present = one_hot(sequences, self._num_tokens)  # [batch, L, K]
        hidden = present.flatten(1).to(self.head.weight.dtype)
        for layer in self.layers:
            hidden = gelu(layer(hidden))
        edits = ~present.bool().flatten(1)
        learned = masked_log_softmax(self.head(hidden), edits)
        uniform = masked_log_softmax(torch.zeros_like(learned), edits)
        share = self._uniform_share
        mixed = uniform if share == 1.0 else torch.logaddexp(learned + math.log1p(-share), uniform + math.log(share))
        return mixed.unflatten(1, (*sequences.shape[1:], self._num_tokens))
