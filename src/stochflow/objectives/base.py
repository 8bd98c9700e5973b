"""What every objective is given, and what it gives back."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stochflow.config.schema import Config
from stochflow.core.random import Generators
from stochflow.environments.sequences.task import Reward
from stochflow.models.dynamics.tabular import Dynamics
from stochflow.models.engine.prefix_evaluation import Recorder, StateRecorder
from stochflow.models.flow_network import FlowNetwork, Heads
from stochflow.sampling.policies import NetworkPolicy, Policy
from stochflow.sampling.replay_buffer import Replay
from stochflow.sampling.rollout import NetworkSampler, Sampler
from stochflow.sampling.score_memory import ScoreMemory
from stochflow.sampling.trajectories import Trajectories

# what was computed, by name; "loss" is a tensor of autograd or a `WrittenLoss`
Terms = Mapping[str, Tensor | float]
TensorTerms = dict[str, Tensor]

ARITHMETIC, GEOMETRIC = "E[R]", "exp E[log R]"


@dataclass(frozen=True)
class Learner:
    """The parts of one run that an objective may read: models, memory, and settings."""

    config: Config
    network: FlowNetwork
    dynamics: Dynamics
    reward: Reward
    memory: ScoreMemory
    replay: Replay
    generators: Generators
    log_shares: Callable[[Tensor], Tensor] | None = None

    @property
    def device(self) -> torch.device:
        return self.network.body.start.device

    def replayed(self, fresh: Trajectories) -> Iterator[Trajectories]:
        """The fresh batch, then as many remembered batches as `optimiser.updates` asks for."""
        yield fresh
        for _ in range(self.config.optimiser.updates - 1):
            yield self.replay.sample(len(fresh), self.generators["replay"])

    def log_rewards(self, outcomes: Tensor, scores: Tensor, step: int | None = None) -> Tensor:
        """log R of what came, float64; [batch, L], [batch] → [batch].

        Where several histories write one design, its reward is shared out among them: log R(x) + log p_B(h|x).
        """
        log_rewards = self.reward.log_reward(scores, step)
        return log_rewards if self.log_shares is None else log_rewards + self.log_shares(outcomes.cpu())

    def recorder(self, batch: Trajectories, leaves: bool) -> Recorder | None:
        """The network at every prefix of a batch whose steps are all real, where numpy can read it; None otherwise.

        Args:
            leaves: True to have the complete sequences as well.
        """
        network, recorder = self.network, batch.recorder
        if recorder is None and not (network.records and self.device.type == "cpu"):
            return None
        if network.mask is not None or network.shared or not len(batch) or not batch.valid.numpy().all():
            return None
        if recorder is None:
            return network.evaluated(batch.outcomes if leaves else batch.outcomes[:, :-1])
        if leaves:
            network.evaluate_leaves(recorder)
        return recorder if recorder.readable else None

    def recorder_at(self, tokens: Tensor, depths: Tensor) -> StateRecorder | None:
        """The network at one prefix per row, where numpy can read it and all may be intended; None otherwise.

        Args:
            tokens, depths: as in `FlowNetwork.at`.
        """
        network = self.network
        if network.mask is not None or network.shared or not (network.records and self.device.type == "cpu"):
            return None
        return network.evaluated_at(tokens, depths)

    def heads(self, batch: Trajectories, leaves: bool = True) -> Heads:
        """Heads at every prefix, the empty one first; → [batch, L + 1, ...], or L without the complete sequences.

        What was computed while sampling is not computed again.
        """
        if batch.recorder is not None:
            return self.network.recorded(batch.recorder, leaves)
        return self.network.all_prefixes((batch.outcomes if leaves else batch.outcomes[:, :-1]).to(self.device))

    @torch.no_grad()
    def log_dynamics(self, outcomes: Tensor) -> Tensor:
        """log P̂(b|s_t,a), detached: the policy must not gain by bending the dynamics; [batch or 1, time, K, K]."""
        return self.dynamics.log_matrices(outcomes)

    @torch.no_grad()
    def root_log_flow(self) -> float:
        """log F of the empty prefix."""
        empty = torch.empty(1, 0, dtype=torch.int64, device=self.device)
        return float(self.network.all_prefixes(empty).log_flow)


class Objective(ABC):
    """Turns a fresh batch into loss terms.

    Each element that `updates` yields holds "loss", which the trainer minimises, and the named terms that it logs.

    Attributes:
        own: networks beyond the learner's that this objective trains or follows; empty for most.
    """

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
        """False for an objective that never asks P̂: then nothing is learned of the world."""
        return True

    @property
    def reads_behaviour(self) -> bool:
        """False for an objective to which it does not matter who drew the intentions."""
        return True

    @abstractmethod
    def log_z(self) -> float:
        """The objective's own estimate of log Z."""

    def sampler(self, batch_size: int) -> Sampler:
        """Where training trajectories come from: the policy network unless the objective knows better."""
        return NetworkSampler(self.learner.network, batch_size)

    def policy(self) -> Policy:
        """What is judged and sampled from in the end: the policy network unless the objective has another."""
        return NetworkPolicy(self.learner.network)

    def state_dict(self) -> dict[str, Tensor]:
        """What must be kept, beyond the learner's parts, to go on exactly."""
        return self.own.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if state and not self.own:
            raise ValueError(f"{type(self).__name__} keeps no state of its own but was given {sorted(state)}")
        self.own.load_state_dict(state)
