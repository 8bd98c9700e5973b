"""Gymnasium's tabular environments, unrolled over a known horizon into a graph.

Read is the table `env.unwrapped.P` of the toy-text environments: P[s][a] = [(probability, s', reward, ended), …]. A
state of the graph is (t, s, return so far), an object (s, return, ended): where an episode of at most `horizon` steps
is when it ends or is cut off. The score of an object is its return above the smallest return there is, so that it is
never negative; R = max(score^β, floor).
"""

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from stochflow.config.yaml import parse_yaml
from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.environments.graphs.graph import Graph, check_extent
from stochflow.environments.graphs.world import World, explore
from stochflow.environments.registry import FORMS

FORM = FORMS["gym"]
_DIGITS = 9  # returns that differ by less are the same

# s', reward, ended
Outcome = tuple[int, float, bool]
# transitions by place and action
Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


@dataclass(frozen=True)
class State:
    """Where an episode is on its way; the root before several starts has no place."""

    time: int
    place: int | None
    total: float


@dataclass(frozen=True)
class End:
    """Where an episode came to; it ended there, or was cut off by the horizon."""

    place: int
    total: float
    ended: bool

    def __str__(self) -> str:
        return f"{self.place}:{self.total:g}{'' if self.ended else ' cut off'}"


def gym_graph(parameters: str, slip: float) -> Graph:
    """The environment that stands after the colon, with its own noise and no other: `slip` must be zero."""
    if slip:
        raise ConfigError(f"the noise of gym:{parameters} is the environment's own; give --noise none")
    environment, horizon = make_environment(parameters)
    try:
        table, starts = _table(environment, parameters)
    finally:
        environment.close()
    check_extent(f"gym:{parameters}", 1, 1, 1, 1, 1, num_steps=horizon)
    return explore(Unrolled(f"gym:{parameters}", table, starts, horizon))


def make_environment(parameters: str) -> tuple[Any, int]:
    """The environment of a name with its options, and its horizon: as given, or the limit of its registration."""
    gymnasium = extra("gymnasium", "gym")
    name, *assignments = parameters.split(":")
    options = _options(assignments, parameters)
    horizon = options.pop("horizon", None)
    try:
        environment = gymnasium.make(name, **options)
    except Exception as error:  # whatever other people's code stumbles over
        reason = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(f"gymnasium cannot make '{parameters}' ({reason}); write {FORM}") from None
    _check_switches(environment, options, parameters)
    if horizon is None:
        horizon = None if environment.spec is None else environment.spec.max_episode_steps
    if not isinstance(horizon, int) or isinstance(horizon, bool) or horizon < 1:
        environment.close()
        raise ConfigError(f"an episode of '{name}' needs a number of steps; give it as in gym:{name}:horizon=20")
    return environment, horizon


def _options(assignments: list[str], parameters: str) -> dict[str, Any]:
    """Values by name, each read as YAML: true, 20, 0.5, 8x8."""
    options: dict[str, Any] = {}
    for text in assignments:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigError(f"'{text}' in gym:{parameters} is not understood; write {FORM}")
        if name in options:
            raise ConfigError(f"gym:{parameters} says twice what {name} is; give it once")
        try:
            options[name] = parse_yaml(value)
        except ValueError:
            raise ConfigError(f"'{value}' in gym:{parameters} is no value; write {FORM}") from None
    return options


def _check_switches(environment: Any, options: dict[str, Any], parameters: str) -> None:
    """Refuse words where the environment asks yes or no: Python takes any word for yes."""
    known = inspect.signature(type(environment.unwrapped).__init__).parameters
    for name, value in options.items():
        if name in known and isinstance(known[name].default, bool) and not isinstance(value, bool):
            raise ConfigError(f"{name} in gym:{parameters} is either true or false, not '{value}'; write one of them")


def _table(environment: Any, parameters: str) -> tuple[Table, dict[int, float]]:
    """P of an environment and its starts with their probabilities."""
    inside = environment.unwrapped
    table = getattr(inside, "P", None)
    starts = getattr(inside, "initial_state_distrib", None)
    if not isinstance(table, dict) or starts is None:
        raise ConfigError(
            f"gym:{parameters} carries no table of its transitions (env.unwrapped.P and initial_state_distrib), so it "
            "cannot be unrolled; choose a tabular environment such as FrozenLake-v1"
        )
    return table, {state: float(share) for state, share in enumerate(starts) if share > 0}


class Unrolled(World):
    """All states within the horizon; the score of an object is its return above the smallest."""

    noise = "environment"

    def __init__(self, name: str, table: Table, starts: dict[int, float], horizon: int) -> None:
        self.name, self._table, self._starts, self._horizon = name, table, starts, horizon
        self.actions = [str(action) for action in range(max(len(actions) for actions in table.values()))]
        self.description = f"A Gymnasium environment over {horizon} steps; score: return above the smallest."
        self._following = cache(self._outcomes_at)

    def start(self) -> State:
        """The only start, or a root before several whose only intention draws one."""
        return State(0, next(iter(self._starts)), 0.0) if len(self._starts) == 1 else State(-1, None, 0.0)

    def outcomes(self, state: Any, action: int) -> Mapping[Hashable, float]:
        """In an order that is the same after every intention and at every time."""
        if state.place is None:
            return {} if action else {State(0, place, 0.0): share for place, share in self._starts.items()}
        children: dict[Hashable, float] = {}
        for (place, reward, ended), shares in self._following(state.place).items():
            time, total = state.time + 1, round(state.total + reward, _DIGITS)
            child = End(place, total, ended) if ended or time == self._horizon else State(time, place, total)
            children[child] = children.get(child, 0.0) + shares.get(action, 0.0)
        return children

    def score(self, state: Any) -> float | None:
        """The return of an object."""
        return state.total if isinstance(state, End) else None

    def all_scores(self, objects: Sequence[End]) -> Sequence[float]:
        smallest = min(end.total for end in objects)
        if all(end.total == smallest for end in objects):
            raise ConfigError(
                f"all that {self.name} can make scores 0, so there is nothing to prefer; give it more steps "
                "(:horizon=20)"
            )
        return [end.total - smallest for end in objects]

    def features(self, state: Any) -> Sequence[float]:
        return self.all_features([state])[0].tolist()

    def all_features(self, nodes: Sequence[State | End]) -> Tensor:
        """Place and time one-hot, return over the largest, whether it has ended; [S + X, places + horizon + 4]."""
        places = torch.tensor([node.place or 0 for node in nodes])
        times = torch.tensor([node.time + 1 if isinstance(node, State) else self._horizon + 1 for node in nodes])
        totals = torch.tensor([node.total for node in nodes])
        numbers = torch.stack([totals / totals.abs().max().clamp_min(1e-9), (times > self._horizon).float()], dim=-1)
        return torch.cat([one_hot(places, max(self._table) + 1), one_hot(times, self._horizon + 2), numbers], dim=-1)

    def kinds(self, states: Sequence[State]) -> Sequence[int]:
        return [0 if state.place is None else state.place + 1 for state in states]

    def _outcomes_at(self, place: int) -> dict[Outcome, dict[int, float]]:
        """What can come in a place, sorted, with its probability after every intention that may bring it."""
        found: dict[Outcome, dict[int, float]] = {}
        for action, transitions in self._table[place].items():
            for probability, next_place, reward, ended in transitions:
                if probability > 0:
                    shares = found.setdefault((int(next_place), float(reward), bool(ended)), {})
                    shares[action] = shares.get(action, 0.0) + float(probability)
        return dict(sorted(found.items()))
