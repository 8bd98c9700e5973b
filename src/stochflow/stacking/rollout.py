"""The loop over time for several runs at once; every run draws from its own generators what it would draw alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from stochflow.channels import Channel
from stochflow.objectives.written import log_softmax
from stochflow.rollout import Array, Exploration, Walk, start_depths


class StackedSampler(Protocol):
    """Walks the prefixes of all runs forward, one token at a time."""

    def log_policy(self) -> Array:
        """log π(·|s) at the current prefixes, up to a constant, [runs, batch, K]."""

    def allowed(self) -> Tensor | None:
        """True for intentions that exploration may try too, [runs, batch, K]; None for all."""

    def advance(self, outcomes: Array) -> None:
        """Append one token per row, [runs, batch]."""


@dataclass(frozen=True)
class Draws:
    """Random numbers of a whole rollout, drawn beforehand; all [runs, time, batch, ...].

    Attributes:
        log_clocks: logarithms of exponential numbers, [..., K]: the token with the largest log p − log clock is a draw
            from p, which is how `torch.multinomial` does it.
        outcomes: uniform, float64.
        starts: depth at which an episode begins, [runs, batch].
        anything: random tokens of the prefixes before; None where all episodes begin at the root.
    """

    log_clocks: Array
    outcomes: Array
    starts: Array
    anything: Array | None


@torch.no_grad()
def stacked_rollout(
    sampler: StackedSampler, channel: Channel, draws: Draws, exploration: Exploration, judge_behaviour: bool = True
) -> Walk:
    """Episodes of all runs; every field of the walk is [runs, batch, time].

    Args:
        judge_behaviour: False to leave `log_behaviour` at zero.
    """
    runs, length, size = draws.outcomes.shape
    valid = draws.starts[..., None] <= np.arange(length)
    intentions, outcomes = (np.empty((runs, size, length), np.int64) for _ in range(2))
    chosen, log_behaviours = np.zeros((runs, size, length), np.float32), []
    with torch.inference_mode():
        for depth in range(length):
            log_behaviour = exploration.log_behaviour(sampler.log_policy(), sampler.allowed())
            # in numpy, whose operations on a handful of numbers cost a fraction of torch's
            intended = (log_behaviour - draws.log_clocks[:, depth]).argmax(axis=-1)
            outcome = intended
            if channel.slip != 0.0:  # otherwise the world obeys
                outcome = channel.realised(intended, depth, draws.outcomes[:, depth])
            if draws.anything is not None:
                outcome = np.where(valid[..., depth], outcome, draws.anything[:, depth])
            sampler.advance(outcome)
            intentions[..., depth], outcomes[..., depth] = intended, outcome
            log_behaviours.append(log_behaviour)
        if judge_behaviour:
            log_probs, _ = log_softmax(np.stack(log_behaviours, axis=2))
            chosen = np.take_along_axis(log_probs, intentions[..., None], axis=-1)[..., 0]
            chosen[~valid] = 0.0
    return Walk(*map(torch.from_numpy, (intentions, outcomes, valid, chosen)))


def draw_all(
    runs: Sequence[Mapping[str, torch.Generator]],
    channel: Channel,
    shape: tuple[int, int],
    restarts: float,
    dtype: torch.dtype,
) -> Draws:
    """What a rollout of every run consumes, each stream in its own order.

    Args:
        runs: the generators of each run.
        shape: batch size and length.
        restarts: share of episodes that start from a random prefix.
        dtype: of the policy that intentions are drawn from.
    """
    batch_size, length = shape
    clocks = torch.empty(len(runs), length, batch_size, channel.num_tokens, dtype=dtype)
    outcomes = torch.empty(len(runs), length, batch_size, dtype=torch.float64)
    starts = np.zeros((len(runs), batch_size), np.int64)
    anything = np.empty(outcomes.shape, np.int64) if restarts else None
    for run, generators in enumerate(runs):
        policy = generators["policy"]
        if channel.slip != 0.0:  # a world that obeys draws nothing
            outcomes[run].uniform_(generator=generators["channel"])
        if anything is None:
            # element by element, so one draw of all steps is the draws of the steps
            clocks[run].exponential_(generator=policy)
            continue
        starts[run] = start_depths(batch_size, length, restarts, policy).numpy()
        for depth in range(length):
            clocks[run, depth].exponential_(generator=policy)
            anything[run, depth] = torch.randint(channel.num_tokens, (batch_size,), generator=policy).numpy()
    return Draws(clocks.log_().numpy(), outcomes.numpy(), starts, anything)
