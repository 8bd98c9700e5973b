"""A policy that reads the pairs (intended, came) so far, and the probability of what it makes."""

import math
from typing import Any

import torch
from torch import Tensor

from stochflow.core.logspace import TINY_PROBABILITY, pick
from stochflow.environments.channels import Channel
from stochflow.environments.memory_channels import MemoryChannel
from stochflow.models.base import Sampler
from stochflow.models.evaluation import AlongPaths
from stochflow.models.history import HistoryNetwork, HistorySampler
from stochflow.sampling.rollout import Walk

NUM_HISTORIES = 32
_SEED = 0
_BLOCK = 256


class HistoryPolicy:
    """π(a|s_t, pairs so far).

    P_π(x) sums over all intentions that may have led to x. `log_bounds` estimates it from some of them, drawn letter by
    letter from π(a|h)·P(x_t|h,a)/M(x_t|h) with weight Π M(x_t|h): without the intentions of the episode itself that is
    too low on average, with them too high, and the truth lies between. `log_probs` is the upper one: J is understated.
    """

    def __init__(self, network: HistoryNetwork) -> None:
        self._network = network

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        return self._network.sampler(batch_size)

    def terminal_log_probs(self, environment: Any) -> Tensor:
        """Not available: every object has as many histories as there are intentions."""
        raise ValueError("a policy that reads history is evaluated from draws; ask for log_probs of a walk")

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        return self.log_bounds(walk, environment.channel)[1]

    @torch.no_grad()
    def visits(self, walk: Walk, environment: Any) -> Tensor:
        where = AlongPaths(walk.outcomes, walk.valid, intentions=walk.intentions)
        return self._network.evaluate(where).heads().log_policy.cpu().exp().double() / walk.outcomes.numel()

    def log_bounds(self, walk: Walk, channel: Channel, num_histories: int = NUM_HISTORIES) -> tuple[Tensor, Tensor]:
        """log P_π(x) of what episodes made: estimates that are too low and too high on average, float64, [num] each.

        The gap falls as 1/num_histories. The same walk always gets the same numbers.
        """
        generator = torch.Generator().manual_seed(_SEED)
        blocks = [
            self._log_weights(rows[0], rows[1], channel, num_histories, generator)
            for rows in zip(walk.intentions.split(_BLOCK), walk.outcomes.split(_BLOCK), strict=True)
        ]
        log_weights = torch.cat(blocks)
        fresh = torch.logsumexp(log_weights[:, 1:], dim=1) - math.log(num_histories)
        return fresh, torch.logsumexp(log_weights, dim=1) - math.log(num_histories + 1)

    @torch.no_grad()
    def _log_weights(
        self, intentions: Tensor, outcomes: Tensor, channel: Channel, num_histories: int, generator: torch.Generator
    ) -> Tensor:
        """Σ_t log M(x_t|h_t) along the episode's own history and then others; [num, L] twice → [num, 1 + histories]."""
        each = num_histories + 1
        sampler = HistorySampler(self._network, len(outcomes) * each)
        came, meant = outcomes.repeat_interleave(each, dim=0), intentions.repeat_interleave(each, dim=0)
        own = torch.arange(len(came)) % each == 0
        world = _Predictor(channel, len(came))
        total = torch.zeros(len(came), dtype=torch.float64)
        for time in range(outcomes.shape[1]):
            log_matrices = world.log_matrices(time)
            log_policy, letters = sampler.log_probs().double().cpu(), came[:, time]
            joint = log_policy + pick(log_matrices, letters[:, None].expand(-1, log_policy.shape[1]))
            total += torch.logsumexp(joint, dim=-1)
            drawn = torch.multinomial(torch.softmax(joint, dim=-1), 1, generator=generator).squeeze(1)
            chosen = torch.where(own, meant[:, time], drawn)
            world.observe(chosen, letters)
            sampler.observe(chosen.numpy(), letters.numpy())
        return total.view(-1, each)


class _Predictor:
    """P(b|pairs so far, a) of the true channel in many episodes at once."""

    def __init__(self, channel: Channel, num: int) -> None:
        self._channel, self._num = channel, num
        self._beliefs = channel.start.expand(num, -1) if isinstance(channel, MemoryChannel) else None

    def log_matrices(self, time: int) -> Tensor:
        """[num, K, K]."""
        if isinstance(self._channel, MemoryChannel) and self._beliefs is not None:
            return self._channel.predictive(self._beliefs).clamp_min(TINY_PROBABILITY).log()
        return self._channel.matrix(time).clamp_min(TINY_PROBABILITY).log().expand(self._num, -1, -1)

    def observe(self, intended: Tensor, came: Tensor) -> None:
        if isinstance(self._channel, MemoryChannel) and self._beliefs is not None:
            self._beliefs = self._channel.updated(self._beliefs, intended, came)
