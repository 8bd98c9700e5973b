"""A finite world whose states form a directed acyclic graph: what can be intended where, and what may come of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError

# entries of the table states × intentions × outcomes: a gigabyte in float64 with its copies
MAX_ENTRIES = 2**24
# entries of the table nodes × features: a quarter of a gigabyte, and three times that while it is made
MAX_FEATURES = 2**26
# of an episode: every sweep and every batch goes through all depths one after the other
MAX_STEPS = 1000


@dataclass(frozen=True)
class Level:
    """The states of one depth, ready for a sweep.

    Attributes:
        states: [num].
        children: nodes behind their outcomes, the root where there is none, [num, C].
        possible: one where an outcome exists, zero elsewhere, float64, [num, C].
        steps: s·C + outcome of every outcome that exists, [num_steps].
        sources: the state of each step, [num_steps].
        targets: the node behind each step, [num_steps].
    """

    states: Tensor
    children: Tensor
    possible: Tensor
    steps: Tensor
    sources: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Graph:
    """States are numbered 0 … S − 1 with the root first, finished objects S … S + X − 1; together they are the nodes.

    Every step leads to a node of greater depth. Different outcomes of a state lead to different nodes.

    Attributes:
        name: what the command line calls it.
        description: one sentence for `stochflow tasks`.
        noise: slip α, or what else the noise is called.
        actions: names of the A intentions.
        children: node behind each outcome of a state, −1 where there is none, int64, [S, C].
        dynamics: P(outcome|s,a), float64, [S, A, C]; a row of zeros where the intention is not possible.
        kinds: number of the kind of each state, [S]; P may be expected to be the same in states of one kind.
        depths: int64, [S + X].
        features: what a network sees of a node, float32, [S + X, num_features].
        scores: score of every object, float64, [X].
        labels: name of every object.
        mode_threshold: an object that scores above it is a mode.
        outcomes_are_intentions: True when outcome i is what intention i is meant to bring; then A = C.
    """

    name: str
    description: str
    noise: float | str
    actions: tuple[str, ...]
    children: Tensor
    dynamics: Tensor
    kinds: Tensor
    depths: Tensor
    features: Tensor
    scores: Tensor
    labels: Sequence[str]
    mode_threshold: float
    outcomes_are_intentions: bool

    @property
    def num_states(self) -> int:
        return self.dynamics.shape[0]

    @property
    def num_actions(self) -> int:
        return self.dynamics.shape[1]

    @property
    def num_outcomes(self) -> int:
        return self.dynamics.shape[2]

    @property
    def num_objects(self) -> int:
        return len(self.scores)

    @property
    def num_nodes(self) -> int:
        return self.num_states + self.num_objects

    @cached_property
    def max_steps(self) -> int:
        """Steps of the longest episode."""
        return int(self.depths.max())

    @cached_property
    def cumulative(self) -> Tensor:
        """Sums of P(outcome|s,a) over the outcomes up to each, [S, A, C]."""
        return self.dynamics.cumsum(dim=-1)

    @cached_property
    def noiseless(self) -> bool:
        """True where every intention comes out as intended."""
        if not self.outcomes_are_intentions:
            return False
        return bool(self.dynamics.diagonal(dim1=1, dim2=2)[self.valid_actions].eq(1.0).all())

    @cached_property
    def valid_actions(self) -> Tensor:
        """True for intentions that are possible in a state, [S, A]."""
        return self.dynamics.sum(dim=-1) > 0

    @cached_property
    def possible(self) -> Tensor:
        """True for outcomes that exist in a state, [S, C]."""
        return self.children >= 0

    @cached_property
    def support(self) -> Tensor:
        """True for outcomes that an intention may have, [S, A, C]; a learner knows these, not how likely they are."""
        return self.dynamics > 0

    @cached_property
    def levels(self) -> list[Level]:
        """States by depth, the root's first."""
        depths = self.depths[: self.num_states]
        return [self._level((depths == depth).nonzero().squeeze(-1)) for depth in range(int(depths.max()) + 1)]

    def _level(self, states: Tensor) -> Level:
        children, possible = self.children[states], self.possible[states]
        steps = (states.unsqueeze(-1) * self.num_outcomes + torch.arange(self.num_outcomes))[possible]
        sources = steps // self.num_outcomes
        return Level(states, children.clamp_min(0), possible.double(), steps, sources, children[possible])

    @cached_property
    def parents(self) -> Tensor:
        """Steps that lead into each node as s·C + outcome, −1 where there are fewer, [S + X, most]."""
        steps = self.possible.flatten().nonzero().squeeze(-1)
        nodes = self.children.flatten()[steps]
        order = nodes.argsort(stable=True)
        steps, nodes = steps[order], nodes[order]
        counts = torch.bincount(nodes, minlength=self.num_nodes)
        places = torch.arange(len(nodes)) - (counts.cumsum(0) - counts)[nodes]
        table = torch.full((self.num_nodes, int(counts.max())), -1)
        table[nodes, places] = steps
        return table

    @cached_property
    def parent_places(self) -> Tensor:
        """Which parent of its child a state is: column of `parents`, by step, [S, C]; zero where there is no step."""
        places = torch.zeros(self.children.numel(), dtype=torch.int64)
        nodes, columns = (self.parents >= 0).nonzero(as_tuple=True)
        places[self.parents[nodes, columns]] = columns
        return places.reshape(self.children.shape)

    @cached_property
    def log_completions(self) -> Tensor:
        """log of the number of objects that can still be reached by counting paths once each, float64, [S + X].

        Every path counts 1/(number of paths into its object), so the root has log X: where log F starts.
        """
        backward = (self.parents >= 0).double()
        backward = backward / backward.sum(dim=-1, keepdim=True).clamp_min(1)
        totals = torch.zeros(self.num_nodes, dtype=torch.float64)
        totals[self.num_states :] = 1.0
        for level in reversed(self.levels):
            shares = backward[level.children, self.parent_places[level.states]]
            totals[level.states] = (shares * totals[level.children] * level.possible).sum(dim=-1)
        return totals.clamp_min(torch.finfo(torch.float64).tiny).log()


def check_extent(
    name: str, num_states: int, num_nodes: int, num_actions: int, num_outcomes: int, num_features: int, num_steps: int
) -> None:
    """Refuse a graph, before it is made, whose tables would not fit, or whose episodes would never end."""
    if num_steps > MAX_STEPS:
        raise ConfigError(
            f"an episode of '{name}' may have {num_steps:,} steps, and {MAX_STEPS:,} is the most there may be; choose "
            "a smaller one"
        )
    if num_states * num_actions * num_outcomes > MAX_ENTRIES or num_nodes * num_features > MAX_FEATURES:
        raise ConfigError(
            f"'{name}' is too large for tables of {MAX_ENTRIES:,} steps and {MAX_FEATURES:,} features; choose a "
            "smaller one"
        )
