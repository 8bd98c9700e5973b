"""Choosing and numbering k-mers."""

from typing import TypeVar

from torch import Tensor

from stochflow.core.arrays import Ints

Codes = TypeVar("Codes", Tensor, Ints)  # k-mers as numbers

_MULTIPLIER = 0x9E3779B1
_PREFERRED = (3, 5)
_MAX_ROWS = 2**17
_MAX_SHARING = 4


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
