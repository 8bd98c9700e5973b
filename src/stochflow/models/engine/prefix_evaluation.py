"""The k-mer network on a tree of prefixes, level by level, or at single prefixes, with hand-written gradients."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.autograd.function import once_differentiable

from stochflow.core.arrays import Array, Ints
from stochflow.core.logspace import masked_log_softmax
from stochflow.core.torch_kernels import log_softmax_backward
from stochflow.models.engine.buffers import Buffers, Rows
from stochflow.models.engine.prefix_layout import PrefixTree, add_by_level, climb
from stochflow.models.evaluation import Evaluation, H, Heads, writes_in_place
from stochflow.models.kmer_body import LastRows

Arrange: TypeAlias = Callable[[Heads, Tensor | None], H]


class EngineEvaluation(ABC):
    """Body and heads at some nodes, with hand-written gradients in all weights.

    It holds for the weights as they are: once a gradient was taken, `is_current` is False. All but `heads` is to be
    called without autograd.
    """

    def __init__(self, space: Buffers) -> None:
        """Nothing is evaluated yet; the buffers belong to this evaluation while it exists."""
        self._space, self._body = space, space.body
        space.lend(self)
        self._version = space.version.number
        self._head_weight, self._head_bias = space.read_heads()
        self._trunk, self._trunk_columns = space.read_trunk()

    @abstractmethod
    def row_outputs(self) -> Tensor:
        """The heads at every row side by side, without gradient, [..., n]."""

    @abstractmethod
    def _add_gradients(self, rows: Tensor, into: list[Tensor]) -> None:
        """Add the gradient in all weights that follows from that in `row_outputs`, [..., n]."""

    def heads(self, allowed: Tensor | None, log_completions: Tensor) -> Heads:
        """log π, log π_B and log F at every row.

        Args:
            allowed: what a mask says of the intentions, [..., K].
            log_completions: what is added to the head of log F, [...] or broadcastable to it.
        """
        found = _Heads.apply(self, allowed, log_completions, *self._space.weights)  # type: ignore[no-untyped-call]  # torch
        return Heads(*found)

    @property
    def is_current(self) -> bool:
        """True while no gradient was taken since this evaluation began, so that the weights are the same."""
        return self._version == self._space.version.number

    def add_gradients(self, rows: Tensor) -> None:
        """Add the gradient in all weights that follows from that in `row_outputs`, [..., n], to their `grad`."""
        self._space.version.number += 1
        into = []
        for weight in self._space.weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            into.append(weight.grad)
        with torch.inference_mode():
            self._add_gradients(rows, into)

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three heads in what stands side by side; [..., n] → [..., K], [..., K], [...]."""
        num_policy, num_backward, _ = self._space.sizes
        return rows[..., :num_policy], rows[..., num_policy : num_policy + num_backward], rows[..., -1]

    def gradients(self, rows: Tensor) -> list[Tensor] | None:
        """The gradient in all weights from that in `row_outputs`; None if it was added to what the weights have."""
        if writes_in_place() and all(weight.grad is not None for weight in self._space.weights):
            self.add_gradients(rows)
            return None
        self._space.version.number += 1
        into = [torch.zeros_like(weight) for weight in self._space.weights]
        self._add_gradients(rows, into)
        return into

    def _evaluate(self, rows: Rows) -> Tensor:
        """Everything behind the first layer, which is there; the heads, [rows, n]."""
        self._body.trunk.activations(rows.sums, self._trunk_columns, rows.made)
        if rows.arrays is None or self._space.head_arrays is None:
            return torch.addmm(self._head_bias, rows.made[-1], self._head_weight.t(), out=rows.outputs)
        # by numpy, whose products with a few columns take a fraction of torch's
        (features, outputs), (weight, bias) = rows.arrays, self._space.head_arrays
        np.dot(features, weight.T, out=outputs)
        np.add(outputs, bias, out=outputs)
        return rows.outputs

    def _add_behind_sums(self, grad: Tensor, rows: Rows, into: list[Tensor]) -> Tensor:
        """Add the gradient in all weights behind the first layer; returns that in the first layer, [rows, width].

        Args:
            grad: in the heads of the rows, [rows, n].
        """
        num_heads = len(self._space.heads)
        features = self._add_behind_features(grad, rows, into[-num_heads:])
        return self._body.trunk.add_gradients(
            features, rows.sums, self._trunk, rows.made, into[2 : len(into) - num_heads]
        )

    def _add_behind_features(self, grad: Tensor, rows: Rows, into: list[Tensor]) -> Tensor:
        """Add the gradient in all heads; returns that in the features, [rows, width]."""
        sizes, head_arrays = self._space.sizes, self._space.head_arrays
        if rows.arrays is None or head_arrays is None:
            parts = zip(torch.mm(grad.t(), rows.made[-1]).split(sizes), grad.sum(dim=0).split(sizes), strict=True)
            for weight, part in zip(into, (part for pair in parts for part in pair), strict=True):
                weight.add_(part)
            return torch.mm(grad, self._head_weight)
        heads, features = grad.numpy(), rows.arrays[0]
        weights, biases = np.dot(heads.T, features), np.add.reduce(heads, axis=0)
        for number, (first, last) in enumerate(pairwise(accumulate(sizes, initial=0))):
            into[2 * number].numpy()[:] += weights[first:last]
            into[2 * number + 1].numpy()[:] += biases[first:last]
        return torch.from_numpy(np.dot(heads, head_arrays[0]))


