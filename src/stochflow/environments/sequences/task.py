"""What a task is: an alphabet, a length and a score; and how scores become rewards."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stochflow.core.codes import decode
from stochflow.core.errors import DataError

MAX_ENUMERABLE = 2**20
MAX_SCORE = 1e300  # sums of scores stay finite


@dataclass(frozen=True)
class Alphabet:
    """Letters in token order: token i stands for letters[i]."""

    letters: str

    def __len__(self) -> int:
        return len(self.letters)

    @property
    def labels(self) -> list[str]:
        """What to call each token."""
        return list(self.letters)

    def encode(self, sequences: Sequence[str]) -> Tensor:
        """Tokens of equally long strings, int64, [num_sequences, length]."""
        if not sequences:
            return torch.empty(0, 0, dtype=torch.int64)
        lengths = {len(sequence) for sequence in sequences}
        if len(lengths) > 1:
            raise DataError(f"sequences of lengths {sorted(lengths)} cannot share one table; give equal lengths")
        codes = np.array([list(sequence) for sequence in sequences], dtype="U1").view(np.uint32)
        lookup = {ord(letter): token for token, letter in enumerate(self.letters)}
        unknown = {chr(code) for code in np.unique(codes)} - set(self.letters)
        if unknown:
            raise DataError(f"letters {sorted(unknown)} are not in the alphabet {self.letters}; correct the sequences")
        table = np.zeros(max(lookup) + 1, dtype=np.int64)
        table[list(lookup)] = list(lookup.values())
        return torch.from_numpy(table[codes].reshape(len(sequences), -1))

    def decode(self, tokens: Tensor) -> list[str]:
        """Strings of token rows, [num_sequences, length]."""
        letters = np.array(list(self.letters))[tokens.cpu().numpy()]
        return ["".join(row) for row in letters]


class Task(ABC):
    """Sequences of tokens of one length with a non-negative score.

    Attributes:
        name: what the command line calls it.
        alphabet: letters in token order.
        length: L, the number of construction steps.
        mode_threshold: only designs that score above it open a mode.
        description: one sentence for `stochflow tasks`.
        source: where the scores come from.
        num_measured: sequences with a measured score; None where scores are computed.
        noisy: True when scoring a sequence again may give another score.
        padding: the token after the last letter of a row of `designs`; None where all have one length.
    """

    name: str
    alphabet: Alphabet
    length: int
    mode_threshold: float
    description: str
    source: str = "computed"
    num_measured: int | None = None
    noisy: bool = False
    padding: int | None = None

    @abstractmethod
    def score(self, tokens: Tensor) -> Tensor:
        """Scores of complete sequences; [num_sequences, length] → [num_sequences]. Expected scores where noisy."""

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        """What the oracle answers, one measurement per row; [num_sequences, length] → [num_sequences]."""
        return self.score(tokens)

    def log_reward(self, tokens: Tensor, scores: Tensor, reward: "Reward") -> Tensor:
        """log E[R(x)] of sequences whose `score` is known already; the plain log R without noise. → [num_sequences]."""
        return reward.log_reward(scores)

    def replicates(self, tokens: Tensor) -> Tensor | None:
        """Every measurement of each sequence, [num_sequences, num_replicates]; None where there is one at most."""
        return None

    def deviations(self, tokens: Tensor) -> Tensor | None:
        """Standard deviation of a measurement of each sequence, [num_sequences]; None where it is not known."""
        return None

    def known(self, tokens: Tensor) -> Tensor:
        """True where `score` costs nothing any more, [num_sequences]; everywhere unless scores are paid for."""
        return torch.ones(len(tokens), dtype=torch.bool)

    def free(self, tokens: Tensor) -> Tensor:
        """True where a score does not count as an oracle call of this run, [num_sequences]; nowhere by default."""
        return torch.zeros(len(tokens), dtype=torch.bool)

    def feasible(self, tokens: Tensor) -> Tensor | None:
        """True for sequences that satisfy all constraints, [num_sequences]; None for a task without any."""
        return None

    def designs(self, tokens: Tensor) -> Tensor:
        """The letters that sequences of tokens stand for: themselves, unless lengths vary; one row per sequence."""
        return tokens

    def modes_reached(self, tokens: Tensor) -> Tensor | None:
        """True for each of the task's own modes that a sequence reaches, [num_modes]; None where none are known."""
        return None

    def check(self) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Refuse what would fail at the first score, before a run is made; most tasks have nothing to fear."""

    def open(self, directory: Path) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Find what a run directory has paid for; most tasks keep nothing there."""

    def close(self) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Let go of processes and files; the next score takes them up again."""

    @property
    def num_tokens(self) -> int:
        return len(self.alphabet)

    @property
    def num_letters(self) -> int:
        """Tokens that are letters: all of them, unless lengths vary."""
        return self.num_tokens

    @property
    def num_designs(self) -> int:
        """How many designs there are to find."""
        return self.size

    @property
    def size(self) -> int:
        """K^L, the number of sequences there are."""
        return self.num_tokens**self.length

    @property
    def enumerable(self) -> bool:
        """True when all sequences fit into one table, so that truth can be computed."""
        return self.size <= MAX_ENUMERABLE

    @cached_property
    def all_sequences(self) -> Tensor:
        """Every sequence in lexicographic order, [K^L, L]."""
        return decode(torch.arange(self.size), self.num_tokens, self.length)

    @cached_property
    def all_scores(self) -> Tensor:
        """Score of every sequence in lexicographic order, float64, [K^L]. For judging only, never for training."""
        return self.score(self.all_sequences).double()


@dataclass(frozen=True)
class Reward:
    """R(x) = max(score(x)^β(t), floor) with β(t) = 1 + (β − 1)·(1 − 1/(1 + t/ramp)); ramp 0 means β at once."""

    beta: float
    floor: float
    ramp: float

    def exponent(self, step: int | None = None) -> float:
        """β(t) at a training step; the final β without one."""
        if step is None or self.ramp == 0:
            return self.beta
        return 1.0 + (self.beta - 1.0) * (1.0 - 1.0 / (1.0 + step / self.ramp))

    def log_reward(self, scores: Tensor, step: int | None = None) -> Tensor:
        """log R for scores of any shape, on the CPU; the power is never formed, so that it cannot overflow."""
        # in numpy, whose operations on a handful of numbers cost a fraction of torch's
        with np.errstate(divide="ignore"):
            logarithms = np.log(np.maximum(scores.numpy(), 0.0))
        return torch.from_numpy(np.asarray(np.maximum(self.exponent(step) * logarithms, math.log(self.floor))))
