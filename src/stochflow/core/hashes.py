"""Pseudo-random numbers of designs: an order that is the same every time and has nothing to do with the alphabet."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd


def row_hashes(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """A hash of each row of tokens, [n, L] → [n]; rows that are alike have the same.

    >>> first, second, again = row_hashes(np.array([[0, 1, 2], [0, 1, 3], [0, 1, 2]]))
    >>> bool(first == again), bool(first == second)
    (True, False)
    """
    return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(rows), index=False), dtype=np.uint64)


def text_hashes(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash of each text, [n]."""
    return np.asarray(pd.util.hash_array(np.array(texts, dtype=object), categorize=False), dtype=np.uint64)
