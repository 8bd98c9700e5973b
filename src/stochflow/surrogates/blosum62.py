"""BLOSUM62, how often amino acids replace each other in related proteins (Henikoff and Henikoff 1992)."""

import torch
from torch import Tensor

from stochflow.core.errors import DataError

AMINO_ACIDS = "ARNDCQEGHILKMFPSTWYV"
# log odds in half bits, lower triangle
_LOWER = """
 4
-1  5
-2  0  6
-2 -2  1  6
 0 -3 -3 -3  9
-1  1  0  0 -3  5
-1  0  0  2 -4  2  5
 0 -2  0 -1 -3 -2 -2  6
-2  0  1 -1 -3  0  0 -2  8
-1 -3 -3 -3 -1 -3 -3 -4 -3  4
-1 -2 -3 -4 -1 -2 -3 -4 -3  2  4
-1  2  0 -1 -3  1  1 -2 -1 -3 -2  5
-1 -1 -2 -3 -1  0 -2 -3 -2  1  2 -1  5
-2 -3 -3 -3 -2 -3 -3 -3 -1  0  0 -3  0  6
-1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4  7
 1 -1  1  0 -1  0  0  0 -1 -2 -2  0 -1 -2 -1  4
 0 -1  0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1  1  5
-3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1  1 -4 -3 -2 11
-2 -2 -2 -3 -2 -1 -2 -3  2 -1 -1 -2 -1  3 -3 -2 -2  2  7
 0 -3 -3 -3 -1 -2 -2 -3 -3  3  1 -2  1 -1 -2 -2  0 -3 -1  4
"""


def blosum62(letters: str) -> Tensor:
    """Log odds of amino acids in the order of the letters, float64, [num_letters, num_letters].

    >>> blosum62("WLI").int().tolist()
    [[11, -2, -3], [-2, 4, 2], [-3, 2, 4]]
    """
    if unknown := sorted(set(letters) - set(AMINO_ACIDS)):
        raise DataError(f"BLOSUM62 does not know the letters {unknown}; give letters of {AMINO_ACIDS}")
    rows = [[float(number) for number in line.split()] for line in _LOWER.strip().splitlines()]
    lower = torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True)
    matrix = lower + lower.tril(-1).T
    places = torch.tensor([AMINO_ACIDS.index(letter) for letter in letters])
    return matrix[places][:, places]
