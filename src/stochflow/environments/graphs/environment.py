"""A directed acyclic graph as an environment: episodes walk from the root to an object."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment, Episodes, Ints, Streams
from stochflow.environments.graphs.factory import configured_graph
from stochflow.environments.graphs.graph import Graph


class GraphEpisodes(Episodes):
    """Walks on a graph; an episode ends at its object."""

    def __init__(self, graph: Graph, num: int, generator: torch.Generator) -> None:
        self._graph, self._generator = graph, generator
        self._nodes = torch.zeros(num, dtype=torch.int64)
        self.going = np.ones(num, np.bool_)

    def step(self, intentions: Ints, time: int) -> Ints:
        graph, going = self._graph, torch.from_numpy(self.going)
        states, intended = torch.where(going, self._nodes, 0), torch.from_numpy(intentions)
        # without noise nothing is drawn
        outcomes = intended if graph.noiseless else self._outcomes(states, intended)
        self._nodes = torch.where(going, graph.children[states, outcomes], self._nodes)
        self.going = (self._nodes < graph.num_states).numpy()
        return outcomes.numpy()

    def _outcomes(self, states: Tensor, intentions: Tensor) -> Tensor:
        """Outcomes c ~ P(·|s,a); [num] each."""
        rows = self._graph.cumulative[states, intentions]
        uniform = torch.rand(len(states), 1, generator=self._generator, dtype=torch.float64)
        # scaled by the row's own total: rounding in the sum must not open an index past the last outcome
        return (uniform * rows[:, -1:] >= rows).sum(dim=-1)


class GraphEnvironment(Environment):
    """Objects of a finite graph, each a number in the order of the graph's scores.

    >>> from stochflow.environments.graphs.hypergrid import hypergrid
    >>> environment = GraphEnvironment(hypergrid("2,8", slip=0.1))
    >>> environment.num_actions, environment.is_tree
    (3, False)
    """

    is_tree = False
    enumerable = True

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.name, self.noise = graph.name, graph.noise
        self.num_actions, self.num_outcomes, self.max_steps = graph.num_actions, graph.num_outcomes, graph.max_steps
        self.mode_threshold = graph.mode_threshold

    @property
    def dynamics(self) -> Tensor:
        return self.graph.dynamics

    def begin(self, num: int, streams: Streams) -> Episodes:
        return GraphEpisodes(self.graph, num, streams["channel"])

    def made(self, outcomes: Tensor, valid: Tensor) -> Tensor:
        return nodes_on(self.graph, outcomes, valid)[:, -1] - self.graph.num_states

    def measure(self, made: Tensor, generator: torch.Generator) -> Tensor:
        return self.graph.scores[made]

    def score(self, made: Tensor) -> Tensor:
        return self.graph.scores[made]

    def under(self, config: Config) -> "GraphEnvironment":
        return GraphEnvironment(configured_graph(config))

    def check_method(self, config: Config) -> None:
        """States have several parents and no letters, and outcomes may be no intentions."""
        if not config.objective.record.graphs:
            raise ConfigError(
                f"{config.method} cannot be trained on {config.task}: it changes or reads sequences of letters, and "
                "the states of a graph have none; choose a balance (sgfn-db, sgfn-tb, …), sgfn-kl or random"
            )
        if config.objective.path == "realised" and not self.graph.outcomes_are_intentions:
            raise ConfigError(
                f"{config.method} cannot be trained on {config.task}: it takes outcomes for intentions, and here they "
                "are different things; choose a method that knows of noise (sgfn-db, sgfn-tb, sgfn-kl)"
            )

    def frame(self, intentions: Tensor, outcomes: Tensor, valid: Tensor) -> pd.DataFrame:
        names, labels = list(self.graph.actions), self.graph.labels
        intended = [
            " ".join(names[action] for action, taken in zip(actions, steps, strict=True) if taken)
            for actions, steps in zip(intentions.tolist(), valid.tolist(), strict=True)
        ]
        made = self.made(outcomes, valid).tolist()
        return pd.DataFrame({"object": [labels[number] for number in made], "intended": intended})


def longest(valid: Tensor) -> int:
    """Steps of the longest episode of a batch; [num, time] → a number."""
    return int(valid.sum(dim=1).amax()) if valid.numel() else 0


def nodes_on(graph: Graph, outcomes: Tensor, valid: Tensor) -> Tensor:
    """Nodes on the way of episodes, the root first, after the end the object; [num, time] → [num, time + 1]."""
    nodes, time = [torch.zeros(len(outcomes), dtype=torch.int64)], longest(valid)
    for column, going in zip(outcomes.T[:time], valid.T[:time], strict=True):
        last = nodes[-1]
        nodes.append(torch.where(going, graph.children[torch.where(going, last, 0), column], last))
    return torch.stack(nodes + nodes[-1:] * (outcomes.shape[1] - time), dim=1)


def states_on(graph: Graph, outcomes: Tensor, valid: Tensor) -> Tensor:
    """The state before every step of episodes; the root where no step was taken; [num, time] → [num, time]."""
    return torch.where(valid, nodes_on(graph, outcomes, valid)[:, :-1], 0)
