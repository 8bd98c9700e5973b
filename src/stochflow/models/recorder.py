"""The network on a tree of prefixes, level by level, with its gradient written out for all levels at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stochflow.logmath import masked_log_softmax
from stochflow.models.body import PrefixBody
from stochflow.models.prefixes import PrefixTree, climb

_log_softmax_backward = torch.ops.aten._log_softmax_backward_data.default
_state = threading.local()


@contextmanager
def gradients_in_place() -> Iterator[None]:
    """While this lasts, what is written out is added to the `grad` of the weights by itself, not returned to autograd.

    For `Tensor.backward` alone, and for weights that have a `grad`: it saves a copy of all weights.
    """
    _state.in_place = True
    try:
        yield
    finally:
        _state.in_place = False


class Recorder:
    """Evaluates body and heads at the nodes of a tree, and keeps what was computed for the gradient.

    It holds for the weights as they are: after an update nothing of it is true any more. All but `heads` is to be
    called without autograd.

    Attributes:
        tree: whose nodes are evaluated; somebody else lets it grow.
    """

    def __init__(self, body: PrefixBody, heads: list[Tensor], tree: PrefixTree, num_complete: int = 0) -> None:
        """The first levels of the tree are there, but nothing of them is evaluated yet.

        Args:
            heads: W and b of the heads for π, π_B and log F; [n, width] and [n] each.
            num_complete: levels after the first that hold all prefixes there are.
        """
        self.tree, self._body = tree, body
        self._trunk = body.trunk_weights
        # all that a gradient is wanted for
        self._weights = [body.embedding.weight, body.start, *self._trunk, *heads]
        self._sizes = [len(weight) for weight in heads[::2]]
        self._head_weight, self._head_bias = (torch.cat(heads[kind::2]) for kind in (0, 1))
        self._head_columns = self._head_weight.t()
        first, self._indices = body.complete_sums(num_complete)  # indices: per level after the first
        self._sums = [first]  # of one or more levels each
        self._num_grown, self.num_levels = 1 + num_complete, 0
        self._made: list[list[Tensor]] = []  # per element of `sums`, the activations
        self._outputs: list[Tensor] = []  # per element of `sums`, the heads, [num_nodes, n]
        self._levels: list[Tensor] = []  # per level

    @property
    def needs_growth(self) -> bool:
        """True when the tree has a level whose first layer is not known."""
        return self._num_grown == self.tree.depth

    def grow(self) -> None:
        """The first layer of the next level, which the tree has."""
        depth = self._num_grown
        indices = self._body.last_indices(self.tree.node_columns(depth))
        before = self._sums[-1]
        if len(before) != self.tree.sizes[depth - 1]:
            before = before[len(before) - self.tree.sizes[depth - 1] :]
        self._indices.append(indices)
        self._sums.append(self._body.add(self.tree.inherited(before, depth), indices))
        self._num_grown += 1

    def evaluate(self) -> None:
        """Everything behind the first layer, for all levels that have grown since the last time."""
        sums = self._sums[len(self._outputs) :]
        if len(sums) > 1:  # from now on one element for all of them
            sums = [torch.cat(sums)]
            self._sums[len(self._outputs) :] = sums
        made = self._body.activations(sums[0], self._trunk)
        outputs = torch.addmm(self._head_bias, made[-1], self._head_columns)
        self._made.append(made)
        self._outputs.append(outputs)
        sizes = self.level_sizes(self.num_levels, self._num_grown)
        self._levels += [outputs] if len(sizes) == 1 else outputs.split(sizes)
        self.num_levels = self._num_grown

    def level_sizes(self, first: int, last: int) -> list[int]:
        """Nodes per level, complete levels that the tree has not reached yet included."""
        known = self.tree.sizes[first:last]
        for level in range(first + len(known), last):
            known.append(self.tree.num_tokens**level)
        return known

    def logits(self, level: int) -> Tensor:
        """Of π at an evaluated level, without gradient, [num_nodes, K]."""
        return self._levels[level][:, : self._sizes[0]]

    def heads(self, allowed: Tensor | None, log_completions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log π, log π_B and log F at every row on all evaluated levels, [batch, levels, ...].

        Args:
            allowed: what a mask says of the intentions, [batch, levels, K].
            log_completions: what is added to the head of log F, [levels] or [batch, levels].
        """
        return _Heads.apply(self, allowed, log_completions, *self._weights)  # type: ignore[no-untyped-call]  # torch

    def rows(self) -> npt.NDArray[Any]:
        """The heads at every row on all evaluated levels side by side, without gradient, [batch, levels, n]."""
        return self.outputs().numpy()[self.tree.nodes(self.num_levels).numpy()]

    def loss(self, value: float, grad: Tensor) -> Tensor:
        """A scalar of this value, whose gradient in `rows` is known; [batch, levels, n] → []."""
        loss: Tensor = _Loss.apply(self, value, grad, *self._weights)  # type: ignore[no-untyped-call]  # torch
        return loss

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three heads in what stands side by side; [..., n] → [..., K], [..., K], [...]."""
        num_policy, num_backward, _ = self._sizes
        return rows[..., :num_policy], rows[..., num_policy : num_policy + num_backward], rows[..., -1]

    def outputs(self) -> Tensor:
        """The heads at all evaluated nodes side by side, [num_nodes, n]."""
        return self._outputs[0] if len(self._outputs) == 1 else torch.cat(self._outputs)

    def gradients(self, rows: Tensor) -> list[Tensor] | None:
        """The gradient in all weights from that in `rows`; None if it was added to what the weights have."""
        nodes = self.tree.nodes(self.num_levels)
        grad = rows.new_zeros(sum(map(len, self._outputs)), rows.shape[-1])
        grad.index_add_(0, nodes.flatten(), rows.flatten(0, 1))
        into: list[Tensor] = []
        if getattr(_state, "in_place", False):
            into = [weight.grad for weight in self._weights if weight.grad is not None]
        in_place = len(into) == len(self._weights)
        if not in_place:
            into = [torch.zeros_like(weight) for weight in self._weights]
        made = [levels[0] if len(levels) == 1 else torch.cat(levels) for levels in zip(*self._made, strict=True)]
        num_heads = 2 * len(self._sizes)
        heads = zip((grad.t() @ made[-1]).split(self._sizes), grad.sum(dim=0).split(self._sizes), strict=True)
        torch._foreach_add_(into[-num_heads:], [part for pair in heads for part in pair])
        first = self._body.add_gradients(
            grad @ self._head_weight, self._sums, self._trunk, made, into[2 : len(into) - num_heads]
        )
        climb(first, self._indices, self.tree, into[0], into[1])
        return None if in_place else into


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, recorder: Recorder, allowed: Tensor | None, log_completions: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        rows = torch.nn.functional.embedding(recorder.tree.nodes(recorder.num_levels), recorder.outputs())
        policy, backward, flow = recorder.split(rows)
        log_policy, log_backward = masked_log_softmax(policy, allowed), torch.log_softmax(backward, dim=-1)
        # other views of the same numbers: what is returned would hold on to itself
        ctx.normalised = log_policy.detach(), log_backward.detach()
        ctx.recorder, ctx.allowed, ctx.shape, ctx.num_weights = recorder, allowed, rows.shape, len(weights)
        return log_policy, log_backward, flow + log_completions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        rows = ctx.normalised[0].new_zeros(ctx.shape)
        policy, backward, flow = ctx.recorder.split(rows)
        if grads[2] is not None:
            flow.copy_(grads[2])
        for number, (part, log_probs) in enumerate(zip((policy, backward), ctx.normalised, strict=True)):
            grad = grads[number]
            if grad is not None:
                if number == 0 and ctx.allowed is not None:
                    grad = grad.masked_fill(~ctx.allowed, 0.0)
                part.copy_(_log_softmax_backward(grad, log_probs, -1, log_probs.dtype))
        return None, None, None, *_returned(ctx.recorder.gradients(rows), ctx.num_weights)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Recorder, value: float, grad: Tensor, *weights: Tensor) -> Tensor:
        ctx.recorder, ctx.grad, ctx.num_weights = recorder, grad, len(weights)
        return grad.new_tensor(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *_returned(ctx.recorder.gradients(ctx.grad * grad), ctx.num_weights)


def _returned(gradients: list[Tensor] | None, num: int) -> list[Tensor | None]:
    return [None] * num if gradients is None else [*gradients]
