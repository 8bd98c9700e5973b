"""Sequences as an environment: a task says what they are worth, a channel what comes of each intended letter."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from stochflow.config.environment import ChannelConfig, Feedback
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment, Episodes, Ints, Streams
from stochflow.environments.channel_factory import make_channel
from stochflow.environments.channels import Channel, noiseless
from stochflow.environments.memory_channels import MemoryChannel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.constraints import ConstrainedTask, PrefixMask
from stochflow.environments.sequences.evidence import Evidence
from stochflow.environments.sequences.fasta import encode_for, read_sequences
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.variable_length import EditChannel, LengthMask, LengthRules, VariableTask

_MIN_MEASURED_SHARE = 0.01
_COUNTABLE = 1e300


class SequenceEpisodes(Episodes):
    """Letters through a channel: the position decides what may come, not the letters before it."""

    def __init__(self, channel: Channel, uniform: npt.NDArray[np.float64] | None) -> None:
        self._channel, self._uniform = channel, uniform

    def step(self, intentions: Ints, time: int) -> Ints:
        return intentions if self._uniform is None else self._channel.realised(intentions, time, self._uniform[time])


class MemoryEpisodes(Episodes):
    """Letters through a channel with memory, whose hidden state goes its own way in every episode."""

    def __init__(self, channel: MemoryChannel, num: int, length: int, generator: torch.Generator) -> None:
        self._channel, self._hidden = channel, channel.hidden(num, length, generator)
        self._uniform = channel.draw((length, num), generator)

    def step(self, intentions: Ints, time: int) -> Ints:
        came: Ints = self._channel.emitted(
            torch.from_numpy(intentions), self._hidden[time], self._uniform[time]
        ).numpy()
        return came


class SequenceEnvironment(Environment):
    """Writes sequences of L letters, one intention and one outcome per letter; states are prefixes.

    Without feedback a whole sequence is intended before anything comes: an order, on which the channel acts as a whole.
    Where nothing can go wrong that is the same, and an environment is `ordered` under noise alone.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> environment = SequenceEnvironment(TFBind8("SIX6"), uniform_slip(4, alpha=0.25))
    >>> environment.num_actions, environment.max_steps, environment.is_tree
    (4, 8, True)
    """

    is_tree = True
    object_column = "sequence"

    def __init__(self, task: Task, channel: Channel, feedback: Feedback = "step") -> None:
        self.task, self.channel, self.feedback = task, channel, feedback
        self.name, self.noise = task.name, channel.noise
        self.num_actions = self.num_outcomes = task.num_tokens
        self.max_steps, self.enumerable = task.length, task.enumerable
        self.noisy, self.mode_threshold, self.padding = task.noisy, task.mode_threshold, task.padding
        self.has_free = type(task).free is not Task.free
        self.ordered = feedback == "none" and not channel.is_noiseless
        if self.ordered:
            _check_orderable(task, channel)
            self.object_column = "order"

    @property
    def without_noise(self) -> "SequenceEnvironment":
        """The same where every letter comes as it was intended: what a policy makes there are its orders."""
        return SequenceEnvironment(self.task, noiseless(self.num_actions))

    @property
    def dynamics(self) -> Tensor:
        return self.channel.log_matrices(self.max_steps).exp()

    def dynamics_along(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        if isinstance(self.channel, MemoryChannel):
            return self.channel.log_matrices_along(intentions, outcomes).exp()
        return self.dynamics

    @property
    def rules(self) -> LengthRules | None:
        """How designs of variable length are written; None where all have one length."""
        return self.task.rules if isinstance(self.task, VariableTask) else None

    @cached_property
    def mask(self) -> PrefixMask | LengthMask | None:
        """Which intentions a prefix allows; None where all are allowed everywhere."""
        if isinstance(self.task, ConstrainedTask):
            return PrefixMask(self.task.prefixes, self.channel)
        return None if self.rules is None else LengthMask(self.rules)

    def begin(self, num: int, streams: Streams) -> Episodes:
        if isinstance(self.channel, MemoryChannel):
            return MemoryEpisodes(self.channel, num, self.max_steps, streams["channel"])
        # element by element, so one draw for all steps is the draws of the steps; without noise nothing is drawn
        drawn = None if self.channel.slip == 0.0 else self.channel.draw((self.max_steps, num), streams["channel"])
        return SequenceEpisodes(self.channel, None if drawn is None else drawn.numpy())

    def made(self, outcomes: Tensor, valid: Tensor) -> Tensor:
        return outcomes

    def measure(self, made: Tensor, generator: torch.Generator) -> Tensor:
        return self.task.measure(made, generator)

    def score(self, made: Tensor) -> Tensor:
        return self.task.score(made)

    def log_reward(self, made: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        return self.task.log_reward(made, scores, reward)

    def log_share(self, made: Tensor) -> Tensor:
        return super().log_share(made) if self.rules is None or not self.rules.edits else self.rules.log_shares(made)

    def known(self, made: Tensor) -> Tensor:
        return self.task.known(made)

    def free(self, made: Tensor) -> Tensor:
        return self.task.free(made)

    def feasible(self, made: Tensor) -> Tensor | None:
        return self.task.feasible(made)

    def designs(self, made: Tensor) -> Tensor:
        return self.task.designs(made)

    def modes_reached(self, made: Tensor) -> Tensor | None:
        return self.task.modes_reached(made)

    def frame(self, intentions: Tensor, outcomes: Tensor, valid: Tensor) -> pd.DataFrame:
        decode = self.task.alphabet.decode
        if self.ordered:
            return pd.DataFrame({"order": decode(intentions), "sequence": decode(outcomes)})
        return pd.DataFrame({"sequence": decode(outcomes), "intended": decode(intentions)})

    @property
    def num_designs(self) -> int:
        return self.task.num_designs

    def under(self, config: Config) -> "SequenceEnvironment":
        return SequenceEnvironment(self.task, configured_channel(config.channel, self.task), config.feedback)

    def check_method(self, config: Config) -> None:
        if self.ordered:
            _check_orders_method(config)
        if isinstance(self.channel, MemoryChannel) and not config.objective.record.steps_policy:
            raise ConfigError(
                f"{config.method} intends whole designs, whose probability under '{self.channel.name}' is not "
                "computed; choose a method that intends letter by letter, such as sgfn-kl, or noise without memory"
            )

    def read_designs(self, path: Path) -> Tensor:
        return encode_for(self.task, read_sequences(path), str(path))

    def spelled(self, sequences: Sequence[str], source: str) -> list[str]:
        letters = self.task.alphabet.letters
        written = [text.upper() for text in sequences] if letters == letters.upper() else list(sequences)
        if written:
            encode_for(self.task, written, source)
        return written

    @property
    def channel_name(self) -> str:
        return self.channel.name

    def check(self) -> None:
        self.task.check()

    def warn(self) -> None:
        """Say so when a table knows next to nothing of what can be made: the rest has the floor reward."""
        measured, num_designs = self.task.num_measured, self.task.num_designs
        # divided and compared, for there may be more designs than a float can count
        if measured is not None and measured / _MIN_MEASURED_SHARE < num_designs:
            possible = f"{num_designs:.3g}" if num_designs < _COUNTABLE else f"more than {_COUNTABLE:g}"
            warnings.warn(
                f"{self.task.name} has scores for {measured:,} of {possible} possible sequences; all others get the "
                "floor reward, so the sampler can only find what it happens to meet",
                stacklevel=3,
            )

    @property
    def evidence(self) -> Evidence | None:
        return self.task.evidence

    def describe(self) -> dict[str, Any]:
        feedback = {"feedback": "none"} if self.feedback == "none" else {}
        return super().describe() | feedback | ({} if self.evidence is None else self.evidence.facts)

    def open(self, directory: Path) -> None:
        self.task.open(directory)

    def close(self) -> None:
        self.task.close()


def configured_channel(config: ChannelConfig, task: Task) -> Channel:
    """The configured channel over the letters of a task, and over its stop and edits where lengths vary."""
    letters = make_channel(config, task.num_letters, task.length, task.alphabet.letters)
    if not isinstance(task, VariableTask):
        return letters
    if isinstance(letters, MemoryChannel):
        raise ConfigError(f"'{letters.name}' needs designs of one length; fix the length, or choose another --noise")
    return EditChannel(letters, task.rules)


def _check_orderable(task: Task, channel: Channel) -> None:
    """Refuse what cannot be ordered as a whole."""
    remedy = "add --feedback step, or leave out the noise"
    if isinstance(task, VariableTask):
        raise ConfigError(f"orders without feedback are strings of one length; fix the length, {remedy}")
    if isinstance(task, ConstrainedTask):
        raise ConfigError(
            "under noise constraints are kept by looking at each outcome, which orders cannot; leave them out, "
            f"{remedy}"
        )
    if type(channel) is not Channel:
        raise ConfigError(
            f"the channel '{channel.name}' is no matrix per position, so it cannot act on whole strings; choose "
            f"another --noise, {remedy}"
        )


def _check_orders_method(config: Config) -> None:
    """Refuse what reads outcomes on the way, of which orders know nothing."""
    objective, remedy = config.objective, "or add --feedback step"
    if not objective.record.orders or (objective.record.along_path and objective.path == "intended"):
        raise ConfigError(
            f"{config.method} reads each outcome before the next letter, and orders have none; choose sgfn-kl, gfn-tb, "
            f"gfn-db, gfn-subtb, mcmc, genetic or another method that docs/how-to/orders.md names, {remedy}"
        )
    if config.exploration.restarts:
        raise ConfigError(f"orders begin with their first letter; set exploration.restarts to 0, {remedy}")
    if config.dynamics.depends_on == "state":
        raise ConfigError(
            f"a channel that acts on whole orders sees no state; set dynamics.depends_on to position, {remedy}"
        )
