"""What every flow model answers: heads along the paths of a batch, flows of all children, and a sampler."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt
import torch
from torch import Tensor, nn

Array = npt.NDArray[Any]


class Sampler(Protocol):
    """Walks a batch of states forward, one outcome at a time."""

    def log_policy(self) -> Array:
        """log π(·|s) where the batch stands, up to a constant in each row, [batch, A]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, on the CPU, [batch, A]; None for all."""

    def advance(self, outcomes: Array) -> None:
        """Go on to the states behind the outcomes, [batch]."""


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


class ChildFlows(NamedTuple):
    """Flows of all children of the states along the paths of a batch, without gradient.

    Attributes:
        log_flow: log F(s'), [batch, time, C]; log 1e-30 where there is no such child.
        log_parent: log p_B(s_t|s'), [batch, time, C]; None on a tree.
    """

    log_flow: Tensor
    log_parent: Tensor | None = None


class FlowModel(nn.Module, ABC):
    """A policy π(a|s), a backward policy π_B(s,a|s') and flows log F(s) behind one interface.

    Attributes:
        num_actions: A.
    """

    num_actions: int

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights are."""

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return next(self.parameters()).dtype

    @abstractmethod
    def along(self, outcomes: Tensor, valid: Tensor, backward: str | None = None, ends: bool = False) -> PathHeads:
        """Heads along paths, differentiable; [batch, time] twice.

        Args:
            backward: "learned" or "uniform" to have π_B, None to do without.
            ends: True to have log F of the finished objects.
        """

    @abstractmethod
    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        """log F of all children of every state along paths, without gradient; [batch, time] twice."""

    @abstractmethod
    def root_log_flow(self) -> float:
        """log F of the root: the network's own estimate of log Z."""

    @abstractmethod
    def sampler(self, batch_size: int) -> Sampler:
        """The policy itself, for a rollout."""

    def recording_sampler(self, batch_size: int) -> Sampler:
        """A sampler that keeps what a loss on the same episodes needs, where the model can; otherwise `sampler`."""
        return self.sampler(batch_size)
