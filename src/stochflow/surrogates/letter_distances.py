"""Distances between letters: Hamming, bits of a word, amino acids by BLOSUM62."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.sequences.task import Task
from stochflow.surrogates.blosum62 import AMINO_ACIDS, blosum62

_TOLERANCE = 1e-9
_MANY_LETTERS = 24  # from which on counting differences is faster than a product of embeddings


@dataclass(frozen=True)
class LetterDistance:
    """Squared Euclidean distances of points that stand for letters: d(a, b) = scale·|e_a − e_b|².

    exp(−g·Σ_t d(x_t, y_t)) is then a kernel for every g > 0. Embeddings of small integers make all distances exact in
    float32.

    >>> hamming(3).table
    tensor([[0., 1., 1.],
            [1., 0., 1.],
            [1., 1., 0.]], dtype=torch.float64)
    >>> hamming(3).between(torch.tensor([[0, 1, 2]]), torch.tensor([[0, 1, 2], [2, 1, 0]]))
    tensor([[0., 2.]])

    Attributes:
        embedding: e, float32, [K, num_dimensions].
        scale: factor of the squared distances.
        relevances: how much each position counts, float64, [L]; None where all count the same.
    """

    embedding: Tensor
    scale: float
    relevances: Tensor | None = None

    def with_relevances(self, relevances: Tensor | None) -> "LetterDistance":
        """The same distances with positions of other weight."""
        return replace(self, relevances=relevances)

    @cached_property
    def table(self) -> Tensor:
        """d(a, b), float64, [K, K]."""
        points = self.embedding.double()
        return self.scale * (points.unsqueeze(1) - points).square().sum(dim=-1)

    @cached_property
    def mean(self) -> float:
        """Mean distance of two different letters."""
        num_tokens = len(self.embedding)
        return float(self.table.sum()) / max(num_tokens * (num_tokens - 1), 1)

    @cached_property
    def neighbours(self) -> Tensor:
        """Where a letter goes when it changes, float64, [K, K]: to any other, or in half of the cases to a near one.

        A near letter is drawn in proportion to exp(−d/d_min), with d_min the smallest distance of all. Where all
        letters are equally far apart, every other one is as probable.

        >>> bit_words(4).neighbours[0].tolist() == bit_words(4).neighbours[3].flip(0).tolist()
        True
        """
        num_tokens = len(self.embedding)
        other = ~torch.eye(num_tokens, dtype=torch.bool)
        if not bool(other.any()):
            return torch.ones_like(self.table)
        near = (
            (-self.table / float(self.table[other].min().clamp(min=1e-9)))
            .masked_fill(~other, -math.inf)
            .softmax(dim=-1)
        )
        return 0.5 * near + 0.5 * other / (num_tokens - 1)

    def points(self, tokens: Tensor) -> Tensor:
        """Embeddings of whole sequences, float32; [num, L] → [num, L·num_dimensions]."""
        points = self.embedding[tokens]
        if self.relevances is not None:
            points = points * self.relevances.sqrt().float().unsqueeze(-1)
        return points.flatten(1)

    def between(self, tokens: Tensor, others: Tensor) -> Tensor:
        """Σ_t d(x_t, y_t) of all pairs, float32; [num, L] and [num_others, L] → [num, num_others]."""
        return self.between_compared(self.compared(tokens), self.compared(others))

    def compared(self, tokens: Tensor) -> Tensor:
        """What `between_compared` takes of sequences, which can be kept: their `points`; [num, L] → [num, …]."""
        return self.points(tokens)

    def between_compared(self, compared: Tensor, others: Tensor) -> Tensor:
        """The same as `between`, from what `compared` returns."""
        return self.between_points(compared, others)

    def between_points(self, points: Tensor, others: Tensor) -> Tensor:
        """The same from `points`: |x|² + |y|² − 2·x·y, one product of matrices."""
        squares, other_squares = (each.square().sum(dim=1) for each in (points, others))
        distances = torch.addmm(other_squares, points, others.T, beta=self.scale, alpha=-2.0 * self.scale)
        return distances.add_(self.scale * squares.unsqueeze(1)).clamp_(min=0.0)


class CountedDifferences(LetterDistance):
    """Hamming distance of many letters: positions are compared, at a cost that does not grow with the alphabet."""

    def compared(self, tokens: Tensor) -> Tensor:
        """The tokens themselves, float32; [num, L] → [num, L]."""
        return tokens.float()

    def between_compared(self, compared: Tensor, others: Tensor) -> Tensor:
        return torch.cdist(compared, others, p=0.0)

    def with_relevances(self, relevances: Tensor | None) -> LetterDistance:
        """Itself: positions that are counted all count the same."""
        return self


def hamming(num_tokens: int) -> LetterDistance:
    """1 between different letters; the same numbers however many there are.

    >>> hamming(256).between(torch.tensor([[0, 1, 255]]), torch.tensor([[0, 1, 254], [255, 1, 0]]))
    tensor([[1., 2.]])
    """
    kind = CountedDifferences if num_tokens >= _MANY_LETTERS else LetterDistance
    return kind(torch.eye(num_tokens), 0.5)


def bit_words(num_tokens: int) -> LetterDistance:
    """Number of different bits of two tokens, each read as a number.

    >>> bit_words(4).table.int().tolist()
    [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
    """
    shifts = torch.arange(max(num_tokens - 1, 1).bit_length())
    return LetterDistance((torch.arange(num_tokens).unsqueeze(1) >> shifts & 1).float(), 1.0)


def amino_acids(letters: str, num_tokens: int | None = None) -> LetterDistance:
    """(B_aa + B_bb)/2 − B_ab of BLOSUM62, 1 on average; tokens after the letters are about as far from all others.

    >>> isoleucine_valine, isoleucine_tryptophan = amino_acids("IVW").table[0, 1:].tolist()
    >>> isoleucine_valine < isoleucine_tryptophan
    True
    """
    log_odds = blosum62(letters)
    table = (log_odds.diagonal().unsqueeze(1) + log_odds.diagonal()) / 2.0 - log_odds
    num_pairs = max(len(letters) * (len(letters) - 1), 1)
    others = (len(letters) if num_tokens is None else num_tokens) - len(letters)
    known = embedded(table * (num_pairs / (float(table.sum()) or 1.0))).embedding
    return LetterDistance(torch.block_diag(known, math.sqrt(0.5) * torch.eye(others)), 1.0)


def letter_distance(task: Task) -> LetterDistance:
    """What fits a task: bits of the words of `bits:n,k`, BLOSUM62 for proteins, Hamming for all else.

    >>> from stochflow.environments.registry import make_task
    >>> letter_distance(make_task("bits:16,2")).table[0].tolist()
    [0.0, 1.0, 1.0, 2.0]
    """
    if task.name.startswith("bits:") and task.num_tokens == len(task.alphabet.letters):
        return bit_words(task.num_tokens)
    if set(task.alphabet.letters) == set(AMINO_ACIDS):
        return amino_acids(task.alphabet.letters, task.num_tokens)
    return hamming(task.num_tokens)


def embedded(table: Tensor) -> LetterDistance:
    """Distances given as a table, by classical scaling; [K, K].

    Raises:
        DataError: the table is no table of squared Euclidean distances, so that no kernel can be made of it.
    """
    table = table.double()
    if table.ndim != 2 or not torch.equal(table, table.T) or bool((table.diagonal() != 0).any()):
        raise DataError("letter distances must be a symmetric table with zeros on its diagonal; correct the table")
    centring = torch.eye(len(table), dtype=torch.float64) - 1.0 / len(table)
    values, vectors = torch.linalg.eigh(-0.5 * centring @ table @ centring)
    if float(values.min()) < -_TOLERANCE * float(values.abs().max()):
        raise DataError("letter distances must be squared Euclidean distances; take smaller powers of them, or Hamming")
    kept = values > _TOLERANCE * values.abs().max()
    return LetterDistance((vectors[:, kept] * values[kept].sqrt()).float(), 1.0)
