"""The networks of several runs at the prefixes of their batches with the gradient written out, and their sampling."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.logmath import masked_log_softmax
from stochflow.models.prefixes import Numbers, num_complete_levels
from stochflow.objectives.written import quietly
from stochflow.stacking.network import StackedNetwork
from stochflow.stacking.trunk import Both, stacked_activations, stacked_gradients, stacked_linear, stacked_widths

Array = npt.NDArray[Any]


class _Nodes(NamedTuple):
    """Some consecutive nodes of every run.

    Attributes:
        sums: the first layer, [runs, nodes, width].
        made: the activations, see `stacked_activations`.
        outputs: the heads side by side, [runs, nodes, n].
    """

    sums: Tensor
    made: list[Both]
    outputs: Both


class StackedSpace:
    """Room for what the networks compute at the prefixes of batches of one size: used again and again.

    A run has one node for every prefix of the first levels, which are few, and then, level by level, one for every row.

    Attributes:
        num_complete: levels after the empty prefix that hold all prefixes there are, in lexicographic order.
        num_apart: levels after these.
        starts: the first node of every level, and the number of all nodes.
        offsets: the first node of each run among those of all runs, [runs, 1].
        parents: per complete level, the nodes before its own, [K^level].
        rows: of the table, for all k-mers that end at a node, one node after the other, [runs, num].
        owners: to which node each of these rows belongs, among those of all runs, [runs·num].
    """

    def __init__(self, network: StackedNetwork, batch_size: int, num_levels: int) -> None:
        self.network, self.batch_size, self.num_levels = network, batch_size, num_levels
        num_tokens, runs, width = network.single.num_tokens, network.num_runs, network.width
        num = min(num_complete_levels(num_tokens, network.body.length, batch_size), num_levels - 1)
        self.num_complete, self.num_apart = num, num_levels - 1 - num
        sizes = [num_tokens**level if level <= num else batch_size for level in range(num_levels)]
        self.starts = [0, *accumulate(sizes)]
        self.num_nodes = self.starts[-1]
        self.offsets = self.num_nodes * np.arange(runs)[:, None]
        levels = network.body.complete_levels(num)
        self.parents = [parents for _, parents in levels]
        there = np.array(network.body.kmers) <= np.arange(num_levels)[:, None]  # k-mers that end on each level
        nums = there.sum(axis=1)
        self._row_starts = [0, *accumulate((nums * sizes).tolist())]
        self.rows = np.empty((runs, self._row_starts[-1]), np.int64)
        self._nums = nums.repeat(sizes)  # rows of every node of a run
        self.owners = (self.offsets + np.arange(self.num_nodes).repeat(self._nums)).ravel()
        for level, (indices, _) in enumerate(levels, start=1):
            self.write_rows(level, [column + network.firsts for column in indices])
        # where the rows of the levels after these are among those of all positions
        everywhere = np.arange(batch_size * network.body.length * there.shape[1]).reshape(
            batch_size, -1, there.shape[1]
        )
        others = [everywhere[:, level - 1, there[level]].ravel() for level in range(1 + num, num_levels)]
        self._apart = np.concatenate([np.empty(0, np.int64), *others])
        widths = [width, *stacked_widths(width, len(network.body.layers)), network.heads[1].array.shape[2]]
        self._buffers = [torch.empty(runs, self.num_nodes, n, dtype=network.dtype) for n in widths]
        self.sums, self.outputs = self._buffers[0].numpy(), self._buffers[-1].numpy()
        # gradients in the features and, on their way, in what was before them
        self.grad, self.spare = (Both.of(torch.empty_like(self._buffers[0])) for _ in range(2))
        self._nodes: dict[tuple[int, int], _Nodes] = {}
        self._bags: dict[tuple[int, int], Tensor] = {}  # where the rows of each node begin among those of some levels

    def write_rows(self, level: int, columns: Sequence[Numbers]) -> None:
        """Note the rows of the table that a level adds, [runs, nodes] per k there is."""
        into = self._rows_of(level, level + 1).reshape(len(self.rows), -1, len(columns))  # a view
        for row, column in enumerate(columns):
            into[..., row] = column

    def write_apart(self, rows: Numbers) -> None:
        """Note those of all levels after the complete ones, [runs, batch, positions, num_kmers]."""
        rows.reshape(len(rows), -1).take(self._apart, axis=1, out=self._rows_of(1 + self.num_complete, self.num_levels))

    def added(self, first: int, last: int) -> Array:
        """What the nodes from one level to before another add to those before them, [runs, nodes, width]."""
        if (first, last) not in self._bags:
            nums = np.tile(self._nums[self.starts[first] : self.starts[last]], len(self.rows))
            self._bags[first, last] = torch.from_numpy(nums.cumsum() - nums)
        table, rows = self.network.weights.table, self._rows_of(first, last)
        return table.sums(rows.reshape(-1), self._bags[first, last]).numpy().reshape(len(rows), -1, self.network.width)

    def _rows_of(self, first: int, last: int) -> Numbers:
        return self.rows[:, self._row_starts[first] : self._row_starts[last]]

    def nodes(self, first: int, last: int) -> _Nodes:
        """The nodes from one to before another."""
        if (first, last) not in self._nodes:
            sums, *made, outputs = (buffer[:, first:last] for buffer in self._buffers)
            self._nodes[first, last] = _Nodes(sums, [*map(Both.of, made)], Both.of(outputs))
        return self._nodes[first, last]


class StackedRecorder:
    """What `Recorder` does for one run, for all of them: evaluates prefixes, and keeps what their gradient needs.

    It holds for the weights as they are, and until the next one in the same space.
    """

    def __init__(self, space: StackedSpace) -> None:
        self._space, self._network = space, space.network
        # per complete level, the prefixes of the rows as numbers, [runs, batch]
        self._codes = [np.zeros((self._network.num_runs, space.batch_size), np.int64)]
        self._num_grown, self._num_evaluated = 0, 0

    def grow_complete(self) -> None:
        """The first layer of the levels that hold all prefixes there are."""
        num = self._space.num_complete
        self._add_complete(self._space.added(1, num + 1))
        self._num_grown = 1 + num

    def _add_complete(self, terms: Array) -> None:
        """The same from what all nodes but the first add, perhaps also those of later levels; [runs, nodes, width]."""
        space, starts = self._space, self._space.starts
        space.sums[:, 0] = self._network.parameters["body.start"].detach().numpy()
        for level, parents in enumerate(space.parents, start=1):
            first, last = starts[level : level + 2]
            before = space.sums[:, starts[level - 1] : first].take(parents, axis=1)
            np.add(before, terms[:, first - 1 : last - 1], out=space.sums[:, first:last])

    def _before_rows(self) -> Array:
        """The first layer at the rows' nodes on the last complete level, [runs, batch, width]."""
        sums = self._space.sums
        return sums.reshape(-1, sums.shape[-1]).take(self._last_complete, axis=0)

    @cached_property
    def _last_complete(self) -> Array:
        """Numbers of the rows' nodes on the last complete level among those of all runs, [runs, batch]."""
        space = self._space
        return self._codes[space.num_complete] + (space.offsets + space.starts[space.num_complete])

    def note(self, column: Numbers) -> None:
        """Rows go on with a token each, [runs, batch]; only the complete levels need to know."""
        if len(self._codes) <= self._space.num_complete:
            self._codes.append(self._codes[-1] * self._network.single.num_tokens + column)

    @property
    def num_grown(self) -> int:
        """Levels of which the first layer is known."""
        return self._num_grown

    def grow(self, indices: Sequence[Numbers]) -> None:
        """The first layer of the next level; the rows of the table that it adds, [runs, batch] per k there is."""
        space, level = self._space, self._num_grown
        first, last = space.starts[level : level + 2]
        if level == space.num_complete + 1:
            before = self._before_rows()
        else:
            before = space.sums[:, first - space.batch_size : first]
        space.write_rows(level, indices)
        np.add(before, space.added(level, level + 1), out=space.sums[:, first:last])
        self._num_grown += 1

    def grow_all(self, rows: Numbers, outcomes: Numbers) -> None:
        """The first layer of all levels.

        Args:
            rows: of the table, [runs, batch, positions, num_kmers].
            outcomes: tokens of the rows, [runs, batch, levels].
        """
        space, num = self._space, self._space.num_complete
        for level in range(num):
            self.note(outcomes[:, :, level])
        runs, _, width = space.sums.shape
        first, num_left = space.starts[num + 1], space.num_apart
        levels = space.sums[:, first:].reshape(runs, num_left, space.batch_size, width)  # a view
        space.write_apart(rows)
        terms = space.added(1, space.num_levels)
        self._add_complete(terms)
        apart = terms[:, first - 1 :].reshape(levels.shape)
        for level in range(num_left):
            np.add(levels[:, level - 1] if level else self._before_rows(), apart[:, level], out=levels[:, level])
        self._num_grown = space.num_levels

    @quietly()
    def evaluate(self) -> None:
        """Everything behind the first layer, for all levels that have grown since the last time."""
        space, network = self._space, self._network
        nodes = space.nodes(space.starts[self._num_evaluated], space.starts[self._num_grown])
        stacked_activations(nodes.sums, network.trunk, nodes.made)
        weight, bias = network.heads
        stacked_linear(nodes.made[-1], weight, bias, nodes.outputs)
        self._num_evaluated = self._num_grown

    def logits(self, level: int) -> Array:
        """Of π at every row on a level, [runs, batch, K]."""
        space, num = self._space, self._network.single.num_tokens
        if level > self._space.num_complete:
            return space.outputs[:, space.starts[level] : space.starts[level + 1], :num]
        nodes = self._codes[level] + (space.offsets + space.starts[level])
        return space.outputs.reshape(-1, space.outputs.shape[-1])[:, :num].take(nodes, axis=0)

    def rows(self) -> Array:
        """The heads at every row on all evaluated levels side by side, [runs·batch, levels, n]."""
        space, size = self._space, self._space.batch_size
        runs, _, num = space.outputs.shape
        found = np.empty((runs, size, space.num_levels, num), space.outputs.dtype)
        apart = space.outputs[:, space.starts[space.num_complete + 1] :].reshape(runs, space.num_apart, size, num)
        found[:, :, space.num_complete + 1 :] = apart.transpose(0, 2, 1, 3)
        space.outputs.reshape(-1, num).take(self._complete_nodes, axis=0, out=found[:, :, : space.num_complete + 1])
        return found.reshape(runs * size, -1, num)

    @cached_property
    def _complete_nodes(self) -> Numbers:
        """Numbers of the rows' nodes on the complete levels among those of all runs, [runs, batch, levels]."""
        space = self._space
        codes = np.stack(self._codes, axis=2)
        codes += space.starts[: len(self._codes)]
        codes += space.offsets[..., None]
        return codes

    @quietly()
    def pull(self, rows: Array) -> None:
        """Give all weights the gradient that follows from that in `rows`, [runs·batch, levels, n]."""
        space, network = self._space, self._network
        grad, nodes = self._in_nodes(rows), space.nodes(0, space.num_nodes)
        weight, bias = network.into_heads
        np.matmul(grad.swapaxes(1, 2), nodes.made[-1].array, out=weight.array)
        np.add.reduce(grad, axis=1, keepdims=True, out=bias.array)
        np.matmul(grad, network.heads[0].array, out=space.grad.array)
        stacked_gradients(space.grad, network.trunk, nodes.made, network.into_trunk, space.spare)
        self._climb()

    def _in_nodes(self, rows: Array) -> Array:
        """What rows have on all levels, added up at their nodes; [runs·batch, levels, n] → [runs, nodes, n]."""
        space, num = self._space, 1 + self._space.num_complete
        runs, size = space.sums.shape[0], space.batch_size
        apart = rows.reshape(runs, size, *rows.shape[1:])
        found = np.zeros(space.outputs.shape, rows.dtype)
        levels = found[:, space.starts[num] :].reshape(runs, space.num_apart, size, rows.shape[2])  # a view
        levels[:] = apart[:, :, num:].transpose(0, 2, 1, 3)
        into, nodes = torch.from_numpy(found).flatten(0, 1), torch.from_numpy(self._complete_nodes.ravel())
        into.index_add_(0, nodes, torch.from_numpy(apart[:, :, :num].reshape(-1, rows.shape[2])))
        return found

    def _climb(self) -> None:
        """From the gradient in the sums of all nodes to that in the embeddings; a term counts in every sum after it."""
        space, network, starts = self._space, self._network, self._space.starts
        grad, num = space.grad.array, space.num_complete
        runs, _, width = grad.shape
        levels = grad[:, starts[num + 1] :].reshape(runs, space.num_apart, space.batch_size, width)
        for level in range(levels.shape[1] - 2, -1, -1):
            levels[:, level] += levels[:, level + 1]
        if levels.shape[1]:
            parents = torch.from_numpy(self._last_complete.ravel())
            space.grad.tensor.view(-1, width).index_add_(0, parents, torch.from_numpy(levels[:, 0].reshape(-1, width)))
        for level in range(num, 0, -1):
            num_parents = starts[level] - starts[level - 1]
            children = grad[:, starts[level] : starts[level + 1]].reshape(runs, num_parents, -1, width)
            grad[:, starts[level - 1] : starts[level]] += np.add.reduce(children, axis=2)
        network.into_start.numpy()[:] = grad[:, 0]
        network.take(space.rows.ravel(), space.owners, space.grad.tensor.view(-1, width))


