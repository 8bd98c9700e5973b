"""TFBind8: measured binding of a transcription factor to each of the 65,536 DNA 8-mers."""

import zlib
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.core.codes import encode, place_values
from stochflow.core.errors import ConfigError
from stochflow.environments.registry import FACTORS
from stochflow.environments.sequences.packed import read_verified
from stochflow.environments.sequences.task import Alphabet, Task

LENGTH = 8
# E-scores are published with five decimals: a table holds E·1e5 − offset as three byte planes, and −0.5 is the smallest
# E-score there can be; the first table of all starts at its own minimum
OFFSET = -50000
FIRST_OFFSET = -47907
_COMPLEMENT = np.array([3, 2, 1, 0])  # A↔T, C↔G in the order ACGT


class TFBind8(Task):
    """One factor (reference allele): E-scores of replicate 1, scaled to [0, 1] by their minimum and maximum.

    Replicate 2 is scaled as replicate 1 and clipped at zero; only reward noise uses it.

    >>> task = TFBind8("SIX6")
    >>> task.size, float(task.all_scores.max())
    (65536, 1.0)
    """

    name = "tfbind8"
    alphabet = Alphabet("ACGT")
    length = LENGTH
    mode_threshold = 0.9
    source = "Barrera 2016"
    num_measured = 4**LENGTH

    def __init__(self, factor: str = "SIX6") -> None:
        if factor not in FACTORS:
            raise ConfigError(f"unknown transcription factor '{factor}'; choose one of: {', '.join(FACTORS)}")
        self._factor = factor
        self.name = task_name(factor)
        self.description = f"DNA 8-mers bound by the transcription factor {factor}; two replicates"
        e_scores = torch.from_numpy(read_e_scores(factor))
        self._low, self._high = e_scores.min(), e_scores.max()
        self._scores = self._scaled(e_scores)
        self._place_values = place_values(4, LENGTH).numpy()

    def score(self, tokens: Tensor) -> Tensor:
        return torch.from_numpy(self._scores.numpy().take(tokens.numpy() @ self._place_values))

    def replicates(self, tokens: Tensor) -> Tensor:
        return self._both[encode(tokens, base=4)]

    @cached_property
    def _both(self) -> Tensor:
        """Scores of both replicates, [65,536, 2]."""
        second = self._scaled(torch.from_numpy(read_e_scores(self._factor, replicate=2)))
        return torch.stack([self._scores, second.clamp_min(0.0)], dim=-1)

    def _scaled(self, e_scores: Tensor) -> Tensor:
        return (e_scores - self._low) / (self._high - self._low)


def task_name(factor: str) -> str:
    """Name of a factor's task: `tfbind8` for SIX6, `tfbind8:<factor>` for the others."""
    return TFBind8.name if factor == "SIX6" else f"{TFBind8.name}:{factor}"


def table_name(factor: str, replicate: int = 1) -> str:
    """File name of a factor's table."""
    return f"tfbind8_{factor.lower()}_ref_r{replicate}.bin"


def canonical_codes() -> Array:
    """Codes of the 32,896 8-mers that are not larger than their reverse complement, ascending."""
    codes = np.arange(4**LENGTH)
    return codes[codes <= reverse_complement_codes(codes)]


def reverse_complement_codes(codes: Array) -> Array:
    """Lexicographic codes of the reverse complements; same shape."""
    result = np.zeros_like(codes)
    for position in range(LENGTH):
        result = result * 4 + _COMPLEMENT[codes // 4**position % 4]
    return result


def pack_table(e_scores: Array, factor: str = "SIX6", replicate: int = 1) -> bytes:
    """Compressed table from the E-scores of the canonical 8-mers, [32,896]."""
    values = np.round(e_scores * 1e5).astype(np.int64) - _offset(factor, replicate)
    planes = np.stack([values >> shift & 255 for shift in (0, 8, 16)]).astype(np.uint8)
    return zlib.compress(planes.tobytes(), level=9)


def read_e_scores(factor: str = "SIX6", replicate: int = 1) -> Array:
    """E-scores of all 8-mers in lexicographic order, float64, [65,536]; the file is verified by its SHA-256.

    >>> read_e_scores("SIX6").shape
    (65536,)
    """
    packed = read_verified(table_name(factor, replicate), "build_tfbind8.py")
    planes = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(3, -1).astype(np.int64)
    values = planes[0] | planes[1] << 8 | planes[2] << 16
    canonical = canonical_codes()
    # an integer divided by 1e5 is the float64 nearest to the published decimal
    e_scores = np.empty(4**LENGTH)
    e_scores[canonical] = (values + _offset(factor, replicate)) / 1e5
    e_scores[reverse_complement_codes(canonical)] = e_scores[canonical]
    return e_scores


def _offset(factor: str, replicate: int) -> int:
    return FIRST_OFFSET if (factor, replicate) == ("SIX6", 1) else OFFSET
