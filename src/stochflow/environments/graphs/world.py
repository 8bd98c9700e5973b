"""Small worlds of the user's own, written down as a class and explored into a graph."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.graphs.graph import Graph, check_extent

_MODE_SHARE = 0.99  # of the best score
_TOLERANCE = 1e-6


class World(ABC):
    """A finite world in which states follow one another without ever coming back; states are anything hashable.

    Attributes:
        name: what the environment is called.
        actions: names of the A intentions.
        noise: what the noise is called.
        description: one sentence; by default the first line of the docstring.

    >>> class Coins(World):
    ...     name, actions = "coins", ("heads", "tails")
    ...
    ...     def start(self):
    ...         return ()
    ...
    ...     def outcomes(self, state, action):
    ...         return {(*state, action): 0.9, (*state, 1 - action): 0.1}
    ...
    ...     def score(self, state):
    ...         return 1.0 + sum(state) if len(state) == 2 else None
    ...
    ...     def features(self, state):
    ...         return [len(state), sum(state)]
    >>> graph = explore(Coins())
    >>> graph.num_states, graph.num_objects, graph.max_steps
    (3, 4, 2)
    """

    name: str
    actions: Sequence[str]
    noise: float | str = "world"
    description: str | None = None

    @abstractmethod
    def start(self) -> Hashable:
        """The root."""

    @abstractmethod
    def outcomes(self, state: Hashable, action: int) -> Mapping[Hashable, float]:
        """What may come of an intention, with its probability; empty where the intention is not possible."""

    @abstractmethod
    def score(self, state: Hashable) -> float | None:
        """What a finished object is worth, at least 0; None while it is not finished."""

    @abstractmethod
    def features(self, state: Hashable) -> Sequence[float]:
        """What a network sees of a state or an object."""

    def all_scores(self, objects: Sequence[Any]) -> Sequence[float | None]:
        """Scores of all objects that can be made."""
        return [self.score(made) for made in objects]

    def all_features(self, nodes: Sequence[Any]) -> Tensor:
        """Features of all states and objects, float32, [S + X, num_features]."""
        return torch.tensor([list(self.features(node)) for node in nodes], dtype=torch.float32)

    def kinds(self, states: Sequence[Any]) -> Sequence[int]:
        """Number of the kind of each state; P(outcome|s,a) may be expected to be the same in states of one kind."""
        return range(len(states))


def explore(world: World) -> Graph:
    """Every state and object that can be reached, breadth first, as a graph with exact tables."""
    states: dict[Hashable, int] = {world.start(): 0}
    objects: dict[Hashable, int] = {}
    rows: list[Row] = []
    queue, num_features = deque(states), len(world.features(world.start()))
    while queue:
        state = queue.popleft()
        rows.append(_row(world, state))
        for child in rows[-1]:
            if world.score(child) is not None:
                objects.setdefault(child, len(objects))
            elif child not in states:
                states[child] = len(states)
                queue.append(child)
        num_states, num_nodes = len(states), len(states) + len(objects)
        # while it grows
        check_extent(world.name, num_states, num_nodes, len(world.actions), len(rows[-1]), num_features, num_steps=1)
    return _graph(world, states, objects, rows)


# one entry per child of a state: its probability after every intention
Row = dict[Hashable, list[float]]


def _row(world: World, state: Hashable) -> Row:
    row: Row = {}
    for action in range(len(world.actions)):
        for child, probability in world.outcomes(state, action).items():
            row.setdefault(child, [0.0] * len(world.actions))[action] += probability
    if not row:
        raise ConfigError(f"the state {state!r} of '{world.name}' is not finished and leads nowhere; give it a score")
    return row


def _graph(world: World, states: dict[Hashable, int], objects: dict[Hashable, int], rows: list[Row]) -> Graph:
    num_outcomes = max(map(len, rows))
    children = torch.full((len(states), num_outcomes), -1)
    dynamics = torch.zeros(len(states), len(world.actions), num_outcomes, dtype=torch.float64)
    for number, row in enumerate(rows):
        numbers = [len(states) + objects[child] if child in objects else states[child] for child in row]
        children[number, : len(row)] = torch.tensor(numbers)
        dynamics[number, :, : len(row)] = torch.tensor(list(row.values()), dtype=torch.float64).T
    depths = _depths(world, children, len(states) + len(objects))
    totals = dynamics.sum(dim=-1, keepdim=True)
    if bool(((totals - 1.0).abs() > _TOLERANCE).logical_and(totals > 0).any()):
        raise ConfigError(f"probabilities of outcomes in '{world.name}' must sum to 1; correct `outcomes`")
    scores = torch.tensor(world.all_scores(list(objects)), dtype=torch.float64)
    if not bool((scores >= 0).all()) or not bool((scores > 0).any()):
        raise ConfigError(f"scores of '{world.name}' must be at least 0, and one of them above 0; correct `score`")
    features = world.all_features([*states, *objects])
    sizes = (len(states), len(depths), len(world.actions), num_outcomes, features.shape[1])
    check_extent(world.name, *sizes, num_steps=int(depths.max()))
    return Graph(
        name=world.name,
        description=world.description or (type(world).__doc__ or world.name).strip().splitlines()[0],
        noise=world.noise,
        actions=tuple(world.actions),
        children=children,
        dynamics=dynamics / torch.where(totals > 0, totals, 1.0),
        kinds=torch.tensor(world.kinds(list(states))),
        depths=depths,
        features=features,
        scores=scores,
        labels=[str(made) for made in objects],
        mode_threshold=_MODE_SHARE * float(scores.max()),
        outcomes_are_intentions=False,
    )


def _depths(world: World, children: Tensor, num_nodes: int) -> Tensor:
    """Steps of the longest way to every node, so that every step leads deeper; [S + X]."""
    parents: dict[int, list[int]] = {node: [] for node in range(num_nodes)}
    for state, row in enumerate(children.tolist()):
        for child in row:
            if child >= 0:
                parents[child].append(state)
    depths = [0] * num_nodes
    try:
        for node in TopologicalSorter(parents).static_order():
            depths[node] = max((depths[parent] + 1 for parent in parents[node]), default=0)
    except CycleError:
        raise ConfigError(f"'{world.name}' can come back to a state; make the time a part of its states") from None
    return torch.tensor(depths)
