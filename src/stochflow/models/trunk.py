"""The layers behind the first one with their gradient written out: few operations, and none twice.

Two kinds. Residual: h₀ = gelu(norm(s)), h_{i+1} = h_i + gelu(W_i·h_i + b_i). Plain: h₀ = relu(s),
h_{i+1} = relu(W_i·h_i + b_i).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_gelu, _gelu_backward = torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default
_relu_backward = torch.ops.aten.threshold_backward.default
_layer_norm = torch.ops.aten.native_layer_norm.default
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default
NORM_EPSILON = 1e-5

Layers = list[tuple[Tensor, Tensor]]


def residual_activations(sums: Tensor, scale: Tensor, shift: Tensor, layers: Layers) -> list[Tensor]:
    """Everything that the residual kind computes, its features last.

    Args:
        sums: [rows, width].
        scale, shift: of the norm, [width].
        layers: W and b of every layer, [width, width] and [width].

    Returns:
        mean and 1/spread of the norm, [rows, 1] each; norm(s), h₀; then W_i·h_i + b_i, h_{i+1} of every layer;
        [rows, width] each.
    """
    normed, mean, inverse = _layer_norm(sums, sums.shape[-1:], scale, shift, NORM_EPSILON)
    made = [mean, inverse, normed, _gelu(normed)]
    for weight, bias in layers:
        inner = functional.linear(made[-1], weight, bias)
        made += [inner, made[-1] + _gelu(inner)]
    return made


def plain_activations(sums: Tensor, layers: Layers) -> list[Tensor]:
    """h₀, h₁, … of the plain kind, [rows, width] each."""
    made = [sums.relu()]
    for weight, bias in layers:
        made.append(functional.linear(made[-1], weight, bias).relu_())
    return made


class ResidualTrunk(torch.autograd.Function):
    """Features of summed embeddings; what sampling has computed at the same weights can be handed in."""

    @staticmethod
    def forward(ctx: Any, known: list[Tensor] | None, sums: Tensor, *weights: Tensor) -> Tensor:
        """[rows, width] → [rows, width].

        Args:
            known: the activations of these sums; None to compute them.
            weights: scale and shift of the norm, then W and b of every layer.
        """
        scale, shift, *others = weights
        made = residual_activations(sums, scale, shift, _pairs(others)) if known is None else known
        ctx.save_for_backward(sums, *weights, *made)
        ctx.num_weights = len(weights)
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, *saved = ctx.saved_tensors
        weights, (mean, inverse, normed, *made) = saved[: ctx.num_weights], saved[ctx.num_weights :]
        grads: list[Tensor] = []
        for weight, hidden, inner in zip(weights[-2:1:-2], made[-3::-2], made[-2::-2], strict=True):
            inner_grad = _gelu_backward(grad, inner)
            grads = [inner_grad.t() @ hidden, inner_grad.sum(dim=0), *grads]
            grad = torch.addmm(grad, inner_grad, weight)
        grad = _gelu_backward(grad, normed)
        wanted = [True, True, True]
        norm = (sums.shape[-1:], mean, inverse, weights[0], weights[1])
        return None, *_layer_norm_backward(grad, sums, *norm, wanted), *grads


class PlainTrunk(torch.autograd.Function):
    """The same for the plain kind, without a norm."""

    @staticmethod
    def forward(ctx: Any, known: list[Tensor] | None, sums: Tensor, *weights: Tensor) -> Tensor:
        made = plain_activations(sums, _pairs(weights)) if known is None else known
        ctx.save_for_backward(*weights[::2], *made)
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        num_layers = len(ctx.saved_tensors) // 2
        weights, made = ctx.saved_tensors[:num_layers], ctx.saved_tensors[num_layers:]
        grads: list[Tensor] = []
        for number in range(num_layers - 1, -1, -1):
            inner_grad = _relu_backward(grad, made[number + 1], 0.0)
            grads = [inner_grad.t() @ made[number], inner_grad.sum(dim=0), *grads]
            grad = inner_grad @ weights[number]
        return None, _relu_backward(grad, made[0], 0.0), *grads


def _pairs(weights: list[Tensor] | tuple[Tensor, ...]) -> Layers:
    return list(zip(weights[::2], weights[1::2], strict=True))
