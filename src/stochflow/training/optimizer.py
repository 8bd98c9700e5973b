"""Adam on one flat buffer, its learning rate, and the check that numbers stay finite."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from stochflow.core.errors import NumericsError
from stochflow.core.torch_kernels import adam_step
from stochflow.models.evaluation import ClosedFormLoss, gradients_in_place

Record = dict[str, float]
State = dict[str, Tensor]

_REMEDY = "train again with a lower optimiser.learning_rate or dynamics.learning_rate, or a larger reward.floor"
_CACHE_LINE = 16  # numbers
FAR = 1.0  # learning rates added up
LARGE = 1e15  # norm of a gradient beyond which Adam's moments might not hold it


def learning_rate_factor(progress: float, warmup: float) -> float:
    """Share of the learning rate: linear warm-up, constant until half of the budget, then a cosine to zero."""
    if progress < warmup:
        return progress / warmup
    if progress < 0.5:
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * min(2.0 * progress - 1.0, 1.0)))


class FlatAdam:
    """Adam with a gradient clip and a learning rate that is set anew for every step.

    The parameters become views of one flat tensor and their gradients of another, so that clipping, Adam and the check
    of the weights are one operation each however many parameters there are.

    Attributes:
        clip: largest norm of a gradient.
        reduce: what is done to the gradient before the clip, where several processes share a batch.
    """

    def __init__(self, parameters: list[nn.Parameter], clip: float) -> None:
        self.clip = clip
        self.reduce: Callable[[Tensor], None] | None = None
        self._parameters = parameters
        self._shapes = [(weight.shape, weight.stride()) for weight in parameters]
        # every parameter begins where a cache line does, as it would by itself
        total = sum(padded(weight.numel()) for weight in parameters)
        first = parameters[0].detach()
        self._flat, self._gradient, self._first, self._second = (first.new_zeros(total) for _ in range(4))
        self._num_steps = torch.zeros(())
        self._moved = math.inf
        self._bind()

    def _bind(self) -> None:
        """Make the parameters and their gradients views of the flat tensors, in the parameters' precision and place."""
        like = self._parameters[0].detach()
        self._flat, self._gradient, self._first, self._second = (
            flat.to(like) for flat in (self._flat, self._gradient, self._first, self._second)
        )
        self._num_steps = self._num_steps.to(like.device)
        views = zip(self._parameters, self._parts(self._flat), self._parts(self._gradient), strict=True)
        for weight, value, gradient in views:
            weight.data = value.copy_(weight.detach())
            weight.grad = gradient

    def _parts(self, flat: Tensor) -> list[Tensor]:
        """What belongs to each parameter, in its shape and order in memory."""
        parts = flat.split([padded(shape.numel()) for shape, _ in self._shapes])
        return [part.as_strided(shape, stride) for part, (shape, stride) in zip(parts, self._shapes, strict=True)]

    def step(self, loss: Tensor | float, learning_rate: float) -> None:
        """Move against the gradient of a loss: one of autograd, or a closed form."""
        assert isinstance(loss, Tensor | ClosedFormLoss), "a plain number has no gradient"
        if self._parameters[0].data_ptr() != self._flat.data_ptr():  # somebody moved or converted the module
            self._bind()
        self._gradient.zero_()
        if isinstance(loss, ClosedFormLoss):
            loss.backward()
        else:
            with gradients_in_place():
                loss.backward()
        if self.reduce is not None:
            self.reduce(self._gradient)
        norm = _norm(self._gradient)
        if not math.isfinite(norm):
            raise NumericsError(f"the gradient of the loss became {norm}; the weights stay as they were; {_REMEDY}")
        if norm > self.clip:
            self._gradient.mul_(self.clip / (norm + 1e-6))
        self._moved += learning_rate if norm < LARGE else math.inf
        self._num_steps += 1
        adam_step(self._flat, self._gradient, (self._first, self._second), self._num_steps, learning_rate)

    def require_finite(self) -> None:
        """Raise an error when a weight is not finite: a loss shows it only one update later.

        With a finite gradient Adam moves a weight by less than eight learning rates, whatever came before. Finite
        weights need no second look, which would cost as much as a clip, before these have added up.
        """
        if self._moved >= FAR:
            require_finite({"sum of all weights": float(self._flat.sum())})
            self._moved = 0.0

    def state_dict(self) -> State:
        """Moments and step counts by parameter number; nothing before the first update."""
        if not self._num_steps:
            return {}
        moments = zip(self._parts(self._first), self._parts(self._second), strict=True)
        return {
            f"{index}.{name}": value
            for index, (first, second) in enumerate(moments)
            for name, value in (("step", self._num_steps), ("exp_avg", first), ("exp_avg_sq", second))
        }

    def load_state_dict(self, state: State) -> None:
        like = self._parameters[0].detach()
        self._first, self._second = self._first.to(like), self._second.to(like)
        for name, moments in (("exp_avg", self._first), ("exp_avg_sq", self._second)):
            for index, part in enumerate(self._parts(moments)):
                if (key := f"{index}.{name}") in state:  # a weight that never had a gradient may have none
                    part.copy_(state[key])
        counts = [value for key, value in state.items() if key.endswith(".step")]
        self._num_steps = (counts[0].clone() if counts else torch.zeros(())).to(like.device)


def _norm(values: Tensor) -> float:
    """Euclidean norm, [num]."""
    if values.device.type != "cpu":
        return float(torch.linalg.vector_norm(values))
    array = values.numpy()
    return math.sqrt(float(np.dot(array, array)))  # in half of torch's time


def padded(num: int) -> int:
    """So many numbers and as few more that what follows begins with a cache line."""
    return -(-num // _CACHE_LINE) * _CACHE_LINE


def require_finite(terms: Mapping[str, Tensor | float]) -> Record:
    """The terms as numbers, or an error that names one that is not finite; the total only when each part of it is."""
    tensors = [value.detach() for value in terms.values() if isinstance(value, Tensor)]
    found = iter(torch.stack(tensors).tolist() if tensors else ())
    return finite_numbers(
        {name: next(found) if isinstance(value, Tensor) else float(value) for name, value in terms.items()}
    )


def finite_numbers(record: Record) -> Record:
    """The same for terms that are numbers already."""
    if all(map(math.isfinite, record.values())):
        return record
    for name in sorted(record, key=lambda name: name == "loss"):
        if not math.isfinite(record[name]):
            raise NumericsError(f"the term '{name}' became {record[name]}; the last good checkpoint is kept; {_REMEDY}")
    return record
