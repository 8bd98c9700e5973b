"""The residual MLP of the body with its gradient written out: few operations, and none twice."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_gelu, _gelu_backward = torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default
_layer_norm = torch.ops.aten.native_layer_norm.default
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default
_EPSILON = 1e-5


def activations(sums: Tensor, norm: tuple[Tensor, Tensor], layers: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Everything the trunk computes of summed embeddings, its features last.

    h₀ = gelu(norm(sums)), h_{i+1} = h_i + gelu(W_i·h_i + b_i).

    Args:
        sums: [rows, width].
        norm: scale and shift of the layer norm, [width] each.
        layers: W and b of every layer, [width, width] and [width].

    Returns:
        mean and 1/spread of the norm, [rows, 1] each; norm(sums), h₀; then W_i·h_i + b_i, h_{i+1} of every layer;
        [rows, width] each.
    """
    normed, mean, scale = _layer_norm(sums, sums.shape[-1:], *norm, _EPSILON)
    made = [mean, scale, normed, _gelu(normed)]
    for weight, bias in layers:
        inner = torch.addmm(bias, made[-1], weight.t())
        made += [inner, made[-1] + _gelu(inner)]
    return made


class Trunk(torch.autograd.Function):
    """Features of summed embeddings; what sampling has computed at the same weights can be handed in."""

    @staticmethod
    def forward(ctx: Any, known: list[Tensor] | None, sums: Tensor, *weights: Tensor) -> Tensor:
        """[rows, width] → [rows, width].

        Args:
            known: `activations` of these sums; None to compute them.
            weights: scale and shift of the norm, then W and b of every layer.
        """
        layers = list(zip(weights[2::2], weights[3::2], strict=True))
        made = activations(sums, (weights[0], weights[1]), layers) if known is None else known
        ctx.save_for_backward(sums, *weights, *made)
        ctx.num_weights = len(weights)
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, *saved = ctx.saved_tensors
        weights, (mean, scale, normed, *made) = saved[: ctx.num_weights], saved[ctx.num_weights :]
        grads: list[Tensor] = []
        for weight, hidden, inner in zip(weights[-2:1:-2], made[-3::-2], made[-2::-2], strict=True):
            inner_grad = _gelu_backward(grad, inner)
            grads = [inner_grad.t() @ hidden, inner_grad.sum(dim=0), *grads]
            grad = torch.addmm(grad, inner_grad, weight)
        grad = _gelu_backward(grad, normed)
        norm_grads = _layer_norm_backward(
            grad, sums, sums.shape[-1:], mean, scale, weights[0], weights[1], [True, True, True]
        )
        return None, *norm_grads, *grads