class PrefixEvaluation(EngineEvaluation):
    """Evaluates the nodes of a tree, level by level, and keeps what was computed for the gradient.

    Attributes:
        tree: whose nodes are evaluated; somebody else lets it grow.
    """

    def __init__(self, space: Buffers, tree: PrefixTree, num_complete: int = 0) -> None:
        """The first levels of the tree are there, but nothing of them is evaluated yet.

        Args:
            space: with a capacity for the most nodes that the tree can come to have.
            num_complete: levels after the first that hold all prefixes there are.
        """
        super().__init__(space)
        self.tree = tree
        self._starts = [0, tree.sizes[0]]  # first node of every level, and of the one to come
        self._last_rows: list[LastRows[Ints]] = []  # per level after the first
        self._levels: list[Array] = []  # the heads of each level
        self._num_grown, self.num_levels = 1, 0
        # the table and the first layer of all nodes as numpy sees them, where it can
        self._arrays = None if space.arrays is None else (space.table.detach().numpy(), space.arrays[0])
        if self._arrays is None:
            space.rows(0, tree.sizes[0]).sums.copy_(space.start)
        else:
            self._arrays[1][: tree.sizes[0]] = space.start.detach().numpy()
        for rows, parents in self._body.complete_levels(num_complete):
            self._add_level(rows, parents, len(parents))

    @property
    def needs_growth(self) -> bool:
        """True when the tree has a level whose first layer is not known."""
        return self._num_grown == self.tree.depth

    def grow(self) -> None:
        """The first layer of the next level, which the tree has."""
        depth, tree = self._num_grown, self.tree
        parents = None if tree.same(depth) else tree.parents[depth - 1]
        columns = tree.node_columns(depth, self._body.longest + 1)
        self._add_level(self._body.last_rows(columns, depth), parents, tree.sizes[depth])

    def _add_level(self, rows: LastRows[Ints], parents: Ints | None, size: int) -> None:
        """The first layer of a level whose nodes add some embedding rows to what their parents have.

        Args:
            rows: what their last tokens change.
            parents: [num_nodes]; None where they are all nodes of the level before.
        """
        space, (first, last) = self._space, self._starts[-2:]
        self._last_rows.append(rows)
        self._starts.append(last + size)
        self._num_grown += 1
        if self._arrays is None:
            sums, into = space.rows(first, last).sums, space.rows(last, last + size).sums
            inherited = sums if parents is None else sums.index_select(0, self.tree.tensor(parents))
            self._body.add(inherited, LastRows(*([self.tree.tensor(each) for each in part] for part in rows)), into)
            return
        # in numpy, whose operations on a few rows cost a fraction of torch's
        table, nodes = self._arrays
        before, after = nodes[first:last], nodes[last : last + size]
        before = before if parents is None else before.take(parents, axis=0)
        added = (*rows.summed, *rows.recent)
        for column in added or [np.zeros(size, np.int64)]:  # row 0, which pads, is zero
            before = np.add(before, table.take(column, axis=0), out=after)
        for column in rows.dropped:
            before = np.subtract(before, table.take(column, axis=0), out=after)

    def evaluate(self) -> None:
        """Everything behind the first layer, for all levels that have grown since the last time."""
        space, starts = self._space, self._starts
        first, last = starts[self.num_levels], starts[-1]
        computed = self._evaluate(space.rows(first, last))
        outputs = computed.cpu().numpy() if space.arrays is None else space.arrays[1][first:last]
        for level in range(self.num_levels, self._num_grown):
            self._levels.append(outputs[starts[level] - first : starts[level + 1] - first])
        self.num_levels = self._num_grown

    def finish(self) -> None:
        """All levels that the tree has, the complete sequences included, which sampling leaves out."""
        while self._num_grown <= self.tree.depth:
            self.grow()
        if self.num_levels < self._num_grown:
            self.evaluate()

    def covers(self, tokens: Tensor) -> bool:
        """True when this is the network as it is now, on finished rows that are just these, [batch, time]."""
        tree = self.tree
        if not self.is_current or tree.batch_size != len(tokens) or tree.depth != tokens.shape[1]:
            return False
        return tree.has_rows(tokens)

    def logits(self) -> Array:
        """Of π at every row on the last level of the tree, without gradient, [batch, K]."""
        tree = self.tree
        logits = self._levels[tree.depth][:, : self._space.sizes[0]]
        return logits if tree.parted else logits.take(tree.which[-1], axis=0)

    def rows(self) -> Array:
        """The heads at every row on all evaluated levels side by side, without gradient, [batch, levels, n]."""
        return self.outputs().cpu().numpy().take(self.tree.nodes(self.num_levels), axis=0)

    def row_outputs(self) -> Tensor:
        nodes = self.tree.tensor(self.tree.nodes(self.num_levels))
        return torch.nn.functional.embedding(nodes, self.outputs())

    def outputs(self) -> Tensor:
        """The heads at all evaluated nodes side by side, [num_nodes, n]."""
        return self._space.rows(0, self._starts[self.num_levels]).outputs

    def _add_gradients(self, rows: Tensor, into: list[Tensor]) -> None:
        num = self._starts[self.num_levels]
        nodes = self.tree.tensor(self.tree.nodes(self.num_levels))
        grad = rows.new_zeros(num, rows.shape[-1]).index_add_(0, nodes.view(-1), rows.flatten(0, 1))
        sums = self._add_behind_sums(grad, self._space.rows(0, num), into)
        add_by_level(sums, [rows.recent for rows in self._last_rows], self.tree, into[0])
        climb(sums, [rows.summed for rows in self._last_rows], self.tree, into[0], into[1])


