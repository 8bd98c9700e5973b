"""The residual MLPs of several runs, with the gradient written out: fewer operations than autograd makes of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_layer_norm, _layer_norm_backward = torch.ops.aten.native_layer_norm, torch.ops.aten.native_layer_norm_backward
_gelu_backward = torch.ops.aten.gelu_backward


def stacked_activations(sums: Tensor, epsilon: float, weights: Sequence[Tensor]) -> list[Tensor]:
    """Everything the layers make of sums [runs, rows, width], their features last.

    Args:
        weights: scale and shift of the norm, [runs, width]; then W and b of every layer, [runs, width, width] and
            [runs, width].

    Returns:
        mean and 1/deviation, [runs, rows, 1]; then the standardised sums, norm(sums), h₀; then W_i·h_i + b_i and
        h_{i+1} of every layer, [runs, rows, width] each.
    """
    scale, shift, *layers = weights
    standard, mean, deviation = _layer_norm(sums, sums.shape[-1:], None, None, epsilon)
    normed = torch.addcmul(shift.unsqueeze(1), standard, scale.unsqueeze(1))
    made = [mean, deviation, standard, normed, functional.gelu(normed)]
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        inner = torch.baddbmm(bias.unsqueeze(1), made[-1], weight.mT)
        made += [inner, made[-1] + functional.gelu(inner)]
    return made


class StackedTrunk(torch.autograd.Function):
    """h₀ = gelu(norm(sums)), h_{i+1} = h_i + gelu(W_i·h_i + b_i), each run with its own weights."""

    @staticmethod
    def forward(ctx: Any, known: list[Tensor] | None, sums: Tensor, epsilon: float, *weights: Tensor) -> Tensor:
        """[runs, rows, width] → the same; see `stacked_activations`, which are `known` where sampling made them."""
        made = stacked_activations(sums, epsilon, weights) if known is None else known
        ctx.save_for_backward(sums, weights[0], *weights[2::2], *made)
        ctx.num_layers = len(weights) // 2 - 1
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sums, scale, *saved = ctx.saved_tensors
        weights, (mean, deviation, standard, normed, *made) = saved[: ctx.num_layers], saved[ctx.num_layers :]
        found: list[Tensor] = []
        for weight, hidden, inner in zip(weights[::-1], made[-3::-2], made[-2::-2], strict=True):
            behind = _gelu_backward(gradient, inner)
            found = [torch.bmm(behind.mT, hidden), behind.sum(dim=1), *found]
            gradient = torch.baddbmm(gradient, behind, weight)
        gradient = _gelu_backward(gradient, normed)
        norms = [(gradient * standard).sum(dim=1), gradient.sum(dim=1)]
        before, _, _ = _layer_norm_backward(
            gradient * scale.unsqueeze(1), sums, sums.shape[-1:], mean, deviation, None, None, [True, False, False]
        )
        return None, before, None, *norms, *found
