"""Environment + sampler → trajectories: the sampling loop over time."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.core.logspace import masked_log_softmax, pick
from stochflow.environments.base import Environment, Streams
from stochflow.models.base import PairSampler, Sampler


@dataclass(frozen=True)
class Exploration:
    """How intentions are drawn during training; the default is the policy itself, which is how it is evaluated."""

    epsilon: float = 0.0
    temperature: float = 1.0
    restarts: float = 0.0

    def log_behaviour(self, log_policy: Array, allowed: Tensor | None = None) -> Array:
        """The logarithm of `behaviour`, up to a constant in each row."""
        if self.epsilon == 0.0 and self.temperature == 1.0 and allowed is None:
            return log_policy
        return self.behaviour(torch.from_numpy(log_policy), allowed).log().numpy()

    def behaviour(self, log_policy: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(1 − ε)·softmax(log π/temperature) + ε/K, over the allowed intentions alone; [batch, K] each."""
        if self.temperature != 1.0:
            log_policy = log_policy / self.temperature
        if allowed is None:
            probs = torch.softmax(log_policy, dim=-1)
            return probs.mul_(1.0 - self.epsilon).add_(self.epsilon / probs.shape[-1]) if self.epsilon else probs
        probs = masked_log_softmax(log_policy, allowed).exp()
        anything = self.epsilon / allowed.sum(dim=-1, keepdim=True) * allowed
        return (1.0 - self.epsilon) * probs + anything


@dataclass(frozen=True)
class Walk:
    """An unscored batch of episodes; the fields are those of `Trajectories`."""

    intentions: Tensor
    outcomes: Tensor
    valid: Tensor
    log_behaviour: Tensor

    def __len__(self) -> int:
        return self.outcomes.shape[0]

    @property
    def ordered(self) -> "Walk":
        """The same as if everything had come as intended: where a sampler that goes on from its intentions has been."""
        return replace(self, outcomes=self.intentions)

    def first(self, num: int) -> "Walk":
        """The first so many episodes."""
        return Walk(self.intentions[:num], self.outcomes[:num], self.valid[:num], self.log_behaviour[:num])


def rollout(
    environment: Environment,
    sampler: Sampler,
    batch_size: int,
    streams: Streams,
    exploration: Exploration | None = None,
    with_log_behaviour: bool = True,
) -> Walk:
    """Sample episodes; steps after the end of one are not valid.

    Where whole designs are ordered a sampler goes on from what it intended, for nobody has told it what came.

    Args:
        streams: "policy" draws intentions and starting prefixes, "channel" draws outcomes.
        with_log_behaviour: False to leave `log_behaviour` at zero.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.environment import SequenceEnvironment
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> from stochflow.models.flow_network import FlowNetwork
    >>> environment = SequenceEnvironment(TFBind8("SIX6"), uniform_slip(4, alpha=0.25))
    >>> network = FlowNetwork(4, 8, kmers=(1,), width=8, num_layers=0)
    >>> network.initialise(torch.Generator().manual_seed(0))
    >>> generator = torch.Generator().manual_seed(1)
    >>> walk = rollout(environment, network.sampler(5), 5, {"policy": generator, "channel": generator})
    >>> walk.outcomes.shape, bool(walk.valid.all())
    (torch.Size([5, 8]), True)
    """
    exploration, length = exploration or Exploration(), environment.max_steps
    restarts = bool(exploration.restarts)
    # made by numpy, which takes a tenth of the time
    valid = np.ones((batch_size, length), np.bool_)
    if restarts:
        starts = start_depths(batch_size, length, exploration.restarts, streams["policy"])
        valid = (starts[:, None] <= torch.arange(length)).numpy()
    intentions, outcomes = (np.zeros((batch_size, length), np.int64) for _ in range(2))
    log_behaviours, log_clocks = [], np.empty((0, 0, 0))
    reads_pairs = sampler if isinstance(sampler, PairSampler) else None
    episodes = environment.begin(batch_size, streams)
    with torch.inference_mode():
        for time in range(length):
            if episodes.going is not None:
                valid[:, time] = episodes.going
                if not episodes.going.any():  # all episodes have ended
                    valid[:, time:] = False
                    break
            log_behaviour = exploration.log_behaviour(sampler.log_policy(), sampler.allowed())
            if not time or restarts or episodes.going is not None:
                # where every step is taken and nothing else is drawn in between, the draws of all steps at once
                ahead = length if episodes.going is None and not restarts else 1
                log_clocks = _log_clocks((ahead, *log_behaviour.shape), log_behaviour.dtype, streams["policy"])
            # exponential clocks race: this is how `torch.multinomial` draws, without its checks of the input
            intended = (log_behaviour - log_clocks[time % len(log_clocks)]).argmax(axis=-1)
            outcome = episodes.step(intended, time)
            if restarts:
                anything = torch.randint(environment.num_outcomes, (batch_size,), generator=streams["policy"])
                outcome = np.where(valid[:, time], outcome, anything.numpy())
            if reads_pairs is not None:
                reads_pairs.observe(intended, outcome)
            else:
                sampler.advance(intended if environment.ordered else outcome)
            intentions[:, time], outcomes[:, time] = intended, outcome
            log_behaviours.append(log_behaviour)
    taken = torch.from_numpy(valid)
    chosen = torch.from_numpy(np.zeros((batch_size, length), np.float32))
    if with_log_behaviour and log_behaviours:
        chosen = _chosen(np.stack(log_behaviours, axis=1), intentions)
        if restarts or episodes.going is not None:
            chosen.masked_fill_(~taken, 0.0)
    return Walk(torch.from_numpy(intentions), torch.from_numpy(outcomes), taken, chosen)


def _log_clocks(shape: tuple[int, ...], dtype: npt.DTypeLike, generator: torch.Generator) -> Array:
    clocks = torch.from_numpy(np.empty(shape, dtype))
    return clocks.exponential_(generator=generator).log_().numpy()


def _chosen(logits: Array, intentions: Array) -> Tensor:
    """log softmax of the logits at the intentions; [batch, taken, K], [batch, time] → [batch, time]."""
    num_taken = logits.shape[1]
    log_probs = torch.log_softmax(torch.from_numpy(logits), dim=-1)
    chosen = pick(log_probs, torch.from_numpy(intentions[:, :num_taken]))
    return torch.nn.functional.pad(chosen, (0, intentions.shape[1] - num_taken))


def start_depths(batch_size: int, length: int, share: float, generator: torch.Generator) -> Tensor:
    """Length of the random prefix that each episode starts from; zero for most, [batch]."""
    if share == 0.0:
        return torch.zeros(batch_size, dtype=torch.int64)
    depths = torch.randint(length, (batch_size,), generator=generator)
    restarted = torch.rand(batch_size, generator=generator) < share
    return torch.where(restarted, depths, 0)
