"""Choosing and numbering k-mers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from stochflow.core.arrays import Ints

Codes = TypeVar("Codes", Tensor, Ints)  # k-mers as numbers

_MULTIPLIER = 0x9E3779B1
_PREFERRED = (3, 5)
_MAX_ROWS = 2**17
_MAX_SHARING = 4


@dataclass(frozen=True)
class Kmers:
    """Lengths of the k-mers that a body reads.

    Attributes:
        placed: with an embedding per position, summed along the prefix.
        anywhere: with one embedding wherever they stand, summed along the prefix: counts.
        recent: with one embedding, those alone that end with the last letter of the prefix.
    """

    placed: tuple[int, ...]
    anywhere: tuple[int, ...] = ()
    recent: tuple[int, ...] = ()

    @classmethod
    def of(cls, kmers: "Iterable[int] | Kmers") -> "Kmers":
        """As given, or placed ones of these lengths."""
        return kmers if isinstance(kmers, Kmers) else cls(tuple(kmers))

    def within(self, length: int) -> "Kmers":
        """Those that fit into a sequence."""
        return Kmers(*(tuple(k for k in group if k <= length) for group in (self.placed, self.anywhere, self.recent)))

    @property
    def longest(self) -> int:
        """Letters of the longest."""
        return max((*self.placed, *self.anywhere, *self.recent), default=0)


def kmers_of_long_sequences(num_tokens: int, max_buckets: int) -> Kmers:
    """k-mers where designs are too many to be enumerated, and what was learned at one place must hold at others.

    Single letters count per position. The longest k-mer is the longest of which at most two share a row; it and the one
    of two thirds of its length count anywhere, and the last letters are read at three lengths.

    >>> kmers_of_long_sequences(4, 4096)
    Kmers(placed=(1,), anywhere=(4, 6), recent=(2, 4, 6))
    """
    longest = 1
    while num_tokens > 1 and num_tokens ** (longest + 1) <= 2 * max_buckets:
        longest += 1
    shares = sorted({-(-longest * third // 3) for third in (1, 2, 3)})
    return Kmers((1,), tuple(shares[-2:]) if len(shares) > 2 else (longest,), tuple(shares))


def suitable_kmers(num_tokens: int, length: int, max_buckets: int) -> tuple[int, ...]:
    """k-mer lengths for an alphabet and a length: 1, 3 and 5 where their tables stay small, else 1 and 2, else 1.

    A k is left out when one table per position would have more than 2^17 rows together, or when more than four k-mers
    would share a row.
    """

    def fits(k: int) -> bool:
        rows = max(length - k + 1, 0) * min(num_tokens**k, max_buckets)
        return num_tokens**k <= _MAX_SHARING * max_buckets and rows <= _MAX_ROWS

    longer = tuple(k for k in _PREFERRED if fits(k)) or tuple(k for k in (2,) if fits(k))
    return (1, *longer)


def kmer_buckets(codes: Codes, num_codes: int, max_buckets: int) -> Codes:
    """Row of each k-mer code in a table of min(num_codes, max_buckets) rows; same shape.

    Codes that fit keep their own row. Others are hashed by the high bits of a product, so that every letter of the
    k-mer counts: a plain remainder would forget the oldest ones.
    """
    if num_codes <= max_buckets:
        return codes
    return ((codes * _MULTIPLIER) >> 15) % max_buckets
