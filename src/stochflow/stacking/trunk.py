"""The residual MLPs of several runs, with the gradient written out: fewer operations than autograd makes of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stochflow.models.trunk import NORM_EPSILON

_layer_norm = torch.ops.aten.native_layer_norm.default
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default
_gelu, _gelu_backward = torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default


def stacked_activations(sums: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Everything the layers make of sums [runs, rows, width], their features last.

    Args:
        weights: scale and shift of the norm, [runs, width]; then W and b of every layer, [runs, width, width] and
            [runs, width].

    Returns:
        mean and 1/deviation, [runs, rows, 1]; then the standardised sums, norm(sums), h₀; then W_i·h_i + b_i and
        h_{i+1} of every layer, [runs, rows, width] each.
    """
    scale, shift, *layers = weights
    standard, mean, deviation = _layer_norm(sums, sums.shape[-1:], None, None, NORM_EPSILON)
    normed = torch.addcmul(shift.unsqueeze(1), standard, scale.unsqueeze(1))
    made = [mean, deviation, standard, normed, _gelu(normed)]
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        inner = torch.baddbmm(bias.unsqueeze(1), made[-1], weight.mT)
        made += [inner, made[-1] + _gelu(inner)]
    return made


def stacked_gradients(
    grad: Tensor, sums: Tensor, weights: Sequence[Tensor], made: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """The gradient in the sums, [runs, rows, width], and in the weights, from that in the features.

    Args:
        made: what `stacked_activations` made of the sums with these weights.
    """
    mean, deviation, standard, normed, *hidden = made
    found: list[Tensor] = []
    for weight, before, inner in zip(weights[-2:1:-2], hidden[-3::-2], hidden[-2::-2], strict=True):
        behind = _gelu_backward(grad, inner)
        found = [torch.bmm(behind.mT, before), behind.sum(dim=1), *found]
        grad = torch.baddbmm(grad, behind, weight)
    grad = _gelu_backward(grad, normed)
    norms = [(grad * standard).sum(dim=1), grad.sum(dim=1)]
    in_sums, _, _ = _layer_norm_backward(
        grad * weights[0].unsqueeze(1), sums, sums.shape[-1:], mean, deviation, None, None, [True, False, False]
    )
    return in_sums, [*norms, *found]


class StackedTrunk(torch.autograd.Function):
    """h₀ = gelu(norm(sums)), h_{i+1} = h_i + gelu(W_i·h_i + b_i), each run with its own weights."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, *weights: Tensor) -> Tensor:
        """[runs, rows, width] → the same; see `stacked_activations`."""
        made = stacked_activations(sums, weights)
        ctx.save_for_backward(sums, *weights, *made)
        ctx.num_weights = len(weights)
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        sums, *saved = ctx.saved_tensors
        before, found = stacked_gradients(grad, sums, saved[: ctx.num_weights], saved[ctx.num_weights :])
        return before, *found
