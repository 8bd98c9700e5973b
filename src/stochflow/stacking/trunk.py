"""The residual MLPs of several runs, with the gradient written out: fewer operations than autograd makes of it."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_layer_norm, _layer_norm_backward = torch.ops.aten.native_layer_norm, torch.ops.aten.native_layer_norm_backward
_gelu_backward = torch.ops.aten.gelu_backward


class StackedTrunk(torch.autograd.Function):
    """h₀ = gelu(norm(sums)), h_{i+1} = h_i + gelu(W_i·h_i + b_i), each run with its own weights."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, epsilon: float, *weights: Tensor) -> Tensor:
        """[runs, rows, width] → the same.

        Args:
            weights: scale and shift of the norm, [runs, width]; then W and b of every layer, [runs, width, width] and
                [runs, width].
        """
        scale, shift, *layers = weights
        standard, mean, deviation = _layer_norm(sums, sums.shape[-1:], None, None, epsilon)
        normed = torch.addcmul(shift.unsqueeze(1), standard, scale.unsqueeze(1))
        hidden = functional.gelu(normed)
        made = []
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            inner = torch.baddbmm(bias.unsqueeze(1), hidden, weight.mT)
            made += [hidden, inner]
            hidden = hidden + functional.gelu(inner)
        ctx.save_for_backward(sums, mean, deviation, standard, normed, scale, *layers[::2], *made)
        ctx.num_layers = len(layers) // 2
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sums, mean, deviation, standard, normed, scale, *saved = ctx.saved_tensors
        weights, made = saved[: ctx.num_layers], saved[ctx.num_layers :]
        found: list[Tensor] = []
        for weight, hidden, inner in zip(weights[::-1], made[-2::-2], made[::-2], strict=True):
            behind = _gelu_backward(gradient, inner)
            found = [torch.bmm(behind.mT, hidden), behind.sum(dim=1), *found]
            gradient = torch.baddbmm(gradient, behind, weight)
        gradient = _gelu_backward(gradient, normed)
        norms = [(gradient * standard).sum(dim=1), gradient.sum(dim=1)]
        before, _, _ = _layer_norm_backward(
            gradient * scale.unsqueeze(1), sums, sums.shape[-1:], mean, deviation, None, None, [True, False, False]
        )
        return before, None, *norms, *found
