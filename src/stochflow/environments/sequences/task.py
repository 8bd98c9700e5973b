"""What a task is: an alphabet, a length and a score."""

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
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.evidence import Evidence
from stochflow.environments.sequences.score_automaton import ScoreAutomaton

MAX_ENUMERABLE = 2**20
MAX_SCORE = 1e300  # sums of scores stay finite


@dataclass(frozen=True)
class Alphabet:
    """Letters in token order: token i stands for letters[i].

    >>> dna = Alphabet("ACGT")
    >>> dna.encode(["GATT", "ACAT"])
    tensor([[2, 0, 3, 3],
            [0, 1, 0, 3]])
    >>> dna.decode(dna.encode(["GATT", "ACAT"]))
    ['GATT', 'ACAT']
    """

    letters: str

    def __len__(self) -> int:
        return len(self.letters)

    @property
    def labels(self) -> list[str]:
        """Name of each token, for tables and figures."""
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
    """A design problem: sequences of one length over an alphabet, with a non-negative score.

    A subclass sets the attributes without a default and implements `score`; all else has defaults.

    >>> class CountA(Task):
    ...     name, alphabet, length = "count-a", Alphabet("ACGT"), 3
    ...     mode_threshold, description = 0.9, "share of A in DNA 3-mers"
    ...
    ...     def score(self, tokens: Tensor) -> Tensor:
    ...         return (tokens == 0).double().mean(dim=-1)
    >>> task = CountA()
    >>> task.size, task.enumerable
    (64, True)
    >>> task.score(task.alphabet.encode(["AAA", "CAT"]))
    tensor([1.0000, 0.3333], dtype=torch.float64)

    Attributes:
        name: identifier on the command line.
        alphabet: letters in token order.
        length: L, the number of construction steps.
        mode_threshold: a design must score above it to count as a mode.
        description: one sentence for `stochflow tasks`.
        source: reference of the scores.
        num_measured: number of sequences with a measured score; None for computed scores.
        noisy: True when repeated measurements of a sequence differ.
        padding: token that fills rows of `designs` after the last letter; None for designs of one length.
        automaton: that computes the score, so that the truth is exact at any length; None where there is none.
        evidence: measurements that scores are predicted from; None where scores are known.
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
    automaton: ScoreAutomaton | None = None
    evidence: Evidence | None = None

    @abstractmethod
    def score(self, tokens: Tensor) -> Tensor:
        """Scores of complete sequences, expected scores of a noisy task; [num_sequences, length] → [num_sequences]."""

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        """One measurement of each sequence, with its noise; [num_sequences, length] → [num_sequences]."""
        return self.score(tokens)

    def log_reward(self, tokens: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        """log E[R(x)] of sequences whose `score` is known already; the plain log R without noise. → [num_sequences]."""
        return reward.log_reward(scores)

    def log_z_bounds(self, reward: Reward) -> tuple[float, float] | None:
        """Bounds of log Σ_x R(x) in closed form; None where there are none, as by default."""
        return None

    def replicates(self, tokens: Tensor) -> Tensor | None:
        """All replicates of each sequence, [num_sequences, num_replicates]; None for a task without replicates."""
        return None

    def deviations(self, tokens: Tensor) -> Tensor | None:
        """Standard deviation of one measurement of each sequence, [num_sequences]; None where it is unknown."""
        return None

    def known(self, tokens: Tensor) -> Tensor:
        """True where the score is available without an oracle call, [num_sequences]; everywhere by default."""
        return torch.ones(len(tokens), dtype=torch.bool)

    def free(self, tokens: Tensor) -> Tensor:
        """True where a score does not count towards this run's oracle calls, [num_sequences]; nowhere by default."""
        return torch.zeros(len(tokens), dtype=torch.bool)

    def feasible(self, tokens: Tensor) -> Tensor | None:
        """True for sequences that satisfy all constraints, [num_sequences]; None for a task without any."""
        return None

    def designs(self, tokens: Tensor) -> Tensor:
        """The letters of each design, one row per sequence; the tokens themselves unless lengths vary."""
        return tokens

    def modes_reached(self, tokens: Tensor) -> Tensor | None:
        """True for each known mode of the task that a sequence reaches, [num_modes]; None where none are known."""
        return None

    def check(self) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Raise an error if scoring would fail, before a run is created; by default nothing is checked."""

    def open(self, directory: Path) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Open the scores that a run directory keeps; by default there are none."""

    def close(self) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Release processes and files; the next call of `score` opens them again."""

    @property
    def num_tokens(self) -> int:
        return len(self.alphabet)

    @property
    def num_letters(self) -> int:
        """Number of tokens that are letters; all of them unless lengths vary."""
        return self.num_tokens

    @property
    def num_designs(self) -> int:
        """Number of different designs."""
        return self.size

    @property
    def size(self) -> int:
        """K^L, the number of token sequences."""
        return self.num_tokens**self.length

    @property
    def enumerable(self) -> bool:
        """True when all sequences fit into one table, so that exact distributions can be computed."""
        return self.size <= MAX_ENUMERABLE

    @cached_property
    def all_sequences(self) -> Tensor:
        """Every sequence in lexicographic order, [K^L, L]."""
        return decode(torch.arange(self.size), self.num_tokens, self.length)

    @cached_property
    def all_scores(self) -> Tensor:
        """Score of every sequence in lexicographic order, float64, [K^L]. For evaluation only, never for training."""
        return self.score(self.all_sequences).double()
