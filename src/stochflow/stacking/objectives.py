"""The objectives of several runs: one loss per run, from networks that are evaluated together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from stochflow.models.flow_network import Heads
from stochflow.objectives.balance import PathBalance, Paths, Steps, named_moments, observed_paths, steps_on
from stochflow.objectives.base import Learner, Terms
from stochflow.objectives.divergence import TrajectoryKL
from stochflow.stacking.dynamics import StackedDynamics
from stochflow.stacking.network import StackedNetwork, StackedWalker
from stochflow.stacking.rollout import StackedSampler
from stochflow.trajectory import Trajectories

_COLUMNS = [field.name for field in fields(Trajectories) if field.name != "recorder"]
_DRAWN_AT_ONCE = 32  # updates whose remembered batches are drawn together


class StackedObjective(Protocol):
    """Turns the fresh batches of all runs into loss terms."""

    def sampler(self, batch_size: int) -> tuple[StackedSampler, torch.dtype]:
        """Where training trajectories come from, and the precision of its policy."""

    def updates(self, fresh: Sequence[Trajectories], step: int, progress: float) -> Iterator[Terms]:
        """Terms [runs], one dictionary per parameter update; each is computed after the update before it."""


@dataclass(frozen=True)
class Together:
    """The parts of all runs that a stacked objective reads; the learners differ in weights, memory and replay."""

    learners: Sequence[Learner]
    network: StackedNetwork
    dynamics: StackedDynamics

    def replayed(self, fresh: Sequence[Trajectories], step: int) -> Iterator[tuple[Paths, Tensor]]:
        """The fresh batches, then remembered ones, as in `Learner.replayed`; see `paths`."""
        yield self.paths(stacked(fresh), step)
        size, left = len(fresh[0]), self.learners[0].config.optimiser.updates - 1
        while left:
            num = min(left, _DRAWN_AT_ONCE)
            left -= num
            # rows are drawn one after the other, so one draw of many batches is many draws of one
            drawn = [learner.replay.sample(num * size, learner.generators["replay"]) for learner in self.learners]
            paths, rows = self.paths(stacked(drawn), step)
            for *columns, part in zip(*(column.split(size, dim=1) for column in (*paths, rows)), strict=True):
                yield Paths(*columns), part

    def paths(self, batch: Trajectories, step: int) -> tuple[Paths, Tensor]:
        """What the batches of all runs say by themselves, [runs, batch, ...], and the rows of their k-mers."""
        flat = Trajectories(**{name: getattr(batch, name).flatten(0, 1) for name in _COLUMNS}, recorder=None)
        paths = observed_paths(self.learners[0], flat, step)  # rewards and masks are the same for all runs
        shape = batch.outcomes.shape[:2]
        return Paths(*(column.unflatten(0, shape) for column in paths)), self.network.rows(batch.outcomes)


class NetworkWalk:
    """Sampling from the policy networks."""

    def __init__(self, network: StackedNetwork, batch_size: int) -> None:
        self._walker = StackedWalker(network, batch_size)

    def recorded(self) -> list[Tensor]:
        """See `StackedWalker.recorded`."""
        return self._walker.recorded()

    def log_policy(self) -> tuple[Tensor, Tensor | None]:
        allowed = self._walker.allowed
        return self._walker.log_policy(allowed), allowed

    def advance(self, outcomes: Tensor) -> None:
        self._walker.advance(outcomes)


class _OnPaths:
    """What objectives along paths have in common."""

    _walk: NetworkWalk | None = None

    def __init__(self, together: Together) -> None:
        self.together = together

    def sampler(self, batch_size: int) -> tuple[StackedSampler, torch.dtype]:
        self._walk = NetworkWalk(self.together.network, batch_size)
        return self._walk, self.together.network.dtype

    def heads(self, outcomes: Tensor, rows: Tensor, backward: bool, flow: bool, fresh: bool) -> Heads:
        """log π and log F at s_t and log π_B at s_{t+1}, as far as they are asked for; [runs, batch, time, ...].

        Args:
            fresh: True for what was sampled last, before any update.
        """
        network = self.together.network
        single, flat = network.single, outcomes.flatten(0, 1)
        runs, batch, time = outcomes.shape
        # without π_B nothing is asked at the end
        known = self._walk.recorded() if fresh and not backward and self._walk is not None else None
        features = network.prefix_features(rows if backward else rows[:, :, :-1], known)
        before = features[:, :, :time].flatten(1, 2)
        allowed = None
        if single.mask is not None:
            allowed = single.mask.all_prefixes(flat)[:, :-1].reshape(runs, batch * time, -1)
        left = single.steps_left(flat)[..., :-1].expand(runs * batch, -1).reshape(runs, -1)
        log_policy = network.log_policy(before, allowed)
        nothing = log_policy.new_zeros(runs, batch, time)
        return Heads(
            log_policy=log_policy.unflatten(1, (batch, time)),
            log_backward=(
                network.log_backward(features[:, :, 1:].flatten(1, 2)).unflatten(1, (batch, time))
                if backward
                else nothing
            ),
            log_flow=network.log_flow(before, left).unflatten(1, (batch, time)) if flow else nothing,
        )


class StackedBalance(_OnPaths):
    """Balance along a path."""

    def __init__(self, together: Together, objectives: Sequence[PathBalance]) -> None:
        super().__init__(together)
        self._objective = objectives[0]

    def updates(self, fresh: Sequence[Trajectories], step: int, progress: float) -> Iterator[Terms]:
        objective, config = self._objective, self._objective.learner.config.objective
        realised = config.path == "realised"

        def judged(*columns: Tensor) -> tuple[Tensor, Tensor]:
            steps = Steps(*columns)
            return objective.loss(steps, config), steps.values()

        def aware(paths: Paths, heads: Heads, log_matrices: Tensor) -> tuple[Tensor, Tensor]:
            return judged(*vars(steps_on(config, paths, heads, log_matrices)).values())

        backward = not realised and config.backward == "learned"
        for number, (paths, rows) in enumerate(self.together.replayed(fresh, step)):
            heads = self.heads(paths.outcomes, rows, backward, flow=True, fresh=number == 0)
            if realised:  # steps know nothing of runs, so only what is averaged over them needs to be mapped
                flat = [[column.flatten(0, 1) for column in each] for each in (paths, heads)]
                steps = steps_on(config, Paths(*flat[0]), Heads(*flat[1]), None)
                shape = paths.outcomes.shape[:2]
                losses, values = vmap(judged)(*(column.unflatten(0, shape) for column in vars(steps).values()))
            else:
                log_matrices = self.together.dynamics.log_matrices(paths.outcomes)
                losses, values = vmap(aware)(paths, heads, log_matrices)
            yield {"loss": losses, **named_moments(values, paths.valid)}


class StackedTrajectoryKL(_OnPaths):
    """SGFN-KL over trajectories."""

    def __init__(self, together: Together, objectives: Sequence[TrajectoryKL]) -> None:
        super().__init__(together)
        self._objectives = objectives

    def updates(self, fresh: Sequence[Trajectories], step: int, progress: float) -> Iterator[Terms]:
        objective = self._objectives[0]

        def terms_of(paths: Paths, log_policy: Tensor, log_matrices: Tensor, log_behaviour: Tensor) -> Terms:
            return objective.path_terms(paths, log_policy, log_matrices, log_behaviour, progress)

        batch = stacked(fresh)
        paths, rows = self.together.paths(batch, step)
        log_policy = self.heads(paths.outcomes, rows, backward=False, flow=False, fresh=True).log_policy
        log_matrices = self.together.dynamics.log_matrices(paths.outcomes)
        terms = vmap(terms_of)(paths, log_policy, log_matrices, batch.log_behaviour)
        for run, each in enumerate(self._objectives):
            each.note({name: term[run] for name, term in terms.items()})
        yield terms


def stacked(batches: Sequence[Trajectories]) -> Trajectories:
    """Batches of equal size as one with the runs in front of every field."""
    columns = {name: torch.stack([getattr(batch, name) for batch in batches]) for name in _COLUMNS}
    return Trajectories(**columns, recorder=None)
