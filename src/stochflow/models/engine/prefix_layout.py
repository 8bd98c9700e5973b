"""The distinct prefixes of a batch as a tree: what several rows share is computed once."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Ints
from stochflow.core.codes import decode

SMALL_BATCH = 32  # below it, looking for prefixes that rows share costs more than it saves
# when so few rows could still be spared, the same holds
_FEW_ROWS, _FEW_SHARE = 12, 16


class PrefixTree:
    """The prefixes of a batch of rows, level by level; `advance` adds a level.

    A node is a prefix. Level 0 is the empty one. Nodes are numbered within their level. The first `num_complete` levels
    after it hold all prefixes there are, in lexicographic order, visited or not; the following ones those of the batch,
    each once as far as they are merged; and once nearly all of them differ every row has a node of its own. Rows that
    are kept `apart` have one each from the start.

    Nodes are numbered in numpy, whose operations on a handful of numbers cost a fraction of torch's.

    Attributes:
        num_tokens: K.
        batch_size: rows.
        device: where the values of nodes are.
        sizes: nodes per level.
        parents: per level after the first, the node before the last token, [num_nodes].
        which: per level, the node of every row, [batch].
    """

    def __init__(
        self, num_tokens: int, batch_size: int, device: torch.device, num_complete: int = 0, apart: bool = False
    ) -> None:
        self.num_tokens, self._num_complete = num_tokens, num_complete
        self.device, self.on_cpu = device, device.type == "cpu"
        self._columns: list[Ints] = []
        self._all, nothing = all_rows(batch_size)
        self.batch_size = batch_size
        # one row of the batch that begins with each node, [num_nodes]; None where a level is complete
        self._rows: list[Ints | None] = [self._all if apart else None]
        self.sizes = [batch_size if apart else 1]
        self.parents: list[Ints] = []
        self._nodes: Ints | None = None
        self.which = [self._all if apart else nothing]

    @classmethod
    def of(cls, tokens: Tensor, num_tokens: int) -> "PrefixTree":
        """The tree of finished rows, [batch, time], complete sequences included."""
        tree = cls(num_tokens, len(tokens), tokens.device)
        for column in np.ascontiguousarray(tokens.cpu().numpy().T):
            tree.advance(column)
        return tree

    @property
    def depth(self) -> int:
        """Tokens of the last level."""
        return len(self.parents)

    @property
    def tokens(self) -> Tensor:
        """The rows so far, [batch, depth]."""
        return self._side_by_side(self._columns, self.batch_size)

    @property
    def parted(self) -> bool:
        """True when every row has a node of its own, now and on all levels to come."""
        return self._rows[-1] is self._all

    def node_tokens(self, depth: int) -> Tensor:
        """The prefixes of a level, [num_nodes, depth]."""
        return self._side_by_side(self.node_columns(depth), self.sizes[depth])

    def node_columns(self, depth: int, num_last: int | None = None) -> list[Ints]:
        """The same position by position, [num_nodes] each; all of them, or at most so many of the last."""
        rows, first = self._rows[depth], 0 if num_last is None else max(depth - num_last, 0)
        if rows is None:
            return list(all_prefixes(self.num_tokens, depth, torch.device("cpu")).numpy().T[first:])
        columns = self._columns[first:depth]
        return columns if rows is self._all else [column[rows] for column in columns]

    def advance(self, column: Ints) -> None:
        """Append one token per row, [batch]."""
        which, depth, batch_size = self.which[-1], len(self.parents), self.batch_size
        self._columns.append(column)
        if self.parted:
            return self._append(which, self._all, self._all, batch_size)
        if depth < self._num_complete:
            parents = all_parents(self.num_tokens, depth + 1)
            return self._append(parents, None, which * self.num_tokens + column, len(parents))
        few = max(_FEW_ROWS, batch_size // _FEW_SHARE)
        # a level spares about a K-th of what the one before did
        hopeful = self._rows[-1] is None or batch_size - self.sizes[-1] > 2 * few
        if hopeful and batch_size >= SMALL_BATCH:
            codes = which * self.num_tokens + column
            numbers = np.zeros(self.sizes[-1] * self.num_tokens, np.int64)
            numbers[codes] = 1
            nodes = numbers.nonzero()[0]
            if batch_size - len(nodes) > few:
                numbers[nodes] = np.arange(len(nodes))
                following, rows = numbers[codes], np.empty_like(nodes)
                rows[following] = self._all
                return self._append(nodes // self.num_tokens, rows, following, len(nodes))
        return self._append(which, self._all, self._all, batch_size)

    def has_rows(self, tokens: Tensor) -> bool:
        """True when the rows so far are these, [batch, depth]."""
        rows = tokens.cpu().numpy()
        return all(bool((column == rows[:, place]).all()) for place, column in enumerate(self._columns))

    def at_rows(self, values: Tensor) -> Tensor:
        """Values of the nodes of the last level at the rows; [num_nodes, n] → [batch, n]."""
        return values if self.parted else values.index_select(0, self.tensor(self.which[-1]))

    def inherited(self, values: Tensor, depth: int) -> Tensor:
        """What the nodes of a level have from their parents; [num_parents, n] → [num_nodes, n]."""
        return values if self.same(depth) else values.index_select(0, self.tensor(self.parents[depth - 1]))

    def add_to_parents(self, values: Tensor, depth: int, parents: Tensor) -> None:
        """Add what the nodes of a level have, [num_nodes, n], to their parents, [num_parents, n], in place."""
        if self.same(depth):
            parents.add_(values)
        else:
            parents.index_add_(0, self.tensor(self.parents[depth - 1]), values)

    def same(self, depth: int) -> bool:
        """True when the nodes of a level are those of the level before, one token longer."""
        return self._rows[depth - 1] is self._all

    def complete(self, depth: int) -> bool:
        """True when a level after the first holds all prefixes there are, in lexicographic order."""
        return 0 < depth <= self._num_complete

    def nodes(self, num_levels: int) -> Ints:
        """Number of every row's node on the first levels, counted through all of them; [batch, levels]."""
        if self._nodes is None or self._nodes.shape[1] != num_levels:
            firsts = accumulate(self.sizes[: num_levels - 1], initial=0)
            self._nodes = np.empty((self.batch_size, num_levels), np.int64)
            for level, first in enumerate(firsts):
                np.add(self.which[level], first, out=self._nodes[:, level])
        return self._nodes

    def tensor(self, numbers: Ints) -> Tensor:
        """Ints as an index of values of nodes; same shape."""
        found = torch.from_numpy(numbers)
        return found if self.on_cpu else found.to(self.device)

    def _side_by_side(self, columns: Sequence[Ints], num_rows: int) -> Tensor:
        """Tokens position by position, [num_rows] each → [num_rows, positions]."""
        found = np.empty((num_rows, len(columns)), np.int64)
        for position, column in enumerate(columns):
            found[:, position] = column
        return self.tensor(found)

    def _append(self, parents: Ints, rows: Ints | None, which: Ints, size: int) -> None:
        self.parents.append(parents)
        self._rows.append(rows)
        self.which.append(which)
        self.sizes.append(size)


