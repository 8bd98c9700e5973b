"""Tasks scored by look-up in a table of measurements, which may be incomplete."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.environments.sequences.task import Alphabet, Task

# quantile of the measured scores above which a design counts as a mode
MODE_QUANTILE = 0.99


@dataclass(frozen=True)
class Measurements:
    """Measured scores of sequences of one length.

    Attributes:
        tokens: distinct sequences, int64, [num, L].
        scores: replicates of each sequence, finite, float64, [num, num_replicates].
        variances: of one measurement of each sequence, float64, [num]; None where unknown.
    """

    tokens: Tensor
    scores: Tensor
    variances: Tensor | None = None

    def scaled_to_unit(self) -> "Measurements":
        """Measurements scaled so that mean scores run from 0 to 1; single replicates are clipped at 0 but not at 1."""
        means = self.scores.mean(dim=-1)
        low, width = means.min(), means.max() - means.min()
        variances = None if self.variances is None else self.variances / width**2
        return Measurements(self.tokens, ((self.scores - low) / width).clamp_min(0.0), variances)


class MeasuredTask(Task):
    """Look-up in a table. A sequence that is not in the table has one score for all such, by default 0.

    >>> alphabet = Alphabet("ACGT")
    >>> measured = Measurements(alphabet.encode(["AC", "GT"]), torch.tensor([[0.2], [0.8]], dtype=torch.float64))
    >>> task = MeasuredTask("pairs", alphabet, measured, "two dinucleotides", "made up")
    >>> task.score(alphabet.encode(["GT", "AA"]))
    tensor([0.8000, 0.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        name: str,
        alphabet: Alphabet,
        measured: Measurements,
        description: str,
        source: str,
        gap_score: float = 0.0,
    ) -> None:
        self.name, self.alphabet, self.description, self.source = name, alphabet, description, source
        self.num_measured, self.length = measured.tokens.shape
        keys = _keys(measured.tokens)
        order = np.argsort(keys)
        self._keys, rows = keys[order], torch.from_numpy(order)
        # the last row is for sequences that are not in the table
        self._replicates = _with_last_row(measured.scores[rows], gap_score)
        self._scores = self._replicates.mean(dim=-1)
        self._deviations = None if measured.variances is None else _with_last_row(measured.variances[rows].sqrt(), 0.0)
        self.mode_threshold = float(measured.scores.mean(dim=-1).quantile(MODE_QUANTILE))

    def score(self, tokens: Tensor) -> Tensor:
        return self._scores[self._rows(tokens)]

    def replicates(self, tokens: Tensor) -> Tensor | None:
        return self._replicates[self._rows(tokens)] if self._replicates.shape[1] > 1 else None

    def deviations(self, tokens: Tensor) -> Tensor | None:
        return None if self._deviations is None else self._deviations[self._rows(tokens)]

    def is_measured(self, tokens: Tensor) -> Tensor:
        """True where the table has the sequence; [num, L] → [num]."""
        return self._rows(tokens) < len(self._keys)

    @property
    def best_score(self) -> float:
        """The largest score in the table."""
        return float(self._scores.max())

    def _rows(self, tokens: Tensor) -> Tensor:
        """Row of each sequence; the last row for those that are missing; [num, L] → [num]."""
        wanted = _keys(tokens)
        places = np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)
        return torch.from_numpy(np.where(self._keys[places] == wanted, places, len(self._keys)))


def _keys(tokens: Tensor) -> Array:
    """Sequences as byte strings, which sort in lexicographic order of tokens; [num, L] → [num]."""
    # token + 1, because numpy strips zero bytes at the end of a string
    letters = np.ascontiguousarray((tokens + 1).cpu().numpy().astype(np.uint8))
    return letters.view(f"S{letters.shape[1]}").reshape(-1)


def _with_last_row(values: Tensor, value: float) -> Tensor:
    return torch.cat([values.double(), torch.full((1, *values.shape[1:]), value, dtype=torch.float64)])
