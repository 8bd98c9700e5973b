"""The layers behind the first one with hand-written gradients: few operations, and none twice.

Two kinds. Residual: h₀ = gelu(norm(s)), h_{i+1} = h_i + gelu(W_i·h_i + b_i). Plain: h₀ = relu(s),
h_{i+1} = relu(W_i·h_i + b_i).

Products are made in the precision of the matrices that are given, see `lowered`; everything else stays in that of the
sums.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stochflow.core.torch_kernels import (
    gelu_backward_into,
    gelu_into,
    layer_norm_backward,
    layer_norm_into,
    relu_backward_into,
)

Weights = Sequence[Tensor]


def residual_widths(width: int, num_layers: int) -> list[int]:
    """Columns of everything that `residual_activations` writes."""
    return [1, 1, *[width] * (2 + 2 * num_layers)]


def plain_widths(width: int, num_layers: int) -> list[int]:
    """Columns of everything that `plain_activations` writes."""
    return [width] * (1 + num_layers)


def residual_activations(sums: Tensor, weights: Weights, into: Sequence[Tensor]) -> None:
    """Write everything that the residual kind computes, its features last.

    Args:
        sums: [rows, width].
        weights: scale and shift of the norm, [width]; then Wᵀ and b of every layer, [width, width] and [width].
        into: for the mean and 1/spread of the norm, [rows, 1] each; norm(s), h₀; then W_i·h_i + b_i, h_{i+1} of every
            layer; [rows, width] each.
    """
    mean, inverse, normed, hidden = into[:4]
    layer_norm_into(sums, weights[0], weights[1], (normed, mean, inverse))
    gelu_into(normed, hidden)
    for columns, bias, inner, following in zip(weights[2::2], weights[3::2], into[4::2], into[5::2], strict=True):
        _linear_into(bias, hidden, columns, inner)
        torch.add(hidden, gelu_into(inner, following), out=following)
        hidden = following


def plain_activations(sums: Tensor, weights: Weights, into: Sequence[Tensor]) -> None:
    """Write h₀, h₁, … of the plain kind, [rows, width] each; the weights are Wᵀ and b of every layer."""
    torch.clamp_min(sums, 0.0, out=into[0])
    for columns, bias, hidden, following in zip(weights[::2], weights[1::2], into, into[1:], strict=False):
        _linear_into(bias, hidden, columns, following).relu_()


def _linear_into(bias: Tensor, inputs: Tensor, columns: Tensor, out: Tensor) -> Tensor:
    """Write inputs·columns + bias; [rows, width] and [width, width] → [rows, width]."""
    if columns.dtype == inputs.dtype:
        return torch.addmm(bias, inputs, columns, out=out)
    return torch.add(bias, torch.mm(inputs.to(columns.dtype), columns), out=out)


def _add_product(into: Tensor, left: Tensor, right: Tensor, precision: torch.dtype) -> None:
    """Add left·right, multiplied in some precision, to what is there."""
    if precision == into.dtype:
        into.addmm_(left, right)
    else:
        into.add_(torch.mm(left.to(precision), right.to(precision)))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left·right, multiplied in the precision of the right one and returned in that of the left."""
    if left.dtype == right.dtype:
        return torch.mm(left, right)
    return torch.mm(left.to(right.dtype), right).to(left.dtype)


def lowered(weights: Weights, precision: torch.dtype | None) -> Weights:
    """The weights with their matrices in a precision of products; as they are for None."""
    if precision is None:
        return weights
    return [weight.to(precision) if weight.ndim == 2 else weight for weight in weights]


def transposed(weights: Weights) -> list[Tensor]:
    """What `residual_activations` and `plain_activations` read, of what the gradients are taken in."""
    return [weight.t() for weight in weights]  # a vector stays what it is


def add_residual_gradients(
    grad: Tensor, sums: Tensor, weights: Weights, made: Sequence[Tensor], into: Weights
) -> Tensor:
    """Add the gradient of the residual kind in its weights to what is there; returns that in the sums, [rows, width].

    Args:
        grad: in the features, [rows, width]; it is used up.
        weights: scale and shift of the norm, then W and b of every layer.
        made: what `residual_activations` wrote for the sums.
        into: one tensor per weight, of its shape.
    """
    mean, inverse, normed, *hidden = made
    ones, inner_grad = grad.new_ones(grad.shape[0]), torch.empty_like(grad)
    layers = zip(weights[-2:1:-2], into[-2:1:-2], into[-1:2:-2], hidden[-3::-2], hidden[-2::-2], strict=True)
    for weight, into_weight, into_bias, before, inner in layers:
        gelu_backward_into(grad, inner, inner_grad)
        _add_product(into_weight, inner_grad.t(), before, weight.dtype)
        into_bias.addmv_(inner_grad.t(), ones)
        _add_product(grad, inner_grad, weight, weight.dtype)
    gelu_backward_into(grad, normed, grad)
    before_norm, scale, shift = layer_norm_backward(grad, sums, (mean, inverse), weights[0], weights[1])
    into[0].add_(scale)
    into[1].add_(shift)
    return before_norm


def add_plain_gradients(grad: Tensor, sums: Tensor, weights: Weights, made: Sequence[Tensor], into: Weights) -> Tensor:
    """The same for the plain kind, which has no norm and needs no sums."""
    for number in range(len(weights) // 2 - 1, -1, -1):
        grad = relu_backward_into(grad, made[number + 1], grad)
        weight = weights[2 * number]
        _add_product(into[2 * number], grad.t(), made[number], weight.dtype)
        into[2 * number + 1].add_(grad.sum(dim=0))
        grad = _product(grad, weight)
    return relu_backward_into(grad, made[0], grad)


class Trunk(NamedTuple):
    """One kind of layers: what it keeps of a forward pass, that pass, and its gradient.

    Attributes:
        widths: columns of everything that `activations` writes, from the width and the number of layers.
        activations: see `residual_activations`.
        add_gradients: see `add_residual_gradients`.
    """

    widths: Callable[[int, int], list[int]]
    activations: Callable[[Tensor, Weights, Sequence[Tensor]], None]
    add_gradients: Callable[[Tensor, Tensor, Weights, Sequence[Tensor], Weights], Tensor]


RESIDUAL = Trunk(residual_widths, residual_activations, add_residual_gradients)
PLAIN = Trunk(plain_widths, plain_activations, add_plain_gradients)


class TrunkFeatures(torch.autograd.Function):
    """Features of summed embeddings, [rows, width] → [rows, width], with the hand-written gradient of a trunk."""

    @staticmethod
    def forward(ctx: Any, trunk: Trunk, precision: torch.dtype | None, sums: Tensor, *weights: Tensor) -> Tensor:
        """The weights are those of `add_gradients`, not yet `lowered`."""
        num_layers = sum(weight.ndim == 2 for weight in weights)
        made = [sums.new_empty(len(sums), n) for n in trunk.widths(sums.shape[-1], num_layers)]
        trunk.activations(sums, transposed(lowered(weights, precision)), made)
        ctx.save_for_backward(sums, *weights, *made)
        ctx.num_weights, ctx.trunk, ctx.precision = len(weights), trunk, precision
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, *saved = ctx.saved_tensors
        weights, made = saved[: ctx.num_weights], saved[ctx.num_weights :]
        into = [torch.zeros_like(weight) for weight in weights]
        before = ctx.trunk.add_gradients(grad.clone(), sums, lowered(weights, ctx.precision), made, into)
        return None, None, before, *into
