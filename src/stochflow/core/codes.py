"""Lexicographic codes: a sequence of L tokens below K as the integer whose base-K digits it is, first token highest.

Codes order sequences as a dictionary does, so a table of all K^L sequences is indexed by them.
"""

import torch
from torch import Tensor


def place_values(base: int, length: int, device: torch.device | None = None) -> Tensor:
    """What a token counts at each position: K^(L−1), …, K, 1; int64, [L].

    >>> place_values(4, 3)
    tensor([16,  4,  1])
    """
    return base ** torch.arange(length - 1, -1, -1, device=device)


def encode(tokens: Tensor, base: int) -> Tensor:
    """Codes of token rows, int64; [..., L] → [...].

    >>> encode(torch.tensor([[0, 1, 2], [3, 3, 3]]), base=4)
    tensor([ 6, 63])
    """
    return (tokens * place_values(base, tokens.shape[-1], tokens.device)).sum(dim=-1)


def decode(codes: Tensor, base: int, length: int) -> Tensor:
    """Token rows of codes, the inverse of `encode`; [...] → [..., L].

    >>> decode(torch.tensor([6, 63]), base=4, length=3)
    tensor([[0, 1, 2],
            [3, 3, 3]])
    """
    return codes.unsqueeze(-1) // place_values(base, length, codes.device) % base


def first_rows(groups: Tensor, num_groups: int, rows: Tensor | None = None) -> Tensor:
    """The smallest row of each group; [num_rows] → [num_groups].

    Args:
        groups: group of each row, from 0 to num_groups − 1; every group has a row.
        rows: numbers of the rows, [num_rows]; 0, 1, … by default.

    >>> first_rows(torch.tensor([1, 0, 1, 2, 0]), num_groups=3)
    tensor([1, 0, 3])
    """
    rows = torch.arange(len(groups), device=groups.device) if rows is None else rows
    first = torch.full((num_groups,), torch.iinfo(torch.int64).max, device=groups.device)
    return first.scatter_reduce(0, groups, rows, "amin")
