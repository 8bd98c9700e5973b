"""Random numbers from a hash of a name: the same on every machine and with every version of every library."""

import hashlib

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Array


class HashRandom:
    """A stream of pseudo-random numbers: SHAKE-256 of a name and the number of the draw.

    >>> HashRandom("name").integers(1000, 4)
    tensor([904, 813, 447, 828])
    """

    def __init__(self, name: str) -> None:
        self._name, self._num_draws = name, 0

    def integers(self, high: int, num: int) -> Tensor:
        """Uniform integers from 0 to high − 1, int64, [num]; their bias is below high/2^64."""
        return torch.from_numpy((self._words(num) % np.uint64(high)).astype(np.int64))

    def permutation(self, size: int) -> Tensor:
        """A random permutation of 0 … size − 1, int64, [size]."""
        return torch.from_numpy(np.argsort(self._words(size), kind="stable"))

    def _words(self, num: int) -> Array:
        self._num_draws += 1
        digest = hashlib.shake_256(f"{self._name}/{self._num_draws}".encode()).digest(8 * num)
        return np.frombuffer(digest, dtype="<u8")
