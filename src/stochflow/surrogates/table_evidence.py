"""A table of measurements as evidence: a surrogate fitted to it, its held-out errors, and what lies near a design."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.sequences.evidence import Evidence
from stochflow.environments.sequences.lookup_task import Measurements
from stochflow.environments.sequences.task import Alphabet
from stochflow.surrogates.base import HeldOut, Prediction
from stochflow.surrogates.ensemble import Ensemble
from stochflow.surrogates.letter_distances import LetterDistance
from stochflow.surrogates.nearest import nearest_rows
from stochflow.surrogates.registry import make_surrogate

MEMBERS = ("kmer-ridge", "gaussian-process", "convolution", "position-pairs")
LITTLE = 0.1  # R² below which rows at a distance say little
FEWEST_ROWS = 10  # whose R² is looked at
_SHOWN_WEIGHT = 0.005
_MOST_HELD_OUT = 2000  # rows whose distance to the others is computed


@dataclass(frozen=True)
class Scale:
    """From scores as they were measured to [0, 1], by the smallest and the largest mean of replicates."""

    low: float
    width: float

    @classmethod
    def of(cls, means: Tensor, name: str) -> "Scale":
        low, high = float(means.min()), float(means.max())
        # halved, so that scores of both signs near the largest float have a finite width
        if not 0.0 < high / 2.0 - low / 2.0 < torch.finfo(torch.float64).max / 4.0:
            raise DataError(
                f"the scores of {name} run from {low:g} to {high:g}, so nothing can be learned of what is better; "
                "check the score column"
            )
        return cls(low, high - low)

    def unit(self, scores: Tensor) -> Tensor:
        return (scores - self.low) / self.width

    def own(self, scores: Tensor) -> Tensor:
        return scores * self.width + self.low


class TableEvidence(Evidence):
    """Measurements and the stack of surrogates that is fitted to them; everything outside is on the table's own scale.

    Rows are fitted to the mean of their replicates, scaled to [0, 1], with its variance as far as it is known.

    >>> dna = Alphabet("ACGT")
    >>> tokens = torch.cartesian_prod(*[torch.arange(4)] * 3)
    >>> scores = (tokens == 0).double().sum(dim=1, keepdim=True) - 5.0
    >>> evidence = TableEvidence("adenines", dna, Measurements(tokens[:-1], scores[:-1]))
    >>> evidence.facts["surrogate_r2"] > 0.9
    True
    >>> remarks = evidence.remarks(["TTT", "AAA"])
    >>> list(remarks["nearest"]), list(remarks["distance"]), list(remarks["measured_score"])
    (['ATT', 'AAA'], [1, 0], [nan, -2.0])

    Args:
        name: of the table.
        alphabet: in whose tokens the measurements are.
        measured: on the table's own scale.
        distance: of letters; Hamming by default.
    """

    def __init__(
        self, name: str, alphabet: Alphabet, measured: Measurements, distance: LetterDistance | None = None
    ) -> None:
        self.tokens, self.alphabet = measured.tokens, alphabet
        self.scores = measured.scores.double().mean(dim=-1)
        self.scale = Scale.of(self.scores, name)
        noise = noise_of_means(measured)
        self._noise = None if noise is None else noise / self.scale.width**2
        shape = (len(alphabet), self.tokens.shape[1])
        self.surrogate = Ensemble({member: make_surrogate(member, *shape, distance) for member in MEMBERS})
        self.surrogate.fit(self.tokens, self.scale.unit(self.scores), self._noise)

    @cached_property
    def facts(self) -> dict[str, Any]:
        left_out = self._left_out
        return {
            "world": "measured",
            "measured": len(self.tokens),
            "surrogate": self._mixture,
            "surrogate_r2": _known(left_out.r_squared),
            "surrogate_rank_correlation": rank_correlation(left_out),
            "surrogate_coverage": _known(left_out.coverage()),
            "surrogate_reach": reach(left_out, self._distances),
        }

    @cached_property
    def held_out(self) -> pd.DataFrame:
        """Columns sequence, measured, predicted, low, high (80 % of measurements) and distance to the nearest other."""
        left_out = self._left_out
        return pd.DataFrame(
            {
                "sequence": self.alphabet.decode(self.tokens[left_out.rows]),
                "measured": self.scores[left_out.rows].numpy(),
                **self._figures(left_out.prediction),
                "distance": self._distances.numpy(),
            }
        )

    def own_scale(self, scores: Tensor) -> Tensor:
        return self.scale.own(scores)

    def remarks(self, sequences: Sequence[str]) -> pd.DataFrame:
        """Columns predicted, low, high (80 % of true scores), nearest, distance, measured and measured_score."""
        designs = pd.Series(list(sequences), dtype="str")
        # what noise has written beyond the longest length is no design, and nothing is known of it
        designs = designs[designs.str.len() <= self.tokens.shape[1]]
        tokens = self.alphabet.encode(list(designs))
        rows, distances = nearest_rows(tokens, self.tokens, len(self.alphabet))
        measured = distances == 0
        return pd.DataFrame(
            {
                **self._figures(self.surrogate.predict(tokens)),
                "nearest": self.alphabet.decode(self.tokens[rows]),
                "distance": distances.numpy(),
                "measured": measured.numpy(),
                "measured_score": np.where(measured.numpy(), self.scores[rows].numpy(), np.nan),
            },
            index=designs.index,
        ).reindex(range(len(sequences)))

    @property
    def _mixture(self) -> str:
        """Names of the surrogates with their weights, the heaviest first; the name alone where there is one."""
        weights = sorted(self.surrogate.quality.weights.items(), key=lambda item: -item[1])
        shown = [(name, weight) for name, weight in weights if weight >= _SHOWN_WEIGHT]
        return shown[0][0] if len(shown) == 1 else " + ".join(f"{weight:.2f} {name}" for name, weight in shown)

    @cached_property
    def _left_out(self) -> HeldOut:
        """Rows predicted from the others, of many rows some, with the noise of their measurement in the deviations."""
        found = self.surrogate.leave_one_out()
        some = torch.linspace(0, len(found.rows) - 1, min(len(found.rows), _MOST_HELD_OUT)).round().long()
        rows, prediction = found.rows[some], found.prediction[some]
        if self._noise is not None:
            deviations = (prediction.deviation.square() + self._noise[rows]).sqrt()
            prediction = Prediction(prediction.mean, deviations)
        return HeldOut(rows, found.scores[some], prediction)

    @cached_property
    def _distances(self) -> Tensor:
        """From each held-out row to the nearest other row, [num]."""
        return nearest_rows(self.tokens[self._left_out.rows], self.tokens, len(self.alphabet), others=True)[1]

    def _figures(self, prediction: Prediction) -> dict[str, Any]:
        """Mean and 80 % interval on the table's own scale."""
        low, high = prediction.interval()
        columns = {"predicted": prediction.mean, "low": low, "high": high}
        return {name: self.scale.own(values).numpy() for name, values in columns.items()}


