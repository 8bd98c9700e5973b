"""The distinct prefixes of a batch as a tree: what several rows share is computed once."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


# when so few rows could still be spared, finding them costs more than it saves
_FEW_ROWS, _FEW_SHARE = 4, 16
SMALL_BATCH = 32  # below it, finding shared prefixes costs more than it saves from the start


class PrefixTree:
    """The distinct prefixes of a batch of rows, level by level; `advance` adds a level.

    A node is a prefix. Level 0 is the empty one. Nodes are numbered within their level. Once nearly all prefixes differ
    every row gets a node of its own.

    Attributes:
        rows: per level, one row of the batch that begins with the node, [num_nodes].
        parents: per level after the first, the node before the last token, [num_nodes].
        which: per level, the node of every row, [batch].
    """

    def __init__(self, num_tokens: int, length: int, batch_size: int, device: torch.device, merge: bool = True) -> None:
        self._num_tokens, self._merge = num_tokens, merge
        self._tokens = torch.empty(batch_size, length, dtype=torch.int64, device=device)
        self._all = torch.arange(batch_size, device=device)
        self.rows = [self._all[:1] if merge else self._all]
        self.parents: list[Tensor] = []
        self.which = [torch.zeros_like(self._all) if merge else self._all]

    @classmethod
    def of(cls, tokens: Tensor, num_tokens: int) -> "PrefixTree":
        """The tree of finished rows, [batch, time], complete sequences included."""
        tree = cls(num_tokens, tokens.shape[1], len(tokens), tokens.device)
        for column in tokens.unbind(dim=1):
            tree.advance(column)
        return tree

    @property
    def depth(self) -> int:
        """Tokens of the last level."""
        return len(self.parents)

    @property
    def tokens(self) -> Tensor:
        """The rows so far, [batch, depth]."""
        return self._tokens[:, : self.depth]

    def node_tokens(self, depth: int) -> Tensor:
        """The prefixes of a level, [num_nodes, depth]."""
        tokens, rows = self._tokens[:, :depth], self.rows[depth]
        return tokens if rows is self._all else tokens.index_select(0, rows)

    def inherited(self, values: Tensor, depth: int) -> Tensor:
        """What the nodes of a level have from their parents; [num_parents, n] → [num_nodes, n]."""
        if self.rows[depth - 1] is self.rows[depth]:
            return values
        return values.index_select(0, self.parents[depth - 1])

    @property
    def parted(self) -> bool:
        """True when every row has a node of its own, now and on all levels to come."""
        return self.rows[-1] is self._all

    def advance(self, column: Tensor) -> None:
        """Append one token per row, [batch]."""
        which = self.which[-1]
        self._tokens[:, self.depth] = column
        if not self.parted:
            nodes, following = (which * self._num_tokens + column).unique(return_inverse=True)
            if len(self._all) - len(nodes) > max(_FEW_ROWS, len(self._all) // _FEW_SHARE):
                self.parents.append(nodes // self._num_tokens)
                self.rows.append(torch.empty_like(nodes).scatter_(0, following, self._all))
                self.which.append(following)
                return
        self.parents.append(which)
        self.rows.append(self._all)
        self.which.append(self._all)

    def by_row(self, values: Tensor, num_levels: int) -> Tensor:
        """Values of the nodes of the first levels, level by level, at the rows; [num_nodes, n] → [batch, levels, n]."""
        if self.rows[0] is self._all:
            return values.view(num_levels, len(self._all), -1).transpose(0, 1)
        columns, first = [], 0
        for level in range(num_levels):
            columns.append(self.which[level] + first)
            first += len(self.rows[level])
        nodes = torch.stack(columns, dim=1)
        return values.index_select(0, nodes.flatten()).view(*nodes.shape, -1)


@dataclass(frozen=True)
class Recording:
    """What the network computed on the way down, level by level.

    Attributes:
        tree: the prefixes it was computed for.
        sums: first layer of every level, [num_nodes, width].
        indices: per level after the first, embedding rows that its last token added, [num_nodes] each.
        made: per level, the `activations` of the trunk.
    """

    tree: PrefixTree
    sums: list[Tensor]
    indices: list[list[Tensor]]
    made: list[list[Tensor]]


class TreeSums(torch.autograd.Function):
    """Sums of embeddings along a tree, one addition per node; the gradient climbs it once."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        start: Tensor,
        indices: list[list[Tensor]],
        tree: PrefixTree,
        known: list[Tensor] | None,
    ) -> Tensor:
        """Sums of all nodes, [num_nodes, width].

        Args:
            weight: embeddings, [num_rows, width]; row 0 pads.
            start: sum of the empty prefix, [width].
            indices: per level after the first, which rows its last token adds, [num_nodes] each.
            known: the sums of the first levels, if they have been computed already.
        """
        ctx.indices, ctx.tree, ctx.num_rows = indices, tree, len(weight)
        levels = list(known or [start.expand(len(tree.rows[0]), -1)])
        for depth in range(len(levels), len(indices) + 1):
            sums = tree.inherited(levels[-1], depth)
            for column in indices[depth - 1]:
                sums = sums + weight.index_select(0, column)
            levels.append(sums)
        return torch.cat(levels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        indices, tree = ctx.indices, ctx.tree
        levels = list(grad.clone().split([len(rows) for rows in tree.rows[: len(indices) + 1]]))
        grad_weight = grad.new_zeros(ctx.num_rows, grad.shape[1])
        for depth in range(len(indices), 0, -1):
            for column in indices[depth - 1]:
                grad_weight.index_add_(0, column, levels[depth])
            if tree.rows[depth - 1] is tree.rows[depth]:
                levels[depth - 1].add_(levels[depth])
            else:
                levels[depth - 1].index_add_(0, tree.parents[depth - 1], levels[depth])
        return grad_weight, levels[0].sum(dim=0), None, None, None
