"""Evaluations: outputs of a network at some states, and their gradient in its weights."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from stochflow.core.arrays import Array as Array

H = TypeVar("H", bound=tuple[Any, ...])


class AlongPaths(NamedTuple):
    """All states along the paths of a batch.

    Attributes:
        outcomes: [batch, time].
        valid: True where a step was taken, [batch, time].
        backward: "learned" or "uniform" to have π_B as well, None to do without.
        ends: True to have log F of the finished objects.
        intentions: what was meant on the way, [batch, time], for a network that reads it; None for others.
    """

    outcomes: Tensor
    valid: Tensor
    backward: str | None = None
    ends: bool = False
    intentions: Tensor | None = None


class AtPrefixes(NamedTuple):
    """One prefix per row, or all of them.

    Attributes:
        tokens: [rows, time].
        depths: how many of the tokens count, [rows]; None for every prefix, the empty one first.
        context: c of each row for a conditional network, [rows, context_width], or one for all, [context_width]; None
            for the network's own.
    """

    tokens: Tensor
    depths: Tensor | None = None
    context: Tensor | None = None


class Heads(NamedTuple):
    """Outputs for a batch of prefixes with any leading shape.

    Attributes:
        log_policy: log π(a|s), [..., K] (`pol_logits`).
        log_backward: log π_B(a|s'), which intention led into this state, [..., K] (`pol_back_logits`).
        log_flow: log F(s), [...] (`log_flows`).
    """

    log_policy: Tensor
    log_backward: Tensor
    log_flow: Tensor


class PathHeads(NamedTuple):
    """Outputs of a network along the paths of a batch, at the states s_t before every step.

    Attributes:
        log_policy: log π(·|s_t), [batch, time, A].
        log_flow: log F(s_t), [batch, time].
        log_backward: log π_B(s_t, ·|s_{t+1}) over intentions, [batch, time, A]; summed over them it is
            p_B(s_t|s_{t+1}). None where it was not requested.
        log_parent: log p_B(s_t|s_{t+1}), [batch, time]; None on a tree, where a state has one parent.
        log_end_flow: log F of the finished object as the flow head has it, [batch]; None where it was not requested.
        allowed: True for intentions that are possible in s_t, [batch, time, A]; None where all are.
        choices: |A(s_t)|, the number of possible intentions, [batch, time]; None where it is A everywhere.
    """

    log_policy: Tensor
    log_flow: Tensor
    log_backward: Tensor | None = None
    log_parent: Tensor | None = None
    log_end_flow: Tensor | None = None
    allowed: Tensor | None = None
    choices: Tensor | None = None


_gradients = threading.local()


@contextmanager
def gradients_in_place() -> Iterator[None]:
    """While this lasts, hand-written gradients are added to the `grad` of the weights, not returned to autograd.

    For `Tensor.backward` alone, and for weights that have a `grad`: it saves a copy of all weights.
    """
    _gradients.in_place = True
    try:
        yield
    finally:
        _gradients.in_place = False


def writes_in_place() -> bool:
    """True within `gradients_in_place`."""
    return getattr(_gradients, "in_place", False)


class Evaluation(ABC, Generic[H]):
    """Outputs of a network at some states; they hold until a gradient is taken and the weights move.

    A loss is differentiated in one of two ways: by autograd, from `heads`; or, where its gradient in the raw outputs
    has a closed form, by `backward`. What lies behind, autograd, the hand-written engine or the shards of a
    distributed run, is the network's affair.
    """

    @abstractmethod
    def heads(self) -> H:
        """log π, log π_B and log F, differentiable."""

    @abstractmethod
    def outputs(self) -> Array:
        """Raw outputs side by side, read-only, [..., n]: logits of π, logits of π_B, log F less its starting value."""

    @abstractmethod
    def backward(self, grad: Array) -> None:
        """Add d loss/d weights to the weights' `grad`, from d loss/d outputs, [..., n]."""


class AutogradEvaluation(Evaluation[H]):
    """Outputs as autograd has them.

    Args:
        raw: the outputs side by side, [..., n].
        arrange: makes heads of them.
    """

    def __init__(self, raw: Tensor, arrange: Callable[[Tensor], H]) -> None:
        self._raw, self._arrange = raw, arrange

    def heads(self) -> H:
        return self._arrange(self._raw)

    def outputs(self) -> Array:
        return self._raw.detach().cpu().numpy()

    def backward(self, grad: Array) -> None:
        torch.autograd.backward(self._raw, torch.from_numpy(grad).to(self._raw))


class ClosedFormLoss(float):
    """A loss whose gradient in the outputs of an evaluation is known in closed form: a number with a `backward`."""

    _evaluation: Evaluation[Any]
    _grad: Array

    @classmethod
    def of(cls, value: float, evaluation: Evaluation[Any], grad: Array) -> "ClosedFormLoss":
        """A loss of this value with its gradient in `evaluation.outputs()`, [..., n]."""
        loss = cls(value)
        loss._evaluation, loss._grad = evaluation, grad
        return loss

    def backward(self) -> None:
        """Add the gradient in all weights to what they have."""
        self._evaluation.backward(self._grad)
