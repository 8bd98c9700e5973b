"""How often a run is evaluated while it trains: a small share of its time, estimated from counts of operations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stochflow.config.schema import Config

# of the time of training, at most; the last evaluation comes whatever it costs
SHARE = 0.025
MOST = 20
SELDOM = 1.0 / MOST  # where nothing exact can be computed, and an evaluation reads the last batch

# Seconds that counts on paper came to, on one core of a machine of 2026. Only their ratios matter, but for a budget in
# minutes; docs/explanation/performance.md, "Exact evaluation", has what was measured beside them
_SWEPT = 5e-11  # a multiplication or addition of the network in an exact sweep
_LEARNED = 3e-11  # the same in an update: the rows of a batch are one product
_PLANNED = 6e-11  # the same in an update of planned states, whose prefixes have nothing in common
_OBJECT = 6e-8  # the probability of one object, in the figures that are made of it
_LEVEL = 2e-4
_UPDATE = 1e-3
_STEP = 5e-3
_CHAIN_STEP = 1e-3
_MAX_PLANNED = 8192


@dataclass(frozen=True)
class Space:
    """What a task spans.

    Attributes:
        level_sizes: states at every depth.
        num_actions: intentions of a state.
        num_objects: what can be made.
        num_steps: that an episode takes at the least, roughly.
    """

    level_sizes: Sequence[int]
    num_actions: int
    num_objects: int
    num_steps: int

    def times(self, num: int) -> "Space":
        """So many tasks that each span it."""
        return replace(self, level_sizes=[num * size for size in self.level_sizes], num_objects=num * self.num_objects)


def sequence_space(num_tokens: int, length: int) -> Space:
    """The full tree of prefixes."""
    return Space([num_tokens**depth for depth in range(length)], num_tokens, num_tokens**length, length)


def evaluated_every(config: Config, space: Space | None) -> float:
    """Share of the budget after which the policy is evaluated again; at least 1/20, at most the whole.

    Args:
        space: None where nothing exact can be computed.
    """
    if config.evaluation.every is not None:
        return config.evaluation.every
    if space is None:
        return SELDOM
    affordable = SHARE * training_seconds(config, space) / evaluation_seconds(config, space)
    return 1.0 / min(max(int(affordable), 1), MOST)


def evaluation_seconds(config: Config, space: Space) -> float:
    """The network at every state, then one probability per object; on paper."""
    width = config.model.width
    per_state = 2.0 * config.model.num_layers * width**2 + 2.0 * width * space.num_actions
    swept = _SWEPT * sum(space.level_sizes) * per_state
    return swept + _OBJECT * space.num_objects + _LEVEL * len(space.level_sizes)


def training_seconds(config: Config, space: Space) -> float:
    """The updates of the whole budget, on paper: rather too few, for every call pays for a trajectory of its own."""
    budget, optimiser = config.budget, config.optimiser
    if budget.minutes is not None:
        return 60.0 * budget.minutes
    trajectories = budget.trajectories or budget.oracle_calls or 0
    steps = float(budget.steps or math.ceil(trajectories / optimiser.batch_size))
    if not config.objective.record.trains_policy:  # a judgement says little of these, or costs more than they do
        return steps * _CHAIN_STEP
    batch = min(optimiser.batch_size, trajectories or optimiser.batch_size)
    return steps * (_STEP + optimiser.updates * _update_seconds(config, space, batch))


def _update_seconds(config: Config, space: Space, batch: int) -> float:
    """Three passes over the states that an update learns from; those that a batch shares are evaluated once."""
    width = config.model.width
    per_state = 2.0 * config.model.num_layers * width**2 + 2.0 * width * (2 * space.num_actions + 1)
    if config.objective.record.plans:
        per_level = min(config.plan.rows_per_level, _MAX_PLANNED // len(space.level_sizes))
        return _UPDATE + 3.0 * _PLANNED * per_state * sum(min(per_level, size) for size in space.level_sizes)
    rows = min(sum(min(batch, size) for size in space.level_sizes), batch * space.num_steps)
    return _UPDATE + 3.0 * _LEARNED * per_state * rows
