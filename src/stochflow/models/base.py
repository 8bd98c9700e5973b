"""The interfaces of flow models and samplers."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from stochflow.core.arrays import Array
from stochflow.models.evaluation import AlongPaths, Evaluation, PathHeads


class Sampler(Protocol):
    """Walks a batch of states forward, one outcome at a time."""

    def log_policy(self) -> Array:
        """log π(·|s) where the batch stands, up to a constant in each row, [batch, A]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, on the CPU, [batch, A]; None for all."""

    def advance(self, outcomes: Array) -> None:
        """Go on to the states behind the outcomes, [batch]."""


@runtime_checkable
class PairSampler(Sampler, Protocol):
    """A sampler that reads what was intended as well as what came."""

    def observe(self, intentions: Array, outcomes: Array) -> None:
        """Go on to the states behind the outcomes of these intentions, [batch] each; in the place of `advance`."""


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
        reads_history: True where the policy reads what was intended so far, and not only the state.
    """

    reads_history = False

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
    def evaluate(self, where: AlongPaths) -> Evaluation[PathHeads]:
        """What the network says along paths: the only door to its outputs in training."""

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
