"""The interfaces of training objectives: what they read (`Learner`) and the losses that they return (`Objective`)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stochflow.config.schema import Config
from stochflow.core.random import RandomStreams
from stochflow.environments.base import Environment
from stochflow.environments.rewards import Reward
from stochflow.models.base import FlowModel, Sampler
from stochflow.models.evaluation import AlongPaths, Evaluation, PathHeads
from stochflow.sampling.policies import Policy, policy_of
from stochflow.sampling.replay_buffer import ReplayBuffer
from stochflow.sampling.trajectories import Trajectories

# what was computed, by name; "loss" is a tensor of autograd or a `ClosedFormLoss`
Terms = Mapping[str, Tensor | float]
TensorTerms = dict[str, Tensor]

ARITHMETIC, GEOMETRIC = "E[R]", "exp E[log R]"


class Memory(Protocol):
    """Scores of objects that were paid for."""

    @property
    def num_calls(self) -> int:
        """Answers of the oracle so far."""

    def best_scores(self, num: int, /) -> Tensor:
        """The highest scores among what was paid for, best first, float64, [at most num]."""

    def asks(self, made: Tensor, /) -> Tensor:
        """True in rows for which `pay` would ask the oracle, [batch]."""

    def pay(self, made: Tensor, oracle: Callable[[Tensor], Tensor], /) -> Tensor:
        """Scores of a batch of objects, float64, [batch]."""

    def lookup(self, made: Tensor, /) -> Tensor:
        """Remembered scores, NaN where none was paid for."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor], /) -> None: ...


@dataclass(frozen=True)
class Learner(ABC):
    """The parts of one run that an objective may read: environment, models, memory and settings.

    `SequenceLearner` and `GraphLearner` say what differs between the two families: where flows of children and the
    dynamics along a path come from.
    """

    config: Config
    environment: Environment
    network: FlowModel
    dynamics: Any
    reward: Reward
    memory: Memory
    replay: ReplayBuffer
    generators: RandomStreams

    @property
    def device(self) -> torch.device:
        return self.network.device

    def along(self, batch: Trajectories) -> Trajectories:
        """The same along the states that the policy was in: without feedback, prefixes of its orders."""
        return replace(batch, outcomes=batch.intentions) if self.environment.ordered else batch

    def replayed(self, fresh: Trajectories) -> Iterator[Trajectories]:
        """The fresh batch, then as many remembered batches as `optimiser.updates` asks for."""
        yield fresh
        for _ in range(self.config.optimiser.updates - 1):
            yield self.replay.sample(len(fresh), self.generators["replay"])

    def log_rewards(self, batch: Trajectories, step: int | None = None) -> Tensor:
        """log R of what the episodes of a batch made, float64, [batch]."""
        return self.reward.log_reward(batch.scores, step)

    def evaluate(self, batch: Trajectories, backward: str | None = None, ends: bool = False) -> Evaluation[PathHeads]:
        """What the network says along the paths of a batch; the arguments are those of `AlongPaths`."""
        intentions = batch.intentions if self.network.reads_history else None
        return self.network.evaluate(AlongPaths(batch.outcomes, batch.valid, backward, ends, intentions))

    def is_full(self, batch: Trajectories) -> bool:
        """True where every step of a batch is a choice among all A intentions, so that closed forms apply."""
        return False

    @abstractmethod
    def log_dynamics(self, batch: Trajectories) -> Tensor:
        """log P̂(b|s_t,a) along paths, detached: the policy must not gain by bending P̂; [batch or 1, time, A, C]."""

    @abstractmethod
    def log_beliefs(self, outcomes: Tensor, intentions: Tensor | None = None) -> Tensor:
        """log P̂ in the shape of `Environment.dynamics`, or along paths, float64, on the CPU.

        Without `intentions` everything came as it was intended.
        """

    @abstractmethod
    def child_flows(self, batch: Trajectories, step: int) -> Tensor:
        """log F(s') + log p_B(s_t|s') of all children s' of the states along paths, without gradient; [batch, time, C].

        A finished object that was paid for counts its log R, one that never was the flow head's own value.
        """


class Objective(ABC):
    """Turns a fresh batch into loss terms.

    Each element that `updates` yields holds "loss", which the trainer minimises, and the named terms that it logs.

    Attributes:
        samples: False for an objective that learns from no trajectories of its own; then none are sampled.
        own: networks beyond the learner's that this objective trains or follows; empty for most.
    """

    learner: Learner
    samples = True

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.own = nn.ModuleDict()

    @abstractmethod
    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        """Loss terms, one dictionary per parameter update, or none; each is computed after the update before it."""

    @property
    def reward_mean(self) -> str | None:
        """Which mean of a noisy reward takes R's place in what this converges to; None where nothing is learned.

        A loss that is linear or squared in log R sees the mean of log R, unless it asks the memory, which keeps E[R].
        """
        return GEOMETRIC

    @property
    def reads_dynamics(self) -> bool:
        """False for an objective that never reads P̂: then nothing is learned of the world."""
        return True

    @property
    def reads_behaviour(self) -> bool:
        """False for an objective to which it does not matter who drew the intentions."""
        return True

    def log_z(self) -> float:
        """The objective's own estimate of log Z: log F of the root, unless it has a better one."""
        return self.learner.network.root_log_flow()

    @property
    def batch_size(self) -> int:
        """Trajectories of a training step: as configured, unless the objective needs more rounds."""
        return self.learner.config.optimiser.batch_size

    def sampler(self, batch_size: int) -> Sampler:
        """Where training trajectories come from: the policy network unless the objective has another behaviour."""
        return self.learner.network.sampler(batch_size)

    def policy(self) -> Policy:
        """What is evaluated and sampled from in the end: the policy network unless the objective has another."""
        return policy_of(self.learner.network)

    def state_dict(self) -> dict[str, Tensor]:
        """What must be kept, beyond the learner's parts, to go on exactly."""
        return self.own.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if state and not self.own:
            raise ValueError(f"{type(self).__name__} keeps no state of its own but was given {sorted(state)}")
        self.own.load_state_dict(state)