@lru_cache(maxsize=64)
def all_rows(batch_size: int) -> tuple[Ints, Ints]:
    """Ints of rows, and as many zeros, [batch] each."""
    rows = np.arange(batch_size)
    return rows, np.zeros_like(rows)


@lru_cache(maxsize=64)
def all_parents(num_tokens: int, depth: int) -> Ints:
    """Number of the prefix without its last token of each of `all_prefixes`, [num_tokens^depth]."""
    return np.arange(num_tokens**depth) // num_tokens


@lru_cache(maxsize=64)
def all_prefixes(num_tokens: int, depth: int, device: torch.device) -> Tensor:
    """All prefixes of a length in lexicographic order, [num_tokens^depth, depth]."""
    return decode(torch.arange(num_tokens**depth, device=device), num_tokens, depth)


@lru_cache(maxsize=64)
def num_complete_levels(num_tokens: int, length: int, batch_size: int) -> int:
    """Levels after the first that have so few nodes that all of them may be evaluated before one is drawn."""
    most = max(batch_size // 2, min(batch_size, SMALL_BATCH // 2))
    return sum(num_tokens**depth <= most for depth in range(1, length)) if num_tokens > 1 else 0


def climb(grad: Tensor, indices: list[list[Ints]], tree: PrefixTree, table: Tensor, start: Tensor) -> None:
    """Add the gradient of sums of embeddings along a tree, which climbs it once, to that in the embeddings.

    Args:
        grad: in the sums of all nodes, level by level, [num_nodes, width]; it is used up.
        indices: per level after the first, which rows its last token added, [num_nodes] each.
        table: gradient in the table of embeddings, [num_rows, width].
        start: gradient in the sum of the empty prefix, [width].
    """
    levels = list(zip((bounds := [0, *accumulate(tree.sizes[: len(indices) + 1])]), bounds[1:], strict=False))
    array = grad.numpy() if tree.on_cpu else None
    for depth in range(len(indices), 0, -1):
        (first, last), (above, below) = levels[depth], levels[depth - 1]
        if array is not None and tree.same(depth):  # numpy's sum of a few rows costs half of torch's
            array[above:below] += array[first:last]
        elif array is not None and tree.complete(depth):
            siblings = array[first:last].reshape(-1, tree.num_tokens, array.shape[1])
            array[above:below] += np.add.reduce(siblings, axis=1)
        else:
            tree.add_to_parents(grad[first:last], depth, grad[above:below])
    start.add_(grad[: tree.sizes[0]].sum(dim=0) if tree.sizes[0] > 1 else grad[0])
    add_by_level(grad, indices, tree, table)


def add_by_level(grad: Tensor, indices: list[list[Ints]], tree: PrefixTree, table: Tensor) -> None:
    """Add the gradient at nodes to that in the embeddings which they add.

    Args:
        grad: at all nodes, level by level, [num_nodes, width].
        indices: per level after the first, rows of the embeddings, [num_nodes] each.
        table: gradient in the table of embeddings, [num_rows, width].
    """
    # a longer k-mer begins on a later level: each k has the nodes from some level on
    for row in range(max(map(len, indices), default=0)):
        rows = np.concatenate([level[row] for level in indices if len(level) > row])
        table.index_add_(0, tree.tensor(rows), grad[len(grad) - len(rows) :])
