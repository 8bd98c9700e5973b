"""Gymnasium's tabular environments, unrolled over a known horizon into a graph.

Read is the table `env.unwrapped.P` of the toy-text environments: P[s][a] = [(probability, s', reward, ended), …]. A
state of the graph is (t, s, return so far), an object (s, return, ended): where an episode of at most `horizon` steps
is when it ends or is cut off. The score of an object is its return above the smallest return there is, so that it is
never negative; R = max(score^β, floor).
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stochflow.config.yaml import parse_yaml
from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.environments.graphs.graph import Extent, Graph

FORM = "gym:ENVIRONMENT[:horizon=STEPS][:option=value…]"
EXAMPLE = "gym:FrozenLake-v1"
NOISE = "environment"
_DIGITS = 9  # returns that differ by less are the same

# s', reward, ended
Outcome = tuple[int, float, bool]


class State(NamedTuple):
    """Where an episode is on its way; the root before several starts has no place."""

    time: int
    place: int | None
    total: float


class End(NamedTuple):
    """Where an episode came to; it ended there, or was cut off by the horizon."""

    place: int
    total: float
    ended: bool


# one entry per outcome of a state: the node behind it and its probability after every intention
Row = list[tuple[State | End, list[float]]]


def gym_graph(parameters: str, slip: float) -> Graph:
    """The environment that stands after the colon, with its own noise and no other: `slip` must be zero."""
    if slip:
        raise ConfigError(f"the noise of gym:{parameters} is the environment's own; give --noise none")
    environment, horizon = make_environment(parameters)
    try:
        table, starts = _table(environment, parameters)
    finally:
        environment.close()
    unrolled = Unrolled(f"gym:{parameters}", table, horizon)
    unrolled.unroll(starts)
    return unrolled.graph()


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


def _table(environment: Any, parameters: str) -> tuple[dict[int, dict[int, Any]], list[tuple[int, float]]]:
    """P of an environment and its starts with their probabilities."""
    inside = environment.unwrapped
    table = getattr(inside, "P", None)
    starts = getattr(inside, "initial_state_distrib", None)
    if not isinstance(table, dict) or starts is None:
        raise ConfigError(
            f"gym:{parameters} carries no table of its transitions (env.unwrapped.P and initial_state_distrib), so it "
            "cannot be unrolled; choose a tabular environment such as FrozenLake-v1"
        )
    return table, [(state, float(share)) for state, share in enumerate(starts) if share > 0]


@dataclass
class Unrolled:
    """Finds all states within the horizon, breadth first, so that numbers rise with depth."""

    name: str
    table: dict[int, dict[int, Any]]
    horizon: int
    states: dict[State, int] = field(default_factory=dict)
    objects: dict[End, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @cached_property
    def num_actions(self) -> int:
        return max(len(actions) for actions in self.table.values())

    @cached_property
    def num_places(self) -> int:
        return max(self.table) + 1

    def unroll(self, starts: list[tuple[int, float]]) -> None:
        """From the start, or from a root before it whose only intention draws one."""
        root = State(0, starts[0][0], 0.0) if len(starts) == 1 else State(-1, None, 0.0)
        self.states[root] = 0
        self._check_size(1)
        waiting = [root]
        while waiting:
            found: list[State] = []
            for state in waiting:
                row = self._starts(starts) if state.place is None else self._steps(state, state.place)
                self.rows.append(row)
                self._check_size(len(row))
                for child, _ in row:
                    if isinstance(child, End):
                        self.objects.setdefault(child, len(self.objects))
                    elif child not in self.states:
                        self.states[child] = len(self.states)
                        found.append(child)
            waiting = found

    def _check_size(self, num_outcomes: int) -> None:
        """Refuse what has grown too large, while it grows."""
        num_states, num_features = len(self.states), self.num_places + self.horizon + 4
        num_nodes = num_states + len(self.objects)
        Extent(num_states, num_nodes, self.num_actions, num_outcomes, num_features, self.horizon).check(self.name)

    def _starts(self, starts: list[tuple[int, float]]) -> Row:
        nothing = [0.0] * (self.num_actions - 1)
        return [(State(0, place, 0.0), [share, *nothing]) for place, share in starts]

    def _steps(self, state: State, place: int) -> Row:
        """Children of a state with P after each intention, in an order that is the same at every time."""
        row: Row = []
        for (next_place, reward, ended), shares in outcomes_of(self.table[place], self.num_actions).items():
            total = round(state.total + reward, _DIGITS)
            last = ended or state.time + 1 == self.horizon
            row.append((End(next_place, total, ended) if last else State(state.time + 1, next_place, total), shares))
        return row

    def graph(self) -> Graph:
        """Everything found, as tensors."""
        num_states, num_outcomes = len(self.states), max(map(len, self.rows))
        self._check_size(num_outcomes)
        children = torch.full((num_states, num_outcomes), -1)
        dynamics = torch.zeros(num_states, self.num_actions, num_outcomes, dtype=torch.float64)
        for number, row in enumerate(self.rows):
            children[number, : len(row)] = torch.tensor([self._number(child) for child, _ in row])
            dynamics[number, :, : len(row)] = torch.tensor([shares for _, shares in row], dtype=torch.float64).T
        totals = dynamics.sum(dim=-1, keepdim=True)
        returns = torch.tensor([end.total for end in self.objects], dtype=torch.float64)
        scores = returns - returns.min()
        best = float(scores.max())
        return Graph(
            name=self.name,
            description=f"A Gymnasium environment over {self.horizon} steps; score: return above the smallest.",
            noise=NOISE,
            actions=tuple(str(action) for action in range(self.num_actions)),
            children=children,
            dynamics=dynamics / torch.where(totals > 0, totals, 1.0),
            kinds=torch.tensor([-1 if state.place is None else state.place for state in self.states]) + 1,
            depths=self._depths(),
            features=self._features(),
            scores=scores,
            labels=[f"{end.place}:{end.total:g}{'' if end.ended else ' cut off'}" for end in self.objects],
            mode_threshold=0.99 * best,
            outcomes_are_intentions=False,
        )

    def _number(self, child: State | End) -> int:
        return len(self.states) + self.objects[child] if isinstance(child, End) else self.states[child]

    def _depths(self) -> Tensor:
        """Steps from the root; objects stand after all states."""
        times = torch.tensor([state.time for state in self.states])
        times = times - times.min()
        return torch.cat([times, (times.max() + 1).expand(len(self.objects))])

    def _features(self) -> Tensor:
        """Place and time one-hot, return so far, whether it has ended; [S + X, places + horizon + 3]."""
        nodes = [(state.place or 0, state.time + 1, state.total, 0.0) for state in self.states]
        nodes += [(end.place, self.horizon + 1, end.total, 1.0) for end in self.objects]
        columns = [torch.tensor(column) for column in zip(*nodes, strict=True)]
        places, times = columns[:2]
        totals = columns[2] / columns[2].abs().max().clamp_min(1e-9)
        located = torch.nn.functional.one_hot(places, self.num_places)
        timed = torch.nn.functional.one_hot(times, self.horizon + 2)
        return torch.cat([located, timed, totals.unsqueeze(-1), columns[3].unsqueeze(-1)], dim=-1).float()


def outcomes_of(actions: dict[int, Any], num_actions: int) -> dict[Outcome, list[float]]:
    """What can come in one place, in a fixed order, with its probability after every intention."""
    found = {outcome: [0.0] * num_actions for outcome in sorted(set(_listed(actions)))}
    for action, transitions in actions.items():
        for probability, place, reward, ended in transitions:
            if probability > 0:
                found[int(place), float(reward), bool(ended)][action] += float(probability)
    return found


def _listed(actions: dict[int, Any]) -> Iterator[Outcome]:
    for transitions in actions.values():
        for probability, place, reward, ended in transitions:
            if probability > 0:
                yield int(place), float(reward), bool(ended)
