"""The loop over time for several runs at once; every run draws from its own generators what it would draw alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stochflow.channels import Channel
from stochflow.rollout import Exploration, Walk, start_depths


class StackedSampler(Protocol):
    """Walks the prefixes of all runs forward, one token at a time."""

    def log_policy(self) -> tuple[Tensor, Tensor | None]:
        """log π(·|s) at the current prefixes, up to a constant, and which intentions are allowed; [runs, batch, K]."""

    def advance(self, outcomes: Tensor) -> None:
        """Append one token per row, [runs, batch]."""


@dataclass(frozen=True)
class Draws:
    """Random numbers of a whole rollout, drawn beforehand; all [time, runs, batch, ...].

    Attributes:
        intentions: exponential, [..., K]: the token with the largest p/noise is a draw from p, which is how
            `torch.multinomial` does it.
        outcomes: uniform, float64.
        starts: depth at which an episode begins, [runs, batch].
        anything: random tokens of the prefixes before; None where all episodes begin at the root.
    """

    intentions: Tensor
    outcomes: Tensor
    starts: Tensor
    anything: Tensor | None


@torch.no_grad()
def stacked_rollout(sampler: StackedSampler, channel: Channel, draws: Draws, exploration: Exploration) -> Walk:
    """Episodes of all runs; every field of the walk is [runs, batch, time]."""
    steps = []
    valid = draws.starts.unsqueeze(-1) <= torch.arange(len(draws.outcomes))
    with torch.inference_mode():
        for depth, (noise, uniform) in enumerate(zip(draws.intentions, draws.outcomes, strict=True)):
            behaviour = exploration.behaviour(*sampler.log_policy())
            intentions = (behaviour / noise).argmax(dim=-1)
            outcomes = channel.outcomes(intentions, depth, uniform)
            if draws.anything is not None:
                outcomes = torch.where(valid[..., depth], outcomes, draws.anything[depth])
            sampler.advance(outcomes)
            steps.append((intentions, outcomes, behaviour))
    intentions, outcomes, behaviour = (torch.stack(column, dim=2) for column in zip(*steps, strict=True))
    chosen = behaviour.gather(-1, intentions.unsqueeze(-1)).squeeze(-1).log()
    return Walk(intentions, outcomes, valid, chosen if draws.anything is None else chosen.masked_fill_(~valid, 0.0))


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
    intentions = torch.empty(length, len(runs), batch_size, channel.num_tokens, dtype=dtype)
    outcomes = torch.empty(length, len(runs), batch_size, dtype=torch.float64)
    starts = torch.zeros(len(runs), batch_size, dtype=torch.int64)
    anything = torch.empty(outcomes.shape, dtype=torch.int64) if restarts else None
    for run, generators in enumerate(runs):
        policy = generators["policy"]
        if channel.slip != 0.0:  # a world that obeys draws nothing
            outcomes[:, run] = torch.rand(length, batch_size, generator=generators["channel"], dtype=torch.float64)
        if anything is None:
            # element by element, so one draw of all steps is the draws of the steps
            noise = torch.empty(length, batch_size, channel.num_tokens, dtype=dtype)
            intentions[:, run] = noise.exponential_(generator=policy)
            continue
        starts[run] = start_depths(batch_size, length, restarts, policy)
        for depth in range(length):
            intentions[depth, run].exponential_(generator=policy)
            anything[depth, run] = torch.randint(channel.num_tokens, (batch_size,), generator=policy)
    return Draws(intentions, outcomes, starts, anything)
