"""The network on a tree of prefixes, level by level, with its gradient written out for all levels at once."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stochflow.models.body import PrefixBody
from stochflow.models.prefixes import PrefixTree, climbed_sums


class Recorder:
    """Evaluates body and heads at the nodes of a tree, and keeps what was computed for the gradient.

    It holds for the weights as they are: after an update nothing of it is true any more.

    Attributes:
        tree: whose nodes are evaluated; somebody else lets it grow.
        weights: all that a gradient is wanted for: embedding, start, the trunk's, the heads'.
    """

    def __init__(self, body: PrefixBody, heads: list[Tensor], tree: PrefixTree, num_complete: int = 0) -> None:
        """The first levels of the tree are there, but nothing of them is evaluated yet.

        Args:
            heads: W and b of the heads, which stand side by side in the outputs; [n, width] and [n] each.
            num_complete: levels after the first that hold all prefixes there are.
        """
        self.tree, self._body = tree, body
        self._trunk = body.trunk_weights
        self.weights = [body.embedding.weight, body.start, *self._trunk, *heads]
        self._head_sizes = [len(weight) for weight in heads[::2]]
        self._head_weight, self._head_bias = (torch.cat(heads[kind::2]).detach() for kind in (0, 1))
        self._sums, self._indices = body.complete_sums(num_complete)  # per level; per level after the first
        self._made: list[list[Tensor]] = []  # per call of `evaluate`, the activations
        self._outputs: list[Tensor] = []  # per evaluated level, [num_nodes, n]

    @property
    def num_levels(self) -> int:
        """Levels that were evaluated."""
        return len(self._outputs)

    @property
    def num_grown(self) -> int:
        """Levels whose first layer is known."""
        return len(self._sums)

    @torch.no_grad()
    def grow(self) -> None:
        """The first layer of the next level, which the tree has."""
        depth = len(self._sums)
        indices = self._body.last_indices(self.tree.node_columns(depth))
        self._indices.append(indices)
        self._sums.append(self._body.add(self.tree.inherited(self._sums[-1], depth), indices))

    @torch.no_grad()
    def evaluate(self) -> None:
        """Everything behind the first layer, for all levels that have grown since the last time."""
        levels = self._sums[len(self._outputs) :]
        made = self._body.activations(levels[0] if len(levels) == 1 else torch.cat(levels), self._trunk)
        outputs = torch.addmm(self._head_bias, made[-1], self._head_weight.t())
        self._made.append(made)
        self._outputs += [outputs] if len(levels) == 1 else outputs.split([len(level) for level in levels])

    def outputs(self, level: int) -> Tensor:
        """The heads of an evaluated level, without gradient, [num_nodes, n]."""
        return self._outputs[level]

    def heads(self) -> Tensor:
        """The heads at all nodes, level by level, with gradient, [num_nodes, n]."""
        heads: Tensor = _TreeHeads.apply(self, *self.weights)  # type: ignore[no-untyped-call]  # torch
        return heads

    def all_outputs(self) -> Tensor:
        """The same without gradient."""
        return torch.cat(self._outputs)

    def gradients(self, grad: Tensor) -> list[Tensor]:
        """The gradient in `weights` from that in `heads`."""
        made = (
            self._made[0] if len(self._made) == 1 else [torch.cat(levels) for levels in zip(*self._made, strict=True)]
        )
        sums = torch.cat(self._sums)
        head_weights = (grad.t() @ made[-1]).split(self._head_sizes)
        head_biases = grad.sum(dim=0).split(self._head_sizes)
        heads = [part for pair in zip(head_weights, head_biases, strict=True) for part in pair]
        first, *trunk = self._body.gradients(grad @ self._head_weight, sums, self._trunk, made)
        num_rows = len(self._body.embedding.weight)
        return [*climbed_sums(first, self._indices, self.tree, num_rows), *trunk, *heads]


class _TreeHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Recorder, *weights: Tensor) -> Tensor:
        ctx.recorder = recorder
        return recorder.all_outputs()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.recorder.gradients(grad)