def noise_of_means(measured: Measurements) -> Tensor | None:
    """Variance of each mean of replicates, [num]: of the table, or pooled over rows; None where nothing tells.

    Two replicates say little of one row's own variance, so all rows share that of their replicates.
    """
    num = measured.scores.shape[1]
    if measured.variances is not None:
        return measured.variances.double() / num
    if num == 1:
        return None
    pooled = measured.scores.double().var(dim=1).mean() / num
    return pooled.expand(len(measured.tokens)).clone()


def rank_correlation(held_out: HeldOut) -> float | None:
    """Spearman's correlation of predicted and measured scores; None where one of them does not vary."""
    measured, predicted = held_out.scores, held_out.prediction.mean
    if len(measured) < 2 or bool((measured == measured[0]).all()) or bool((predicted == predicted[0]).all()):
        return None
    return _known(float(spearmanr(measured.numpy(), predicted.numpy()).statistic))


def explained_by_distance(held_out: HeldOut, distances: Tensor) -> dict[int, float]:
    """1 − squared error / variance of all held-out scores, of the rows at each distance to the nearest other row.

    >>> prediction = Prediction(torch.tensor([0.0, 1.0, 1.0, 0.0]).double(), torch.ones(4).double())
    >>> held_out = HeldOut(torch.arange(4), torch.tensor([0.0, 1.0, 0.0, 1.0]).double(), prediction)
    >>> explained_by_distance(held_out, torch.tensor([1, 1, 2, 2]))
    {1: 1.0, 2: -3.0}
    """
    spread = float(held_out.scores.var(correction=0))
    if not spread > 0.0:
        return {}
    squares = held_out.errors.square()
    found = distances.unique().tolist()
    return {distance: 1.0 - float(squares[distances == distance].mean()) / spread for distance in found}


def reach(held_out: HeldOut, distances: Tensor) -> int | None:
    """The largest distance to the nearest other row at which held-out rows are predicted, by an R² of 0.1 or more.

    Zero where they are predicted at none; None where no distance has ten rows.
    """
    explained = explained_by_distance(held_out, distances)
    judged = {d: share for d, share in explained.items() if int((distances == d).sum()) >= FEWEST_ROWS}
    return max((d for d, share in judged.items() if share >= LITTLE), default=0) if judged else None


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
