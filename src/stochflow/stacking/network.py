"""The flow networks of several runs, evaluated together."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stochflow.logmath import masked_log_softmax
from stochflow.models.body import PrefixBody
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.prefixes import Numbers
from stochflow.stacking.descent import RowGradient, StackedWeights, joined
from stochflow.stacking.trunk import Both, StackedTrunk
from stochflow.stacking.waiting import WaitingTable

_Take = Callable[[Numbers, Numbers, Tensor], None]
_TABLE = "body.embedding.weight"
_OFTEN = 4  # updates within which a row is read that counts as common
_HEADS, _KINDS = ("policy_head", "backward_head", "flow_head"), ("weight", "bias")


class StackedNetwork:
    """Networks of one shape: every weight has the runs in front, every layer is one batched product.

    Attributes:
        single: the first of the networks; what does not depend on weights is asked of it.
        weights: those of all runs; the networks' own weights are views into them.
        width: numbers of a feature.
        firsts: the first row of each run in the table of all runs, [runs, 1].
        trunk: scale and shift of the norm, W and b of every layer, without gradient, [runs, n, width] each.
        heads: W and b of the heads for π, π_B and log F side by side, [runs, n, width] and [runs, 1, n].
        into_trunk: the gradients of `trunk`.
        into_heads: those of `heads`.
        into_start: that in the sum of the empty prefix, [runs, width].
    """

    def __init__(self, networks: Sequence[FlowNetwork], batch_size: int) -> None:
        """Networks that are mostly evaluated at batches of one size."""
        body = networks[0].body
        if not isinstance(body, PrefixBody):
            raise TypeError("only k-mer bodies can be stacked")
        self.single, self.body = networks[0], body
        self.num_runs = len(networks)
        layers = [f"body.layers.{layer}" for layer in range(len(body.layers))]
        names = [f"{part}.{kind}" for part in ("body.norm", *layers) for kind in _KINDS]
        heads = [[f"{part}.{kind}" for part in _HEADS] for kind in _KINDS]
        common = body.common_rows(_OFTEN * batch_size)
        self.weights = StackedWeights(networks, _TABLE, names[2::2], [*heads[0], *heads[1]], common)
        self.parameters = self.weights.parameters
        num, self._num_rows, self.width = len(self.weights.table), *self.parameters[_TABLE].shape[1:]
        self._read: RowGradient | None = None
        self.firsts = np.arange(0, num, self._num_rows)[:, None]
        values, gradients = self.weights.views(self.weights.values), self.weights.gradients
        self.trunk = [Both.of(_matrix(values[name])) for name in names]
        self.into_trunk = [Both.of(_matrix(gradients[name])) for name in names]
        self.heads, self.into_heads = (
            [Both.of(_matrix(joined(views, kind))) for kind in heads] for views in (values, gradients)
        )
        self.into_start = gradients["body.start"]
        self._trunk = [self.parameters[name] for name in names]

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.values.dtype

    @property
    def read(self) -> RowGradient | None:
        """The gradient of the table."""
        return self._read

    def forget(self) -> None:
        """Forget the gradient of the table: the weights have moved."""
        self._read = None

    def sums(self) -> Numbers:
        """Sums of all weights, [runs]: finite where all of them are; rows in use count beside what they were before."""
        table = self.weights.table
        others = [weight.detach().flatten(1).sum(dim=1) for weight in self.parameters.values()]
        in_use = table.rows_in_use
        rows = table.parts[0][: len(in_use)].sum(dim=1).numpy()
        in_use = np.bincount(in_use // self._num_rows, rows, self.num_runs)
        found: Numbers = torch.stack(others).sum(dim=0).numpy() + in_use
        return found

    def rows(self, tokens: Tensor) -> Numbers:
        """Rows of all tables together for the k-mers that end at each position, [..., runs, batch, t] → that by k."""
        indices = self.body.kmer_indices(tokens.flatten(0, -2)).unflatten(0, tokens.shape[:-1]).numpy()
        found: Numbers = indices + self.firsts[..., None, None]
        return found

    def take(self, rows: Numbers, nodes: Numbers, terms: Tensor) -> None:
        """Give the table its gradient.

        Args:
            rows: of the table, all of them in use, [num].
            nodes: to whose sum each row was added, [num].
            terms: the gradient in what was added to each node, [num_nodes, width].
        """
        if self._read is not None:
            raise RuntimeError("descend before the next batch: the gradient of the embedding is that of one")
        # in the order of their places, so that the terms of one are a bag and what follows is near; a few bits are
        # sorted in a fraction of the time
        table = self.weights.table
        places = table.use(rows)
        order = places.astype(np.uint16 if len(table) <= 2**16 else np.int64).argsort(kind="stable")
        ordered = places.take(order)
        new = np.ones(len(ordered), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
        firsts = new.nonzero()[0]
        bags = torch.from_numpy(nodes.take(order)), terms, torch.from_numpy(firsts)
        self._read = RowGradient(ordered.take(firsts), functional.embedding_bag(*bags, mode="sum"))

    def prefix_features(self, rows: Numbers) -> Tensor:
        """Features of all prefixes, the empty one first; [runs, batch, t, num_kmers] → [runs, batch, t + 1, width].

        The gradient of the embedding is written, not returned: a dense one per update would cost more than the layers.
        """
        start = self.parameters["body.start"]
        sums: Tensor = _PrefixSums.apply(start, self.weights.table, self.take, rows)  # type: ignore[no-untyped-call]  # torch
        features: Tensor = StackedTrunk.apply(sums.flatten(1, 2), *map(_matrix, self._trunk))  # type: ignore[no-untyped-call]  # torch
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
        bias, weight = self.parameters[f"{name}.bias"], self.parameters[f"{name}.weight"]
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)


def _matrix(weight: Tensor) -> Tensor:
    """Weights of runs as matrices: [runs, n] → [runs, 1, n], [runs, n, m] as it is."""
    return weight.unsqueeze(1) if weight.ndim == 2 else weight


class _PrefixSums(torch.autograd.Function):
    """Summed embeddings of all prefixes; differentiable in `start`, while `take` is given the table's gradient.

    Rows are [runs, batch, t, num_kmers]; where no k-mer ends the first of a run, which is zero and stays so.
    """

    @staticmethod
    def forward(ctx: Any, start: Tensor, table: WaitingTable, take: _Take, rows: Numbers) -> Tensor:
        ctx.rows, ctx.take, ctx.num_in_table = rows, take, len(table) // len(start)
        firsts = torch.arange(0, rows.size, rows.shape[-1])
        terms = table.sums(rows.reshape(-1), firsts).view(*rows.shape[:-1], -1)
        starts = start[:, None, None].expand(-1, rows.shape[1], 1, -1)
        return torch.cat([starts, terms], dim=2).cumsum(dim=2)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (sums,) = outputs
        # a term counts in every sum after it
        later = sums.flip(2).cumsum(dim=2).flip(2)
        terms = later[:, :, 1:].flatten(0, 2)
        rows = ctx.rows.reshape(-1)
        (there,) = (rows % ctx.num_in_table).nonzero()
        ctx.take(rows[there], there // ctx.rows.shape[-1], terms)
        return later[:, :, 0].sum(dim=1), None, None, None
