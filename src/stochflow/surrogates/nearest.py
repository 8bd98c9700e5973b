"""Nearest measured sequences by Hamming distance."""

import torch
from torch import Tensor

from stochflow.surrogates.letter_distances import hamming

_ROWS = 2**15  # measured sequences that are compared at a time
_ENTRIES = 2**22  # distances of one block


def nearest_rows(tokens: Tensor, measured: Tensor, num_tokens: int, others: bool = False) -> tuple[Tensor, Tensor]:
    """Row of the nearest measured sequence, the first of equally near ones, and its Hamming distance.

    >>> measured = torch.tensor([[0, 0, 0], [0, 1, 1], [1, 1, 1]])
    >>> nearest_rows(torch.tensor([[0, 1, 0], [1, 1, 1]]), measured, 2)
    (tensor([0, 2]), tensor([1, 0]))
    >>> nearest_rows(measured, measured, 2, others=True)[1]
    tensor([2, 1, 1])

    Args:
        tokens: [num, L].
        measured: distinct, [num_measured, L].
        num_tokens: K.
        others: leave out the sequence itself; L + 1 where nothing else is measured.

    Returns:
        rows and distances, int64, [num] each.
    """
    distance = hamming(num_tokens)
    rows = torch.zeros(len(tokens), dtype=torch.int64)
    distances = torch.full((len(tokens),), tokens.shape[1] + 1.0)
    for start in range(0, len(measured), _ROWS):
        some = measured[start : start + _ROWS]
        size = max(1, _ENTRIES // len(some))
        for place in range(0, len(tokens), size):
            block = slice(place, place + size)
            found = distance.between(tokens[block], some).round()
            if others:
                found[found == 0.0] = torch.inf
            least, nearest = found.min(dim=1)
            closer = least < distances[block]
            rows[block] = torch.where(closer, nearest + start, rows[block])
            distances[block] = torch.where(closer, least, distances[block])
    return rows, distances.long()
