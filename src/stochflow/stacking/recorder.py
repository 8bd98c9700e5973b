"""The networks of several runs at the prefixes of their batches with the gradient written out, and their sampling."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.logmath import masked_log_softmax
from stochflow.stacking.network import StackedNetwork
from stochflow.stacking.trunk import stacked_activations, stacked_gradients


class StackedRecorder:
    """What `Recorder` does for one run, for all of them: evaluates prefixes, and keeps what their gradient needs.

    A run has one node for the empty prefix and then, level by level, one for every row: [runs, 1 + levels·batch]. It
    holds for the weights as they are.
    """

    def __init__(self, network: StackedNetwork, batch_size: int) -> None:
        self._network, self._batch_size = network, batch_size
        self._head_weight, self._head_bias = network.heads()
        self._sums = [network.weights["body.start"].detach().unsqueeze(1)]  # of one or more levels each
        self._indices: list[list[Tensor]] = [[] for _ in network.body.kmers]  # per k, the rows that each level added
        self._made: list[list[Tensor]] = []  # per element of `sums`, the activations
        self._outputs: list[Tensor] = []  # the same for the heads, [runs, nodes, n]

    def grow(self, indices: Sequence[Tensor]) -> None:
        """The first layer of the next level; the rows of the table that it adds, [runs, batch] per k there is."""
        before, table = self._sums[-1][:, -self._batch_size :], self._network.table
        for row, column in enumerate(indices):
            before = before + table.index_select(0, column.flatten()).view(*column.shape, -1)
            self._indices[row].append(column.flatten())
        self._sums.append(before)

    def grow_all(self, rows: Tensor) -> None:
        """The first layer of all levels after the empty prefix; rows of the table, [kmers, levels, runs, batch]."""
        _, num_levels, num_runs, size = rows.shape
        start, table = self._sums[0], self._network.table
        levels = table.new_zeros(num_levels, num_runs, size, table.shape[-1])
        for row, k in enumerate(self._network.body.kmers):
            if k <= num_levels:
                indices = rows[row, k - 1 :].flatten()
                levels[k - 1 :] += table.index_select(0, indices).view(num_levels + 1 - k, num_runs, size, -1)
                self._indices[row].append(indices)
        sums = table.new_empty(num_runs, 1 + num_levels * size, table.shape[-1])
        sums[:, :1] = start
        if num_levels:
            levels[0] += start
            for level in range(1, num_levels):
                levels[level] += levels[level - 1]
            sums[:, 1:].unflatten(1, (num_levels, size)).copy_(levels.transpose(0, 1))
        self._sums = [sums]

    def evaluate(self) -> Tensor:
        """Everything behind the first layer, for what has grown last; the heads side by side, [runs, nodes, n]."""
        made = stacked_activations(self._sums[-1], self._network.trunk)
        outputs = torch.baddbmm(self._head_bias, made[-1], self._head_weight.mT)
        self._made.append(made)
        self._outputs.append(outputs)
        return outputs

    def rows(self) -> npt.NDArray[Any]:
        """The heads at every row on all evaluated levels side by side, [runs·batch, levels, n]."""
        outputs = np.concatenate([part.numpy() for part in self._outputs], axis=1)
        num_runs, num_nodes, num = outputs.shape
        size = self._batch_size
        found = np.empty((num_runs, size, 1 + num_nodes // size, num), outputs.dtype)
        found[:, :, 0] = outputs[:, :1]
        found[:, :, 1:] = outputs[:, 1:].reshape(num_runs, -1, size, num).transpose(0, 2, 1, 3)
        return found.reshape(num_runs * size, -1, num)

    def pull(self, rows: npt.NDArray[Any]) -> None:
        """Give all weights the gradient that follows from that in `rows`."""
        num_runs, size = self._network.num_runs, self._batch_size
        apart = rows.reshape(num_runs, size, *rows.shape[1:])
        nodes = np.empty((num_runs, 1 + size * (rows.shape[1] - 1), rows.shape[2]), rows.dtype)
        nodes[:, 0] = apart[:, :, 0].sum(axis=1)
        nodes[:, 1:] = apart[:, :, 1:].transpose(0, 2, 1, 3).reshape(num_runs, -1, rows.shape[2])
        grad = torch.from_numpy(nodes)
        made = [parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) for parts in zip(*self._made, strict=True)]
        sums = self._sums[0] if len(self._sums) == 1 else torch.cat(self._sums, dim=1)
        heads = torch.bmm(grad.mT, made[-1]), grad.sum(dim=1)
        before, trunk = stacked_gradients(torch.bmm(grad, self._head_weight), sums, self._network.trunk, made)
        # a term counts in every sum after it
        levels = before[:, 1:].unflatten(1, (-1, size)).transpose(0, 1).contiguous()
        for level in range(len(levels) - 2, -1, -1):
            levels[level] += levels[level + 1]
        start = before[:, 0] + levels[0].sum(dim=1) if len(levels) else before[:, 0]
        # a longer k-mer begins on a later level: each k has the nodes from some level on
        indices = [torch.cat(parts) for parts in self._indices if parts]
        self._network.take(heads, trunk, start, indices, levels.flatten(0, 2))


class StackedWalker:
    """Prefixes that grow by one token at a time; no gradient.

    Attributes:
        recorder: what was computed, at all proper prefixes once every token has been drawn.
    """

    def __init__(self, network: StackedNetwork, batch_size: int) -> None:
        self._network, self._batch_size = network, batch_size
        self.recorder = StackedRecorder(network, batch_size)
        self._columns: list[Tensor] = []

    def log_policy(self) -> tuple[Tensor, Tensor | None]:
        """log π at the current prefixes, up to a constant, and what the mask says of them, [runs, batch, K]."""
        network, shape = self._network, (self._network.num_runs, self._batch_size)
        logits = self.recorder.evaluate()[..., : network.single.num_tokens].expand(*shape, -1)
        if network.single.mask is None:
            return logits, None
        tokens = torch.stack(self._columns, dim=-1) if self._columns else torch.empty(*shape, 0, dtype=torch.int64)
        allowed = network.single.mask.next(tokens.flatten(0, 1)).unflatten(0, shape)
        return masked_log_softmax(logits, allowed), allowed

    def advance(self, outcomes: Tensor) -> None:
        """Append one token per row, [runs, batch]."""
        self._columns.append(outcomes)
        if len(self._columns) < self._network.body.length:
            self._grow()

    def finish(self) -> None:
        """Let the recorder know the complete sequences too."""
        self._grow()
        self.recorder.evaluate()

    def _grow(self) -> None:
        self.recorder.grow(self._network.shifted(self._network.body.last_indices(self._columns)))
