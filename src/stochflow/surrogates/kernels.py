"""Similarities of sequences: by the distance of their letters, and by the k-mers that they share."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from stochflow.models.kmers import kmer_buckets
from stochflow.surrogates.letter_distances import LetterDistance

KMERS = (3, 4, 5)
MAX_BUCKETS = 2**15
_MAX_DENSE = 2**11  # k-mers up to which a dense product is faster than a sparse one


class Spectrum:
    """Features whose inner product is the spectrum kernel: the mean over k of the cosine of k-mer counts.

    >>> spectrum = Spectrum(4, 8)
    >>> rows = spectrum.matrix(torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3], [3, 0, 1, 2, 3, 0, 1, 2]]))
    >>> [round(similarity, 3) for similarity in shared_kmers(rows, rows)[0].tolist()]
    [1.0, 0.919]
    """

    def __init__(self, num_tokens: int, length: int) -> None:
        self.num_tokens, self.length = num_tokens, length
        self.kmers = tuple(k for k in KMERS if k <= length)
        self._buckets = [min(num_tokens**k, MAX_BUCKETS) for k in self.kmers]
        self.num_features = sum(self._buckets)

    def features(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Which k-mers each sequence has, and their weights; [num, L] → int64 and float64, [num, num_kmers]."""
        indices, weights, offset = [], [], 0
        for k, buckets in zip(self.kmers, self._buckets, strict=True):
            codes = torch.zeros(len(tokens), self.length - k + 1, dtype=torch.int64)
            for shift in range(k):
                codes = codes * self.num_tokens + tokens[:, shift : self.length - k + 1 + shift]
            rows = kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS)
            weight = (len(self.kmers) * _sum_of_squared_counts(rows)).double().rsqrt()
            indices.append(rows + offset)
            weights.append(weight.unsqueeze(1).expand(rows.shape))
            offset += buckets
        return torch.cat(indices, dim=1), torch.cat(weights, dim=1)

    def matrix(self, tokens: Tensor) -> sparse.csr_matrix:
        """The features as a matrix, [num, num_features]."""
        if not self.kmers:
            return sparse.csr_matrix((len(tokens), 1))
        indices, weights = self.features(tokens)
        starts = np.arange(len(tokens) + 1) * indices.shape[1]
        entries = (weights.numpy().ravel(), indices.numpy().ravel(), starts)
        rows = sparse.csr_matrix(entries, shape=(len(tokens), self.num_features))
        rows.sum_duplicates()
        return rows


def shared_kmers(rows: sparse.csr_matrix, others: sparse.csr_matrix) -> Tensor:
    """Spectrum kernel of all pairs, float64; [num, D] and [num_others, D] → [num, num_others]."""
    if rows.shape[1] <= _MAX_DENSE:
        dense, other_dense = (torch.from_numpy(each.astype(np.float32).toarray()) for each in (rows, others))
        return (dense @ other_dense.T).double()
    return torch.from_numpy((rows @ others.T).toarray())


def _sum_of_squared_counts(codes: Tensor) -> Tensor:
    """Σ over different codes of (how often a row has it)²; [num, num_codes] → [num].

    In a sorted row the i-th of equal codes adds 2·i + 1, and Σ_{i<c} (2·i + 1) = c².
    """
    ordered = codes.sort(dim=1).values
    places = torch.arange(codes.shape[1]).expand(codes.shape)
    begins = torch.ones_like(codes, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = places.where(begins, torch.zeros_like(places)).cummax(dim=1).values
    return (2 * (places - first) + 1).sum(dim=1)


@dataclass(frozen=True)
class Mixture:
    """k(x, y) = mixing·exp(−rate·d(x, y)) + (1 − mixing)·spectrum(x, y), one everywhere on the diagonal.

    Attributes:
        rate: g, per unit of distance.
        mixing: share of the first term.
    """

    rate: float
    mixing: float

    def __call__(self, distances: Tensor, spectrum: Tensor) -> Tensor:
        """Kernel of given distances and spectrum kernels, float64; same shapes."""
        near = self.near(distances)
        return near if self.mixing == 1.0 else near.add_(spectrum, alpha=1.0 - self.mixing)

    def near(self, distances: Tensor) -> Tensor:
        """The first term alone, float64; same shape."""
        return distances.double().mul_(-self.rate).exp_().mul_(self.mixing)


@dataclass(frozen=True)
class SequenceKernel:
    """A `Mixture` of sequences.

    Attributes:
        distance: of letters; d(x, y) is its sum over positions.
        spectrum: features of shared k-mers.
        mixture: rate and mixing.
    """

    distance: LetterDistance
    spectrum: Spectrum
    mixture: Mixture

    def __call__(self, tokens: Tensor, others: Tensor) -> Tensor:
        """Kernel of all pairs, float64; [num, L] and [num_others, L] → [num, num_others]."""
        return self.mixture(*kernel_parts(tokens, others, self.distance, self.spectrum))


def kernel_parts(tokens: Tensor, others: Tensor, distance: LetterDistance, spectrum: Spectrum) -> tuple[Tensor, Tensor]:
    """Distances and spectrum kernel of all pairs, what a `Mixture` is made of; [num, num_others] each."""
    return distance.between(tokens, others), shared_kmers(spectrum.matrix(tokens), spectrum.matrix(others))
