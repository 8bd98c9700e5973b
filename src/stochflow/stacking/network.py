"""The flow networks of several runs, evaluated together."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stochflow.logmath import masked_log_softmax
from stochflow.models.body import PrefixBody
from stochflow.models.flow_network import FlowNetwork
from stochflow.stacking.descent import RowGradient, StackedDescent, stacked_parameters
from stochflow.stacking.trunk import StackedTrunk

_Take = Callable[[list[Tensor], Tensor], None]
_HEADS, _KINDS = ("policy_head", "backward_head", "flow_head"), ("weight", "bias")


class StackedNetwork:
    """Networks of one shape: every weight has the runs in front, every layer is one batched product.

    Attributes:
        single: the first of the networks; what does not depend on weights is asked of it.
        weights: leaves [runs, ...] by name; the networks' own weights are views into them.
        table: the embeddings of all runs, without gradient, [runs·rows, width].
        trunk: scale and shift of the norm, W and b of every layer, without gradient, [runs, ...] each.
    """

    def __init__(self, networks: Sequence[FlowNetwork]) -> None:
        body = networks[0].body
        if not isinstance(body, PrefixBody):
            raise TypeError("only k-mer bodies can be stacked")
        self.single, self.body = networks[0], body
        self.num_runs = len(networks)
        weights = stacked_parameters(networks)
        self._embedding = weights.pop("body.embedding.weight")
        # the embedding comes first, because `descend` knows its rows
        self.weights = {"body.embedding.weight": self._embedding, **weights}
        self.table = self._embedding.detach().flatten(0, 1)  # a view
        self._num_rows = len(self.table) // self.num_runs
        self._gradient = torch.zeros_like(self.table)
        self._read: RowGradient | None = None
        self._firsts = torch.arange(0, len(self.table), self._num_rows).unsqueeze(-1)
        norm_and_layers = ["body.norm", *(f"body.layers.{layer}" for layer in range(len(body.layers)))]
        self._trunk = [self.weights[f"{name}.{kind}"] for name in norm_and_layers for kind in _KINDS]
        self._heads = [[self.weights[f"{name}.{kind}"] for name in _HEADS] for kind in _KINDS]
        self.trunk = [weight.detach() for weight in self._trunk]

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.weights.values():
            weight.grad = None
        if self._read is not None:  # the table is much larger than what a batch reads of it
            self._gradient.index_fill_(0, self._read.rows, 0.0)
        self._read = None

    def descend(self, descent: StackedDescent, learning_rate: float) -> None:
        """Move all weights against the gradients of one batch, and forget these."""
        descent.step(learning_rate, self._read)
        self.zero_grad()

    def rows(self, tokens: Tensor) -> Tensor:
        """Rows of all tables together for the k-mers that end at each position; [runs, batch, t] → [..., num_kmers]."""
        indices = self.body.kmer_indices(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])
        return indices + self._firsts[..., None, None]

    def shifted(self, columns: Sequence[Tensor]) -> list[Tensor]:
        """Rows of each run's own table → rows of all tables together; [runs, batch] each."""
        return [column + self._firsts for column in columns]

    def heads(self) -> tuple[Tensor, Tensor]:
        """W and b of the heads for π, π_B and log F side by side, without gradient; [runs, n, width], [runs, 1, n]."""
        weight, bias = (torch.cat([part.detach() for part in parts], dim=1) for parts in self._heads)
        return weight, bias.unsqueeze(1)

    def take(
        self,
        heads: tuple[Tensor, Tensor],
        trunk: Sequence[Tensor],
        start: Tensor,
        indices: Sequence[Tensor],
        terms: Tensor,
    ) -> None:
        """Give all weights their gradient.

        Args:
            heads: in W and b of all heads side by side, [runs, n, width] and [runs, n].
            trunk: in the weights of `trunk`.
            start: in the sum of the empty prefix, [runs, width].
            indices: per k, rows of the table.
            terms: in what these rows added, [most rows, width]; the last ones for a k with fewer.
        """
        for weights, joined in zip(self._heads, heads, strict=True):
            for weight, part in zip(weights, joined.split([each.shape[1] for each in weights], dim=1), strict=True):
                weight.grad = part.contiguous()
        for weight, part in zip(self._trunk, trunk, strict=True):
            weight.grad = part
        self.weights["body.start"].grad = start
        self._add_to_table(indices, terms)

    def _add_to_table(self, indices: Sequence[Tensor], terms: Tensor) -> None:
        """The gradient in the table, kept for the rows that a batch read alone; see `take`."""
        if self._read is not None:
            raise RuntimeError("descend before the next batch: the gradient of the embedding is that of one")
        rows = torch.cat(list(indices)) if indices else torch.empty(0, dtype=torch.int64)
        rows, places = rows.unique(return_inverse=True)
        owners, gradient = rows // self._num_rows, terms.new_zeros(len(rows), terms.shape[1])
        for part in places.split([len(each) for each in indices]):
            gradient.index_add_(0, part, terms[len(terms) - len(part) :])
        self._read = RowGradient(rows, gradient, owners)
        self._embedding.grad = self._gradient.view_as(self._embedding)

    def _add_padded(self, indices: Sequence[Tensor], terms: Tensor) -> None:
        """The same where k-mers that have not ended yet are the first row of a run's table, which stays zero."""
        self._add_to_table(indices, terms)
        if self._read is not None:
            self._read.values[self._read.rows % self._num_rows == 0] = 0.0

    def prefix_features(self, rows: Tensor) -> Tensor:
        """Features of all prefixes, the empty one first; `rows` of [runs, batch, t] → [runs, batch, t + 1, width].

        The gradient of the embedding is written, not returned: a dense one per update would cost more than the layers.
        """
        start = self.weights["body.start"]
        sums: Tensor = _PrefixSums.apply(start, self.table, self._add_padded, rows)  # type: ignore[no-untyped-call]  # torch
        features: Tensor = StackedTrunk.apply(sums.flatten(1, 2), *self._trunk)  # type: ignore[no-untyped-call]  # torch
        return features.unflatten(1, sums.shape[1:3])

    def log_policy(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """log π; [runs, rows, width] → [runs, rows, K]."""
        return masked_log_softmax(self._linear(features, "policy_head"), allowed)

    def log_backward(self, features: Tensor) -> Tensor:
        """log π_B; [runs, rows, width] → [runs, rows, K]."""
        return torch.log_softmax(self._linear(features, "backward_head"), dim=-1)

    def log_flow(self, features: Tensor, left: Tensor) -> Tensor:
        """log F of states with so many decisions to come; [runs, rows, width], broadcastable [rows] → [runs, rows]."""
        return self._linear(features, "flow_head").squeeze(-1) + left * math.log(self.single.num_tokens)

    def _linear(self, inputs: Tensor, name: str) -> Tensor:
        bias, weight = self.weights[f"{name}.bias"], self.weights[f"{name}.weight"]
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)


class _PrefixSums(torch.autograd.Function):
    """Summed embeddings of all prefixes; differentiable in `start`, while `take` is given the table's gradient."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, table: Tensor, take: _Take, rows: Tensor) -> Tensor:
        ctx.rows, ctx.take = rows, take
        terms = functional.embedding(rows, table).sum(dim=-2)
        starts = start[:, None, None].expand(-1, rows.shape[1], 1, -1)
        return torch.cat([starts, terms], dim=2).cumsum(dim=2)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (sums,) = outputs
        # a term counts in every sum after it
        later = sums.flip(2).cumsum(dim=2).flip(2)
        terms = later[:, :, 1:].flatten(0, 2)
        ctx.take([column.flatten() for column in ctx.rows.unbind(-1)], terms)
        return later[:, :, 0].sum(dim=1), None, None, None
