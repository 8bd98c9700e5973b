"""Numbers drawn from a name: the same on every machine and with every version of every library."""

import hashlib

import numpy as np
import torch
from torch import Tensor


class NamedDraws:
    """A stream of numbers that is a function of its name alone: SHAKE-256 of the name and the number of the draw."""

    def __init__(self, name: str) -> None:
        self._name, self._num_draws = name, 0

    def integers(self, high: int, num: int) -> Tensor:
        """Integers from 0 to high − 1, int64, [num]; their bias is below high/2^64."""
        return torch.from_numpy((self._words(num) % np.uint64(high)).astype(np.int64))

    def permutation(self, size: int) -> Tensor:
        """The numbers 0 … size − 1 in random order, int64, [size]."""
        return torch.from_numpy(np.argsort(self._words(size), kind="stable"))

    def _words(self, num: int) -> np.ndarray:
        self._num_draws += 1
        digest = hashlib.shake_256(f"{self._name}/{self._num_draws}".encode()).digest(8 * num)
        return np.frombuffer(digest, dtype="<u8")
