"""One run shared out among the processes that torchrun started.

Every process holds the whole run: networks, memory, replay, plan and generators, all equal. What is expensive is shared
out by rows: a process evaluates the network on its own rows of a batch, and the outputs of all are gathered, so that
each sees the loss of the whole batch, whatever it is made of. Backwards only a process's own rows reach its weights;
the sum of all gradients is that of the whole batch. The first process, which leads, asks the oracle and writes files.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn

from stochflow.core.arrays import Array
from stochflow.core.errors import ConfigError, DistributedError
from stochflow.core.processes import launched
from stochflow.models.base import ChildFlows, Sampler
from stochflow.models.evaluation import Evaluation, H
from stochflow.models.flow_network import FlowNetwork
from stochflow.objectives.base import Objective
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.score_memory import checked_scores
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.dynamics_fitter import DynamicsFitter
from stochflow.training.optimizer import Record
from stochflow.training.trainer import Trainer

# an oracle may take its time: nobody gives up waiting before the lead does
_PATIENCE = timedelta(days=365)
_MEETINGS = count()


class ProcessGroup:
    """The processes of one run; all call the same methods in the same order."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, num_rows: int, rank: int | None = None) -> slice:
        """Which of so many rows are this process's own, or another's; shares differ by one row at most."""
        rank = self.rank if rank is None else rank
        return slice(num_rows * rank // self.size, num_rows * (rank + 1) // self.size)

    def gather(self, columns: Sequence[Tensor], num_rows: int) -> list[Tensor]:
        """All rows of every column from the share that each process has; [own, ...] each → [num_rows, ...] each."""
        if not num_rows:
            return list(columns)
        flat = [_as_bytes(column) for column in columns]
        most = -(-num_rows // self.size)
        packed = nn.functional.pad(torch.cat(flat, dim=1), (0, 0, 0, most - len(flat[0])))
        parts = [torch.empty_like(packed) for _ in range(self.size)]
        with _reached():
            distributed.all_gather(parts, packed)
        shares = [self.share(num_rows, rank) for rank in range(self.size)]
        rows = torch.cat([part[: own.stop - own.start] for part, own in zip(parts, shares, strict=True)])
        pieces = rows.split([piece.shape[1] for piece in flat], dim=1)
        return [_from_bytes(piece, column, num_rows) for piece, column in zip(pieces, columns, strict=True)]

    def from_lead(self, values: Tensor) -> Tensor:
        """The lead's values in all processes; everybody gives a tensor of the same shape and type."""
        sent = _as_bytes(values.reshape(1, -1)).clone()
        with _reached():
            distributed.broadcast(sent, src=0)
        return _from_bytes(sent, values.reshape(1, -1), 1).reshape(values.shape)

    def any(self, flag: bool) -> bool:
        """True when it is true in one of the processes."""
        flags = self.gather([torch.tensor([flag])], self.size)[0]
        return bool(flags.any())

    def sum_gradients(self, gradient: Tensor) -> None:
        """Replace a gradient by its sum over all processes."""
        wire = gradient if gradient.device.type == "cuda" else gradient.cpu()
        with _reached():
            distributed.all_reduce(wire)
        gradient.copy_(wire)

    def require_equal(self, *parts: bytes) -> None:
        """Refuse to begin when the processes differ in one of the parts."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        own = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
        if bool((self.gather([own.unsqueeze(0)], self.size)[0] != own).any()):
            raise ConfigError(
                "the processes of this run begin with different settings or weights; give all of them the same "
                "options, files and versions"
            )

    def wait(self) -> None:
        """Go on when all have come here."""
        self.any(False)


class _SharedRows(torch.autograd.Function):
    """The rows of all processes; backwards each gets the gradient of its own, for all of them have the same loss."""

    @staticmethod
    def forward(context: Any, team: ProcessGroup, num_rows: int, *columns: Tensor) -> tuple[Tensor, ...]:
        context.set_materialize_grads(False)
        context.own = team.share(num_rows)
        return tuple(team.gather([column.detach() for column in columns], num_rows))

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, None, *(None if gradient is None else gradient[context.own] for gradient in gradients)


_rows_of_all: Callable[..., tuple[Tensor, ...]] = _SharedRows.apply


class ShardedEvaluation(Evaluation[H]):
    """The rows of all processes, of which each has evaluated its own.

    Args:
        own: what this process has evaluated.
        num_rows: of all processes together.
    """

    def __init__(self, own: Evaluation[H], team: ProcessGroup, num_rows: int) -> None:
        self._own, self._team, self._num_rows = own, team, num_rows

    def heads(self) -> H:
        own = self._own.heads()
        given = [column for column in own if column is not None]
        gathered = iter(_rows_of_all(self._team, self._num_rows, *given))
        columns: Any = (None if column is None else next(gathered) for column in own)
        return type(own)(*columns)

    def outputs(self) -> Array:
        return self._team.gather([torch.from_numpy(self._own.outputs())], self._num_rows)[0].numpy()

    def backward(self, grad: Array) -> None:
        self._own.backward(np.ascontiguousarray(grad[self._team.share(self._num_rows)]))


class ShardedFlowNetwork(FlowNetwork):
    """A flow network that evaluates its own rows while it is `sharing`, and gives back those of all processes.

    Outside of a training step it is an ordinary network: only the first process evaluates a policy.
    """

    team: ProcessGroup
    sharing = False

    def evaluate(self, where: Any) -> Any:
        if not self.sharing:
            return super().evaluate(where)
        own = self.team.share(len(where[0]))
        rows = type(where)(*(column[own] if isinstance(column, Tensor) else column for column in where))
        return ShardedEvaluation(super().evaluate(rows), self.team, len(where[0]))

    def log_flow_of(self, tokens: Tensor) -> Tensor:
        return self._shared(super().log_flow_of, tokens)

    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        own = super().children_along
        return ChildFlows(self._shared(lambda rows: own(rows, valid).log_flow, outcomes))

    def _shared(self, method: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
        if not self.sharing:
            return method(tokens)
        return self.team.gather([method(tokens[self.team.share(len(tokens))])], len(tokens))[0]


class SharedSampler:
    """A sampler of the process's own rows that knows log π of all of them, so that all processes draw the same."""

    def __init__(self, team: ProcessGroup, own: Sampler, batch_size: int) -> None:
        self._team, self._own, self._size = team, own, batch_size

    def log_policy(self) -> Array:
        return self._team.gather([torch.from_numpy(self._own.log_policy())], self._size)[0].numpy()

    def allowed(self) -> Tensor | None:
        allowed = self._own.allowed()
        return None if allowed is None else self._team.gather([allowed], self._size)[0]

    def advance(self, outcomes: Array) -> None:
        self._own.advance(outcomes[self._team.share(self._size)])


class DistributedTrainer(Trainer):
    """The training loop of one process among several."""

    def __init__(
        self, team: ProcessGroup, learner: SequenceLearner, objective: Objective, fitter: DynamicsFitter
    ) -> None:
        super().__init__(learner, objective, fitter)
        assert isinstance(learner.network, ShardedFlowNetwork), "a shared run needs a network that can be shared"
        self._team, self._network = team, learner.network
        self._network.team = team
        self.optimizer.reduce = team.sum_gradients

    def measure(self, made: Tensor) -> Tensor:
        """Only the first process asks the oracle."""
        team, generator = self._team, self.learner.generators["channel"]
        scores = torch.empty(len(made), dtype=torch.float64)
        if team.leads:
            scores = checked_scores(super().measure(made), len(made))
        # a noisy answer is drawn from this stream, and by the first process alone
        generator.set_state(team.from_lead(generator.get_state()))
        return team.from_lead(scores)

    def free(self, made: Tensor) -> Tensor:
        nothing = torch.zeros(len(made), dtype=torch.bool)
        return self._team.from_lead(super().free(made) if self._team.leads else nothing)

    def train_step(self) -> Record:
        self._network.sharing = True
        try:
            record = super().train_step()
        finally:
            self._network.sharing = False
        # clocks differ, and a budget in minutes must end in the same step everywhere
        self.seconds = float(self._team.from_lead(torch.tensor([self.seconds], dtype=torch.float64)))
        return record

    def sampler(self, size: int) -> Sampler:
        own = self._team.share(size)
        return SharedSampler(self._team, self.objective.sampler(own.stop - own.start), size)

    def fit_dynamics(self, fresh: Trajectories, progress: float) -> Record:
        """Every process fits P̂ to the whole batch, for it is small; then all take the lead's."""
        record = super().fit_dynamics(fresh, progress)
        weights = list(self.learner.dynamics.parameters())
        if weights:
            flat = nn.utils.parameters_to_vector(weights).detach()
            nn.utils.vector_to_parameters(self._team.from_lead(flat), weights)
        return record

    def begin(self) -> None:
        """Refuse to train when a process has other settings or weights than the lead."""
        weights = torch.cat([weight.detach().flatten() for weight in self.learner.network.parameters()])
        settings = self.learner.config.model_dump_json(exclude={"device"})
        self._team.require_equal(settings.encode(), str(self.step).encode(), weights.cpu().numpy().tobytes())


@contextmanager
def joined() -> Iterator[ProcessGroup | None]:
    """The team of a process that torchrun started, or that has joined a process group already; None when alone."""
    if distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
        yield ProcessGroup(distributed.get_rank(), size) if size > 1 else None
        return
    if not launched():
        yield None
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    store, rank, size = _meeting_place()
    # a prefix for every run: what an earlier one left in the store would lead into the void
    place = distributed.PrefixStore(f"stochflow-{next(_MEETINGS)}", store)  # type: ignore[attr-defined]  # stubs
    distributed.init_process_group(backend, store=place, rank=rank, world_size=size, timeout=_PATIENCE)
    try:
        yield ProcessGroup(rank, size)
    finally:
        distributed.destroy_process_group()


@cache
def _meeting_place() -> tuple[Any, int, int]:
    """Where torchrun says that processes meet, with this one's number and how many there are."""
    from torch.distributed.rendezvous import rendezvous  # not there where torch was built without it

    return next(iter(rendezvous("env://", timeout=_PATIENCE)))


@contextmanager
def _reached() -> Iterator[None]:
    """Turn a broken connection into an error of one sentence."""
    try:
        yield
    except RuntimeError as error:
        raise DistributedError(
            "another process of this run has ended or cannot be reached; go on from the last checkpoint with --resume"
        ) from error


def _as_bytes(column: Tensor) -> Tensor:
    """Rows as bytes, where they can be sent from; [rows, ...] → [rows, num_bytes]."""
    rows = column.flatten(1) if column.ndim > 1 else column.unsqueeze(1)
    if rows.device.type != "cuda":
        rows = rows.cpu()
    return rows.contiguous().view(torch.uint8)


def _from_bytes(rows: Tensor, like: Tensor, num_rows: int) -> Tensor:
    """Bytes as rows of the type and place of another column; [num_rows, num_bytes] → [num_rows, ...]."""
    own = rows.clone(memory_format=torch.contiguous_format)  # bytes of one column, beginning at a boundary of its type
    return own.view(like.dtype).reshape(num_rows, *like.shape[1:]).to(like.device)
