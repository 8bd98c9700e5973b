"""The residual MLPs of several runs, with the gradient written out: fewer operations than autograd makes of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from stochflow.models.trunk import NORM_EPSILON

Array = npt.NDArray[Any]

_gelu_into: Callable[..., Tensor] = functional.gelu
_gelu_backward_into = torch.ops.aten.gelu_backward.grad_input


def stacked_widths(width: int, num_layers: int) -> list[int]:
    """Columns of everything that `stacked_activations` writes."""
    return [1, *[width] * (3 + 2 * num_layers)]


class Both(NamedTuple):
    """Numbers in memory as torch and as numpy see them: what is small is computed by numpy, in less time."""

    tensor: Tensor
    array: Array

    @classmethod
    def of(cls, tensor: Tensor) -> "Both":
        return cls(tensor, tensor.detach().numpy())


def stacked_activations(sums: Tensor, weights: Sequence[Both], into: Sequence[Both]) -> None:
    """Write everything the layers make of sums [runs, rows, width], their features last.

    Args:
        weights: scale and shift of the norm, [runs, 1, width]; then W and b of every layer, [runs, width, width] and
            [runs, 1, width].
        into: for 1/spread of the norm, [runs, rows, 1]; the standardised sums, norm(sums), h₀; then W_i·h_i + b_i and
            h_{i+1} of every layer, [runs, rows, width] each.
    """
    (inverse, numbers), standard, normed, hidden = into[0], into[1].tensor, into[2].tensor, into[3]
    # by hand: the norm of torch knows no weights by run, and takes twice the time
    torch.sum(sums, dim=-1, keepdim=True, out=inverse)
    width = sums.shape[-1]
    numbers /= width
    torch.sub(sums, inverse, out=standard)
    torch.linalg.vector_norm(standard, dim=-1, keepdim=True, out=inverse)
    numbers[:] = 1.0 / np.sqrt(numbers * numbers / width + NORM_EPSILON)
    standard.mul_(inverse)
    torch.addcmul(weights[1].tensor, standard, weights[0].tensor, out=normed)
    _gelu_into(normed, out=hidden.tensor)
    for weight, bias, inner, following in zip(weights[2::2], weights[3::2], into[4::2], into[5::2], strict=True):
        stacked_linear(hidden, weight, bias, inner)
        torch.add(hidden.tensor, _gelu_into(inner.tensor, out=following.tensor), out=following.tensor)
        hidden = following


def stacked_linear(inputs: Both, weight: Both, bias: Both, into: Both) -> None:
    """Write W·x + b of every run; [runs, rows, m], [runs, n, m] and [runs, 1, n] → [runs, rows, n].

    Products of a few rows or columns take numpy half of torch's time, and sums twice.
    """
    np.matmul(inputs.array, weight.array.swapaxes(1, 2), out=into.array)
    into.tensor.add_(bias.tensor)


def stacked_gradients(
    grad: Both, weights: Sequence[Both], made: Sequence[Both], into: Sequence[Both], spare: Both
) -> None:
    """Write the gradient in the weights, and turn that in the features into that in the sums.

    Args:
        grad: in the features, afterwards in the sums, [runs, rows, width].
        weights: those of `stacked_activations`.
        made: what it wrote.
        into: one tensor per weight, of its shape.
        spare: room of the shape of `grad`.
    """
    inverse, standard, normed, *hidden = made
    layers = zip(weights[-2:1:-2], into[-2:1:-2], into[-1:2:-2], hidden[-3::-2], hidden[-2::-2], strict=True)
    into_sums, behind = grad.tensor, spare.tensor
    for weight, into_weight, into_bias, before, inner in layers:
        _gelu_backward_into(into_sums, inner.tensor, grad_input=behind)
        # by numpy, in four fifths of torch's time; column by column, as the weights are in memory
        np.matmul(before.array.swapaxes(1, 2), spare.array, out=into_weight.array.swapaxes(1, 2))
        torch.sum(behind, dim=1, keepdim=True, out=into_bias.tensor)
        into_sums.baddbmm_(behind, weight.tensor)
    _gelu_backward_into(into_sums, normed.tensor, grad_input=into_sums)
    torch.mul(into_sums, standard.tensor, out=behind)
    torch.sum(behind, dim=1, keepdim=True, out=into[0].tensor)
    torch.sum(into_sums, dim=1, keepdim=True, out=into[1].tensor)
    # with g = grad·scale: (g − mean g − standard·mean(g·standard))/spread; sums by numpy, in a third of torch's time
    scale, share = weights[0].array.swapaxes(1, 2), -1.0 / into_sums.shape[-1]
    mean, stretch = (torch.from_numpy(np.matmul(each.array, scale)) for each in (grad, spare))
    into_sums.mul_(weights[0].tensor).add_(mean, alpha=share).addcmul_(standard.tensor, stretch, value=share)
    into_sums.mul_(inverse.tensor)


class StackedTrunk(torch.autograd.Function):
    """h₀ = gelu(norm(sums)), h_{i+1} = h_i + gelu(W_i·h_i + b_i), each run with its own weights."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, *weights: Tensor) -> Tensor:
        """[runs, rows, width] → the same; see `stacked_activations`."""
        widths = stacked_widths(sums.shape[-1], len(weights) // 2 - 1)
        made = [sums.new_empty(*sums.shape[:2], width) for width in widths]
        stacked_activations(sums, [*map(Both.of, weights)], [*map(Both.of, made)])
        ctx.save_for_backward(*weights, *made)
        ctx.num_weights = len(weights)
        return made[-1].view_as(made[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        saved = [*map(Both.of, ctx.saved_tensors)]
        weights, made = saved[: ctx.num_weights], saved[ctx.num_weights :]
        into = [Both.of(torch.empty_like(weight.tensor)) for weight in weights]
        before = Both.of(grad.clone(memory_format=torch.contiguous_format))
        stacked_gradients(before, weights, made, into, Both.of(torch.empty_like(before.tensor)))
        return before.tensor, *(each.tensor for each in into)