class StackedWalker:
    """Prefixes that grow by one token at a time; no gradient.

    Attributes:
        recorder: what was computed, at all proper prefixes once every token has been drawn.
    """

    def __init__(self, network: StackedNetwork, space: StackedSpace) -> None:
        self._network, self._shape = network, (network.num_runs, space.batch_size)
        self.recorder = StackedRecorder(space)
        self.recorder.grow_complete()
        self.recorder.evaluate()
        self._columns: list[Numbers] = []
        # the last letters of every row as a number, as many as the longest k-mer has, but one before the next comes
        self._codes = np.zeros(self._shape, np.int64)
        self._num_pasts = network.single.num_tokens ** (max(network.body.kmers) - 1)

    def log_policy(self) -> Array:
        """log π at the current prefixes, up to a constant, [runs, batch, K]."""
        logits, allowed = self.recorder.logits(len(self._columns)), self.allowed()
        return logits if allowed is None else masked_log_softmax(torch.from_numpy(logits), allowed).numpy()

    def allowed(self) -> Tensor | None:
        """What the mask says of the intentions, [runs, batch, K]; None where there is none."""
        mask = self._network.single.mask
        if mask is None:
            return None
        tokens = np.stack(self._columns, axis=-1) if self._columns else np.empty((*self._shape, 0), np.int64)
        return mask.next(torch.from_numpy(tokens).flatten(0, 1)).unflatten(0, self._shape)

    def advance(self, outcomes: Numbers) -> None:
        """Append one token per row, [runs, batch]."""
        self._columns.append(outcomes)
        self._codes = self._codes % self._num_pasts * self._network.single.num_tokens + outcomes
        self.recorder.note(outcomes)
        if len(self._columns) < self._network.body.length:
            self._grow()

    def finish(self) -> None:
        """Let the recorder know the complete sequences too."""
        self._grow()

    def _grow(self) -> None:
        if self.recorder.num_grown == len(self._columns):
            network = self._network
            self.recorder.grow(network.body.indices_of(self._codes, len(self._columns) - 1, network.firsts))
            self.recorder.evaluate()