class StateEvaluation(EngineEvaluation):
    """Evaluates prefixes of any depth that stand for themselves, where numpy can read the weights."""

    def __init__(self, space: Buffers, bags: sparse.csr_matrix) -> None:
        """All of them at once.

        Args:
            space: with a capacity for them.
            bags: which embeddings add up to each, see `PrefixBody.bags`.
        """
        super().__init__(space)
        self._bags = bags
        sums = bags @ space.table.detach().numpy()
        sums += space.start.detach().numpy()
        self._rows = space.rows(0, len(sums))._replace(sums=torch.from_numpy(sums))
        self._evaluate(self._rows)

    def row_outputs(self) -> Tensor:
        return self._rows.outputs

    def _add_gradients(self, rows: Tensor, into: list[Tensor]) -> None:
        sums = self._add_behind_sums(rows, self._rows, into)
        into[0].add_(torch.from_numpy(self._bags.T @ sums.numpy()))
        into[1].add_(sums.sum(dim=0))


class StateFlows(StateEvaluation):
    """The same with the head of log F alone: what many letters cost is in the heads of π and π_B."""

    def _evaluate(self, rows: Rows) -> Tensor:
        """The head of log F in the last column, [rows, n]; what stands in the others means nothing."""
        self._body.trunk.activations(rows.sums, self._trunk_columns, rows.made)
        rows.outputs[:, -1] = torch.addmv(self._head_bias[-1], rows.made[-1], self._head_weight[-1])
        return rows.outputs


class EngineHeads(Evaluation[H]):
    """Outputs as the hand-written engine has them.

    Args:
        engine: what it has evaluated.
        allowed: what a mask says of the intentions at the same prefixes, [..., K].
        log_completions: what is added to the head of log F, [...].
        arrange: makes the heads that were requested of those at the prefixes and of `allowed`.
    """

    def __init__(
        self, engine: EngineEvaluation, allowed: Tensor | None, log_completions: Tensor, arrange: Arrange[H]
    ) -> None:
        self._engine, self._allowed, self._log_completions = engine, allowed, log_completions
        self._arrange = arrange

    def heads(self) -> H:
        return self._arrange(self._engine.heads(self._allowed, self._log_completions), self._allowed)

    def outputs(self) -> Array:
        return self._engine.row_outputs().cpu().numpy()

    def backward(self, grad: Array) -> None:
        self._engine.add_gradients(torch.from_numpy(grad).to(self._log_completions.device))


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, evaluation: EngineEvaluation, allowed: Tensor | None, log_completions: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        rows = evaluation.row_outputs()
        policy, backward, flow = evaluation.split(rows)
        log_policy, log_backward = masked_log_softmax(policy, allowed), torch.log_softmax(backward, dim=-1)
        # other views of the same numbers: what is returned would hold on to itself
        ctx.normalised = log_policy.detach(), log_backward.detach()
        ctx.evaluation, ctx.allowed, ctx.shape, ctx.num_weights = evaluation, allowed, rows.shape, len(weights)
        return log_policy, log_backward, flow + log_completions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        rows = ctx.normalised[0].new_zeros(ctx.shape)
        policy, backward, flow = ctx.evaluation.split(rows)
        if grads[2] is not None:
            flow.copy_(grads[2])
        for number, (part, log_probs) in enumerate(zip((policy, backward), ctx.normalised, strict=True)):
            grad = grads[number]
            if grad is not None:
                if number == 0 and ctx.allowed is not None:
                    grad = grad.masked_fill(~ctx.allowed, 0.0)
                part.copy_(log_softmax_backward(grad, log_probs))
        return None, None, None, *(ctx.evaluation.gradients(rows) or [None] * ctx.num_weights)
