"""What every objective on a graph is given, and what it gives back."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.random import Generators
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.sequences.task import Reward
from stochflow.models.dynamics.counted import GraphDynamics
from stochflow.models.graph_network import GraphNetwork
from stochflow.objectives.base import Terms
from stochflow.sampling.graph_rollout import PolicyRows
from stochflow.sampling.replay_buffer import Replay
from stochflow.sampling.trajectories import Trajectories

# so many rows of a table take about as long as one more question
_ROWS_PER_STEP = 64


class ObjectMemory:
    """Which objects were paid for, and so have a known score.

    Attributes:
        paid: True where an object was made before, [X].
    """

    def __init__(self, num_objects: int) -> None:
        self.paid = torch.zeros(num_objects, dtype=torch.bool)

    @property
    def num_calls(self) -> int:
        return int(self.paid.sum())

    def state_dict(self) -> dict[str, Tensor]:
        return {"paid": self.paid}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.paid = state["paid"]


@dataclass(frozen=True)
class GraphLearner:
    """The parts of one run that an objective may read: the graph's shape, models, memory, and settings."""

    config: Config
    graph: Graph
    network: GraphNetwork
    dynamics: GraphDynamics
    reward: Reward
    memory: ObjectMemory
    replay: Replay
    generators: Generators

    def replayed(self, fresh: Trajectories) -> Iterator[Trajectories]:
        """The fresh batch, then as many remembered batches as `optimiser.updates` asks for."""
        yield fresh
        for _ in range(self.config.optimiser.updates - 1):
            yield self.replay.sample(len(fresh), self.generators["replay"])

    @torch.no_grad()
    def log_flows(self, nodes: Tensor) -> Tensor:
        """log F of nodes, float64, on the CPU; [num] → [num]."""
        nodes = nodes.to(self.network.device)
        return self.network.log_flow(self.network.hidden(nodes), nodes).double().cpu()


class GraphObjective(ABC):
    """Turns a fresh batch into loss terms; see `objectives.base.Objective`."""

    def __init__(self, learner: GraphLearner) -> None:
        self.learner = learner

    @abstractmethod
    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        """Loss terms, one dictionary per parameter update, or none."""

    def behaviour(self) -> Tensor | PolicyRows:
        """log π(a|s) that training episodes are drawn from, [S, A]: the network's unless the objective knows better.

        A large graph is asked for the states that episodes come to, a small one for all of them at once.
        """
        graph, network = self.learner.graph, self.learner.network
        return network.policy_rows if graph.num_states > _ROWS_PER_STEP * graph.max_steps else network.policy_table()

    def log_z(self) -> float:
        """The objective's own estimate of log Z: log F of the root."""
        return float(self.learner.log_flows(torch.zeros(1, dtype=torch.int64)))

    def state_dict(self) -> dict[str, Tensor]:
        """What must be kept, beyond the learner's parts, to go on exactly."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state of its own but was given {sorted(state)}")


class UniformWalks(GraphObjective):
    """The network's first policy, which is uniform, for ever."""

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        yield from ()
