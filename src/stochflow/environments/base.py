"""The interface of every environment: what can be intended, how the world answers, what the result is worth."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.evidence import Evidence

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Streams = Mapping[str, torch.Generator]


class Episodes(ABC):
    """A batch of episodes under way: where each stands, and the world's random numbers.

    Attributes:
        going: True in rows whose episode has not ended, [batch]; None where all of them go on to `max_steps`.
    """

    going: Bools | None = None

    @abstractmethod
    def step(self, intentions: Ints, time: int) -> Ints:
        """What comes of the intentions of a step; [batch] → [batch]. Rows that have ended may get anything."""


class Environment(ABC):
    """What can be intended, how the world answers, and what the result is worth.

    A policy intends one of A actions a_t ~ π(·|s_t); the world answers with one of C outcomes, which makes the next
    state, until an object x is complete. A batch of episodes is two tables, intentions and outcomes, [batch, time],
    and a mask of the steps that were taken; states are a function of the outcomes.

    Attributes:
        name: what the command line calls it.
        noise: slip α, or the name of the noise.
        num_actions: A.
        num_outcomes: C.
        max_steps: T, steps of the longest episode.
        is_tree: True where every state can be reached in one way only, so that P(x) of one x is known from one path.
        enumerable: True where all objects fit into one table, so that the truth can be computed.
        noisy: True where scoring an object again may give another score.
        has_free: True where some scores cost nothing, so that `free` must be read before anything is paid.
        mode_threshold: only objects that score above it are modes.
        object_column: column of `frame` that names the object.
        padding: what stands after the last letter of a row of `designs`; None where all have one length.
        ordered: True where whole designs are ordered: a policy goes on from what it intended, not from what came.
    """

    name: str
    noise: float | str
    num_actions: int
    num_outcomes: int
    max_steps: int
    is_tree: bool
    enumerable: bool
    noisy: bool = False
    has_free: bool = False
    mode_threshold: float
    object_column: str = "object"
    padding: int | None = None
    ordered: bool = False

    @property
    @abstractmethod
    def dynamics(self) -> Tensor:
        """The true P(outcome|s,a), float64: of every state of a graph, [S, A, C], or of every position, [L, A, C]."""

    def dynamics_along(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        """The true P(outcome|history,a) at every step of episodes, [num, L, A, C]; `dynamics` where none remembers."""
        return self.dynamics

    @abstractmethod
    def begin(self, num: int, streams: Streams) -> Episodes:
        """So many episodes at the root; `streams["channel"]` draws outcomes."""

    @abstractmethod
    def made(self, outcomes: Tensor, valid: Tensor) -> Tensor:
        """The object that each episode made, as a row of tokens or a number; [batch, time] twice → [batch, ...]."""

    @abstractmethod
    def measure(self, made: Tensor, generator: torch.Generator) -> Tensor:
        """What the oracle answers, one measurement per object; [batch, ...] → [batch]."""

    @abstractmethod
    def score(self, made: Tensor) -> Tensor:
        """Expected scores of objects; [batch, ...] → [batch]."""

    @abstractmethod
    def frame(self, intentions: Tensor, outcomes: Tensor, valid: Tensor) -> pd.DataFrame:
        """One row per episode that names the object and what was intended, for `samples.csv`."""

    def log_reward(self, made: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        """log R of objects whose expected score is known, or log E[R] where measurements are noisy; → [batch]."""
        return reward.log_reward(scores)

    def log_share(self, made: Tensor) -> Tensor:
        """log of the share of an object's reward that belongs to the row that made it, float64, [batch].

        Zero where one row alone makes an object; log p_B(h|x) where several histories h do.
        """
        return torch.zeros(len(made), dtype=torch.float64)

    def known(self, made: Tensor) -> Tensor:
        """True where `score` costs nothing any more, [batch]; everywhere unless scores are paid for."""
        return torch.ones(len(made), dtype=torch.bool)

    def free(self, made: Tensor) -> Tensor:
        """True where a score is no oracle call of this run, [batch]; nowhere by default."""
        return torch.zeros(len(made), dtype=torch.bool)

    def feasible(self, made: Tensor) -> Tensor | None:
        """True for objects that satisfy all constraints, [batch]; None without constraints."""
        return None

    def designs(self, made: Tensor) -> Tensor | None:
        """Objects as rows of letters, between which distances are defined; None where there are no letters."""
        return None

    def modes_reached(self, made: Tensor) -> Tensor | None:
        """True for each of the known modes that an object reaches, [num_modes]; None where none are known."""
        return None

    def under(self, config: Config) -> "Environment":
        """The same environment under the channel of other settings."""
        raise ConfigError(f"the noise of {self.name} is its own; leave out --noise")

    def read_designs(self, path: Path) -> Tensor:
        """Known designs of a file as rows of tokens, [num, L]."""
        raise ConfigError(f"{self.name} makes no sequences, which {path} holds; leave it out")

    def spelled(self, sequences: Sequence[str], source: str) -> list[str]:
        """Sequences as designs are written here; what cannot be a design is refused, and its `source` named."""
        raise ConfigError(f"{self.name} makes no sequences, which {source} holds; leave it out")

    @property
    def num_designs(self) -> int | None:
        """How many different designs can be made at most, constraints aside; None where nobody has counted."""
        return None

    def check_method(self, config: Config) -> None:  # noqa: B027  # most environments allow every method
        """Refuse what the mathematics of an objective does not allow here."""

    def check(self) -> None:  # noqa: B027  # most environments have nothing to do here
        """Refuse what would fail at the first score, before a run is made."""

    def warn(self) -> None:  # noqa: B027  # most environments have nothing to say
        """Warn of what a run in it cannot be expected to find."""

    def open(self, directory: Path) -> None:  # noqa: B027  # most environments have nothing to do here
        """Find what a run directory has paid for."""

    def close(self) -> None:  # noqa: B027  # most environments have nothing to do here
        """Let go of processes and files; the next score takes them up again."""

    @property
    def evidence(self) -> Evidence | None:
        """Measurements that scores are predicted from; None where scores are known."""
        return None

    @property
    def channel_name(self) -> str:
        """What the noise is called at length."""
        return str(self.noise)

    def describe(self) -> dict[str, Any]:
        """Name and noise, as every summary states them, and figures of a prediction."""
        return {"task": self.name, "noise": self.noise}
