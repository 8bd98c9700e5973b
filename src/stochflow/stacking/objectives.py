"""The objectives of several runs: one loss per run, from networks that are evaluated together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.func import vmap

from stochflow.models.flow_network import Heads
from stochflow.models.prefixes import Numbers
from stochflow.objectives.balance import (
    SPREAD,
    PathBalance,
    Paths,
    Steps,
    has_written_loss,
    moments,
    named_moments,
    pulled,
    steps_on,
)
from stochflow.objectives.base import TensorTerms
from stochflow.objectives.divergence import TrajectoryKL
from stochflow.objectives.written import Array, Pulls, WrittenPaths
from stochflow.stacking.recorder import StackedRecorder, StackedSpace, StackedWalker
from stochflow.stacking.rollout import StackedSampler
from stochflow.stacking.together import Together, flattened
from stochflow.trajectory import Trajectories

StackedTerms = Mapping[str, Tensor | Array]  # [runs] each


class StackedObjective(Protocol):
    """Turns the fresh batches of all runs into loss terms."""

    def sampler(self, batch_size: int) -> tuple[StackedSampler, torch.dtype]:
        """Where training trajectories come from, and the precision of its policy."""

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[StackedTerms]:
        """Terms [runs], one dictionary per parameter update; each is computed after the update before it.

        Every field of the fresh batches is [runs, batch, ...].

        A loss that autograd knows nothing of has given the weights its gradient already.
        """


class _OnPaths:
    """What objectives along paths have in common."""

    _walker: StackedWalker | None = None

    def __init__(self, together: Together, leaves: bool) -> None:
        """Where `leaves` is True the complete sequences are evaluated too."""
        self.together, self._leaves = together, leaves
        self._spaces: dict[int, StackedSpace] = {}

    def sampler(self, batch_size: int) -> tuple[StackedSampler, torch.dtype]:
        self._walker = StackedWalker(self.together.network, self._space(batch_size))
        return self._walker, self.together.network.dtype

    def _space(self, batch_size: int) -> StackedSpace:
        if batch_size not in self._spaces:  # the last batch of a run may be smaller than the others
            network = self.together.network
            self._spaces = {batch_size: StackedSpace(network, batch_size, network.body.length + self._leaves)}
        return self._spaces[batch_size]

    def recorder(self, paths: Paths, rows: Numbers | None) -> StackedRecorder | None:
        """The networks at every prefix of paths whose steps are all real; None where autograd has to do it.

        Args:
            rows: of the k-mers, if they are known already.
        """
        walker, self._walker = self._walker, None  # what sampling computed holds until the first update
        network = self.together.network
        if network.single.mask is not None or not self.together.all_real(paths):
            return None
        if walker is not None:
            if self._leaves:
                walker.finish()
            return walker.recorder
        rows = network.rows(paths.outcomes) if rows is None else rows
        recorder = StackedRecorder(self._space(rows.shape[1]))
        recorder.grow_all(rows, paths.outcomes.numpy())
        recorder.evaluate()
        return recorder

    def heads(self, outcomes: Tensor, rows: Numbers | None, backward: bool, flow: bool) -> Heads:
        """log π and log F at s_t and log π_B at s_{t+1}, as far as they are asked for; [runs, batch, time, ...]."""
        network = self.together.network
        single, flat = network.single, outcomes.flatten(0, 1)
        runs, batch, time = outcomes.shape
        # without π_B nothing is asked at the end
        rows = network.rows(outcomes) if rows is None else rows
        features = network.prefix_features(rows if backward else rows[:, :, :-1])
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
        self._objective, self._config = objectives[0], objectives[0].learner.config.objective
        self._realised = self._config.path == "realised"
        super().__init__(together, leaves=not self._realised and self._config.backward == "learned")

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[StackedTerms]:
        for paths, rows in self.together.replayed(fresh, step):
            terms = self._written(paths, rows)
            yield self._judged(paths, rows) if terms is None else terms

    @torch.no_grad()
    def _written(self, paths: Paths, rows: Numbers | None) -> StackedTerms | None:
        """What `written_terms` says of one run, for all of them."""
        config, network, pulls = self._config, self.together.network.single, self._objective.pulls
        if pulls is None or not has_written_loss(config):
            return None
        recorder = self.recorder(paths, rows)
        if recorder is None:
            return None
        written = WrittenPaths(recorder.rows(), network.num_tokens, network.length)
        shape = paths.outcomes.shape[:2]
        flat = Paths(*(column.flatten(0, 1) for column in paths))
        log_matrices = None if self._realised else self.together.flat_matrices(paths.outcomes)
        losses, values = pulled(written, config, flat, log_matrices, partial(pulls_apart, pulls, shape[0]))
        recorder.pull(written.gradient)
        apart = values.reshape(len(values), *shape, -1).swapaxes(0, 1)
        return {"loss": losses, **dict(zip(SPREAD, moments(apart, None).T, strict=True))}

    def _judged(self, paths: Paths, rows: Numbers | None) -> TensorTerms:
        """The same by autograd, for any loss and any steps."""
        objective, config = self._objective, self._config

        def judged(*columns: Tensor) -> tuple[Tensor, Tensor]:
            steps = Steps(*columns)
            return objective.loss(steps, config), steps.values()

        def aware(paths: Paths, heads: Heads, log_matrices: Tensor) -> tuple[Tensor, Tensor]:
            return judged(*vars(steps_on(config, paths, heads, log_matrices)).values())

        heads = self.heads(paths.outcomes, rows, self._leaves, flow=True)
        if self._realised:  # steps know nothing of runs, so only what is averaged over them needs to be mapped
            flat = [[column.flatten(0, 1) for column in each] for each in (paths, heads)]
            steps = steps_on(config, Paths(*flat[0]), Heads(*flat[1]), None)
            shape = paths.outcomes.shape[:2]
            losses, values = vmap(judged)(*(column.unflatten(0, shape) for column in vars(steps).values()))
        else:
            log_matrices = self.together.dynamics.log_matrices(paths.outcomes)
            losses, values = vmap(aware)(paths, heads, log_matrices)
        return {"loss": losses, **named_moments(values, paths.valid)}


def pulls_apart(pulls: Callable[[Array], Pulls], num_runs: int, values: Array) -> Pulls:
    """The pulls of runs that follow one another in a batch, each for itself; the five terms, [5, runs·batch, time]."""
    found = pulls(values.reshape(len(values), num_runs, -1, values.shape[-1]))
    return Pulls(found.loss, found.ratio.reshape(values.shape[1:]), found.flow.reshape(values.shape[1:]))


class StackedTrajectoryKL(_OnPaths):
    """SGFN-KL over trajectories."""

    def __init__(self, together: Together, objectives: Sequence[TrajectoryKL]) -> None:
        super().__init__(together, leaves=False)
        self._objectives = objectives

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[StackedTerms]:
        paths = self.together.paths(fresh, step)
        terms = self._written(fresh, paths, progress)
        if terms is None:
            terms = self._judged(fresh, paths, progress)
        for each, residual in zip(self._objectives, terms["reward_adjusted_diff_mean"].tolist(), strict=True):
            each.note({"reward_adjusted_diff_mean": residual})
        yield terms

    @torch.no_grad()
    def _written(self, batch: Trajectories, paths: Paths, progress: float) -> StackedTerms | None:
        """What the objective says of one run by a written-out gradient, for all of them; None where there is none."""
        objective = self._objectives[0]
        recorder = self.recorder(paths, None)
        if recorder is None:
            return None
        num_runs, _, length = paths.outcomes.shape
        written = WrittenPaths(recorder.rows(), self.together.network.single.num_tokens, length)
        log_matrices = self.together.flat_matrices(paths.outcomes)
        log_reward = paths.log_reward.flatten().numpy()
        found = objective.pulled(written, flattened(batch), log_reward, log_matrices, progress, num_runs)
        recorder.pull(written.gradient)
        return found

    def _judged(self, batch: Trajectories, paths: Paths, progress: float) -> TensorTerms:
        """The same by autograd, for any steps and with a gradient of the entropy."""
        objective = self._objectives[0]

        def terms_of(paths: Paths, log_policy: Tensor, log_matrices: Tensor, log_behaviour: Tensor) -> TensorTerms:
            return objective.path_terms(paths, log_policy, log_matrices, log_behaviour, progress)

        log_policy = self.heads(paths.outcomes, None, backward=False, flow=False).log_policy
        log_matrices = self.together.dynamics.log_matrices(paths.outcomes)
        return vmap(terms_of)(paths, log_policy, log_matrices, batch.log_behaviour)
