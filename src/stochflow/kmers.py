"""Numbering k-mers."""

from torch import Tensor

_MULTIPLIER = 0x9E3779B1


def kmer_buckets(codes: Tensor, num_codes: int, max_buckets: int) -> Tensor:
    """Row of each k-mer code in a table of min(num_codes, max_buckets) rows; same shape.

    Codes that fit keep their own row. Others are hashed by the high bits of a product, so that every letter of the
    k-mer counts: a plain remainder would forget the oldest ones.
    """
    if num_codes <= max_buckets:
        return codes
    return ((codes * _MULTIPLIER) >> 15) % max_buckets
