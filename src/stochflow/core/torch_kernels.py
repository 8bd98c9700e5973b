"""Torch operators that are not part of its public interface, each with a fallback made of public ones.

They write into given memory, or do in one call what the public functions do in several; on small batches that halves
the time of a step. Where a release of torch has one of them no longer, or with another signature, the fallback takes
its place, and `IN_USE` says so.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

NORM_EPSILON = 1e-5
# those of torch.optim.Adam: decay of the mean and of the square, and what is added to the root
BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-8


def _found(*path: str) -> Callable[..., Any] | None:
    """The operator below `torch`, by its names; None where there is none."""
    found: Any = torch
    for name in path:
        try:
            found = getattr(found, name)
        except (AttributeError, RuntimeError):
            return None
    return found


_OPERATORS = {
    "gelu_backward": _found("ops", "aten", "gelu_backward", "grad_input"),
    "threshold_backward": _found("ops", "aten", "threshold_backward", "grad_input"),
    "native_layer_norm": _found("ops", "aten", "native_layer_norm", "out"),
    "native_layer_norm_backward": _found("ops", "aten", "native_layer_norm_backward", "default"),
    "_log_softmax_backward_data": _found("ops", "aten", "_log_softmax_backward_data", "default"),
    "_fused_adam_": _found("_fused_adam_"),
}
# True where torch's own operator is used, False where its fallback is
IN_USE = {name: operator is not None for name, operator in _OPERATORS.items()}


def _operator(name: str) -> Callable[..., Any] | None:
    return _OPERATORS[name] if IN_USE[name] else None


def gelu_into(inputs: Tensor, out: Tensor) -> Tensor:
    """GELU(x), written into `out`; same shape."""
    if IN_USE["gelu_backward"]:  # releases that have the one take `out` here
        gelu: Callable[..., Tensor] = functional.gelu
        return gelu(inputs, out=out)
    return out.copy_(functional.gelu(inputs))


def gelu_backward_into(grad: Tensor, inputs: Tensor, out: Tensor) -> Tensor:
    """grad·GELU'(x), written into `out`, which may be `grad`; same shape."""
    if (operator := _operator("gelu_backward")) is not None:
        return operator(grad, inputs, grad_input=out)
    cumulative = 0.5 * (1.0 + torch.erf(inputs * math.sqrt(0.5)))
    density = torch.exp(-0.5 * inputs.square()) / math.sqrt(2.0 * math.pi)
    return torch.mul(grad, cumulative + inputs * density, out=out)


def relu_backward_into(grad: Tensor, outputs: Tensor, out: Tensor) -> Tensor:
    """grad·[ReLU(x) > 0], written into `out`, which may be `grad`; same shape."""
    if (operator := _operator("threshold_backward")) is not None:
        return operator(grad, outputs, 0.0, grad_input=out)
    return torch.mul(grad, outputs > 0, out=out)


def layer_norm_into(inputs: Tensor, scale: Tensor, shift: Tensor, out: Sequence[Tensor]) -> None:
    """Layer norm over the last dimension.

    Args:
        inputs: [rows, width].
        out: for the result, [rows, width], the mean and 1/spread, [rows, 1] each.
    """
    normed, mean, inverse = out
    if (operator := _operator("native_layer_norm")) is not None:
        operator(inputs, inputs.shape[-1:], scale, shift, NORM_EPSILON, out0=normed, out1=mean, out2=inverse)
        return
    variance, means = torch.var_mean(inputs, dim=-1, correction=0, keepdim=True)
    mean.copy_(means)
    inverse.copy_((variance + NORM_EPSILON).rsqrt())
    normed.copy_((inputs - mean) * inverse * scale + shift)


def layer_norm_backward(
    grad: Tensor, inputs: Tensor, statistics: tuple[Tensor, Tensor], scale: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the inputs, [rows, width], the scale and the shift, [width] each.

    Args:
        grad: in the result, [rows, width].
        statistics: mean and 1/spread as `layer_norm_into` wrote them, [rows, 1] each.
    """
    mean, inverse = statistics
    if (operator := _operator("native_layer_norm_backward")) is not None:
        found = operator(grad, inputs, inputs.shape[-1:], mean, inverse, scale, shift, [True, True, True])
        return found[0], found[1], found[2]
    normalised = (inputs - mean) * inverse
    inner = grad * scale
    centred = inner - inner.mean(dim=-1, keepdim=True)
    centred = centred - normalised * (inner * normalised).mean(dim=-1, keepdim=True)
    return centred * inverse, (grad * normalised).sum(dim=0), grad.sum(dim=0)


def log_softmax_backward(grad: Tensor, log_probs: Tensor) -> Tensor:
    """Gradient in the logits from that in log softmax over the last dimension; same shape."""
    if (operator := _operator("_log_softmax_backward_data")) is not None:
        found: Tensor = operator(grad, log_probs, -1, log_probs.dtype)
        return found
    return grad - log_probs.exp() * grad.sum(dim=-1, keepdim=True)


def adam_step(
    weights: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], num_steps: Tensor, learning_rate: float
) -> None:
    """One step of Adam in place; all [num] but `num_steps`, which counts this one."""
    first, second = moments
    if (operator := _operator("_fused_adam_")) is not None:
        # what torch.optim.Adam calls in the end: on its way there are as many operations again
        options = {"weight_decay": 0.0, "eps": ADAM_EPSILON, "amsgrad": False, "maximize": False}
        rates = {"lr": learning_rate, "beta1": BETA_1, "beta2": BETA_2}
        operator([weights], [gradient], [first], [second], [], [num_steps], **rates, **options)
        return
    steps = float(num_steps)
    first.lerp_(gradient, 1.0 - BETA_1)
    second.mul_(BETA_2).addcmul_(gradient, gradient, value=1.0 - BETA_2)
    spread = (second.sqrt() / math.sqrt(1.0 - BETA_2**steps)).add_(ADAM_EPSILON)
    weights.addcdiv_(first, spread, value=-learning_rate / (1.0 - BETA_1**steps))
