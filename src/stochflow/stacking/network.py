"""The flow networks of several runs, evaluated together."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stochflow.kmers import kmer_buckets
from stochflow.logmath import masked_log_softmax
from stochflow.models.body import MAX_BUCKETS, PrefixBody
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.trunk import NORM_EPSILON
from stochflow.stacking.descent import StackedDescent, stacked_parameters
from stochflow.stacking.trunk import StackedTrunk, stacked_activations


class StackedNetwork:
    """Networks of one shape: every weight has the runs in front, every layer is one batched product.

    Attributes:
        single: the first of the networks; what does not depend on weights is asked of it.
        weights: leaves [runs, ...] by name; the networks' own weights are views into them.
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
        self._table = self._embedding.detach().flatten(0, 1)  # [runs·rows, width], a view
        self._num_rows = len(self._table) // self.num_runs
        self._gradient = torch.zeros_like(self._table)
        self._touched: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        return self._table.dtype

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.weights.values():
            weight.grad = None
        if self._touched is not None:  # the table is much larger than what a batch reads of it
            self._gradient[self._touched] = 0.0
        self._touched = None

    def descend(self, descent: StackedDescent, learning_rate: float) -> None:
        """Move all weights against the gradients of one batch, and forget these."""
        descent.step(learning_rate, self._touched)
        self.zero_grad()

    def rows(self, tokens: Tensor) -> Tensor:
        """Rows of all tables together for the k-mers that end at each position; [runs, batch, t] → [..., num_kmers]."""
        indices = self.body.kmer_indices(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])
        return self._shifted(indices)

    def _shifted(self, indices: Tensor) -> Tensor:
        """Rows of each run's own table → rows of all tables together; [runs, ...]."""
        first = torch.arange(0, len(self._table), self._num_rows, device=indices.device)
        return indices + first.view(-1, *[1] * (indices.ndim - 1))

    def embedded(self, indices: Tensor) -> Tensor:
        """Rows of each run's own table, without gradient; [runs, ...] → [runs, ..., width]."""
        return functional.embedding(self._shifted(indices), self._table)

    def prefix_features(self, rows: Tensor, known: list[Tensor] | None = None) -> Tensor:
        """Features of all prefixes, the empty one first; `rows` of [runs, batch, t] → [runs, batch, t + 1, width].

        `known` are the activations at these prefixes, if sampling made them with the same weights.

        The gradient of the embedding is written, not returned: a dense one per update would cost more than the layers.
        """
        start = self.weights["body.start"]
        sums: Tensor = _PrefixSums.apply(start, self._table, self._gradient, rows)  # type: ignore[no-untyped-call]  # torch
        if torch.is_grad_enabled():
            if self._touched is not None:
                raise RuntimeError("descend before the next batch: the gradient of the embedding is that of one")
            self._touched = rows.unique()
            self._embedding.grad = self._gradient.view_as(self._embedding)
        features: Tensor = StackedTrunk.apply(known, sums.flatten(1, 2), NORM_EPSILON, *self._trunk)  # type: ignore[no-untyped-call]  # torch
        return features.unflatten(1, sums.shape[1:3])

    def activations(self, sums: Tensor) -> list[Tensor]:
        """Everything the layers make, the features last, without gradient; [runs, rows, width] → the same for most."""
        return stacked_activations(sums, NORM_EPSILON, self._trunk)

    @property
    def _trunk(self) -> list[Tensor]:
        names = ["body.norm", *(f"body.layers.{layer}" for layer in range(len(self.body.layers)))]
        return [self.weights[f"{name}.{kind}"] for name in names for kind in ("weight", "bias")]

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


class StackedWalker:
    """Sums of prefixes that grow by one token at a time, [runs, batch, width]; no gradient."""

    def __init__(self, network: StackedNetwork, batch_size: int) -> None:
        self._network, body = network, network.body
        device = body.offsets.device
        self._sums = network.weights["body.start"].detach().unsqueeze(1).expand(-1, batch_size, -1)
        self._tokens = torch.empty(network.num_runs, batch_size, body.length, dtype=torch.int64, device=device)
        self._codes = torch.zeros(network.num_runs, batch_size, len(body.kmers), dtype=torch.int64, device=device)
        self._moduli = torch.tensor([body.num_tokens**k for k in body.kmers], device=device)
        self._depth = 0
        self._made: list[list[Tensor]] = []

    @property
    def allowed(self) -> Tensor | None:
        """What the mask says of the prefixes, [runs, batch, K]."""
        shape = self._tokens.shape[:2]
        allowed = self._network.single.allowed(self._tokens[..., : self._depth].flatten(0, 1))
        return None if allowed is None else allowed.unflatten(0, shape)

    def log_policy(self, allowed: Tensor | None) -> Tensor:
        """log π at the current prefixes, [runs, batch, K]."""
        self._made.append(self._network.activations(self._sums))
        return self._network.log_policy(self._made[-1][-1], allowed)

    def recorded(self) -> list[Tensor]:
        """The activations at all proper prefixes, [runs, batch·length, ...], once every token has been drawn."""
        return [torch.stack(levels, dim=2).flatten(1, 2) for levels in zip(*self._made, strict=True)]

    def advance(self, outcomes: Tensor) -> None:
        """Append one token per row, [runs, batch]."""
        body = self._network.body
        self._tokens[..., self._depth] = outcomes
        self._codes = (self._codes * body.num_tokens + outcomes.unsqueeze(-1)) % self._moduli
        columns = [
            kmer_buckets(self._codes[..., row], body.num_tokens**k, MAX_BUCKETS) + body.offsets[row, self._depth]
            for row, k in enumerate(body.kmers)
            if k <= self._depth + 1
        ]
        self._sums = self._sums + self._network.embedded(torch.stack(columns, dim=-1)).sum(dim=-2)
        self._depth += 1


class _PrefixSums(torch.autograd.Function):
    """Summed embeddings of all prefixes; differentiable in `start`, while the table's gradient goes into `gradient`."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, table: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
        ctx.rows, ctx.gradient = rows, gradient
        terms = functional.embedding(rows, table).sum(dim=-2)
        starts = start[:, None, None].expand(-1, rows.shape[1], 1, -1)
        return torch.cat([starts, terms], dim=2).cumsum(dim=2)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows, gradient = ctx.rows, ctx.gradient
        (sums,) = outputs
        # a term counts in every sum after it
        later = sums.flip(2).cumsum(dim=2).flip(2)
        terms = later[:, :, 1:].flatten(0, 2)
        for column in rows.unbind(-1):
            gradient.index_add_(0, column.flatten(), terms)
        padding = gradient.view(len(rows), -1, gradient.shape[-1])
        padding[:, 0] = 0.0
        return later[:, :, 0].sum(dim=1), None, None, None
