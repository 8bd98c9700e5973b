"""TFBind8: measured binding of a transcription factor to each of the 65,536 DNA 8-mers."""

import zlib
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.core.codes import encode, place_values
from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.packed import read_verified
from stochflow.environments.sequences.task import Alphabet, Task

LENGTH = 8
# E-scores are published with five decimals: a table holds E·1e5 − offset as three byte planes, and −0.5 is the smallest
# E-score there can be; the first table of all starts at its own minimum
OFFSET = -50000
FIRST_OFFSET = -47907
# replicates 1 and 2 of the reference allele; every factor whose replicates correlate by 0.9 or more
SHA256 = {
    "SIX6": (
        "37d2f1239013fb6313cf892671cdc9620de9cbc2dd0d2c7e3dfa5f823a744de9",
        "857e5207b3be3431fe84af6f8bcb190870bddb2f5891bdb2cb155741c7ad98d3",
    ),
    "ARX": (
        "6ca9b2f3ac38d32d33c0b67053aa127df3befa4bbe10c4fe8db25d0e1693e645",
        "d380825725a11c0ef5e607733e3837a52533d497312e00062dcd8dd4e74ecf07",
    ),
    "HOXB7": (
        "94e9ada00ff32a30c936aa25d45957223ee697d1ec304b344848d86e30dfffeb",
        "a3ba2c4528a594d1ca5f57ac6b6763bf70bf3e259198be9a2aa617105cf4f5b8",
    ),
    "HOXC4": (
        "cf157a4b1f48fbf4d3a561bd8ed5ae94d07fcb961e89a16e49c22de867341679",
        "4872121fbf8a1fa4db773c6177de0c36d0d01770df70fac80377e6d017d2c8f8",
    ),
    "ISX": (
        "00a964cb4411bf0aaddccd529da9b6c10e6162a146d8d33d1b603851621eb093",
        "907bd9316f0bec5e0e9810dad571ac5ca2b9f013b11b269e0d8b23a42d2ac3d2",
    ),
    "MSX2": (
        "a361e19d14643e3c3a86439cbe0ee1321b85b5df97872f8d1ee95f817c988f07",
        "9f8492f5d3dc098baa8696280f5408a3c987969748f5d4b56c34783f79ee2035",
    ),
    "PAX4": (
        "d658bdd611542964dd71978e569811b8d94f2fba086daaf4c66c0f1f1e9ab535",
        "fe206aac82fc7a59d2bde11e6486fddc32265629940d037bfb0f133ad6c35322",
    ),
    "PAX6": (
        "8a58d1ce88cc7c038c3f3b7fd6b8fb77deed14920c7132d1e76b3532c2c77a98",
        "92ebdf03eb14a2e1c70203f1d427222731151a41e8b9d36eeeef17f20ea7c4ce",
    ),
    "PBX4": (
        "86ae503558e579f5cf5dec0574e67f3a0181f5065560b5d397c6fb3cda98e4bb",
        "728feb5d8e25fb402669ec2d6e9e91e17c8b2f50fbd63372f8b4777ad4581caa",
    ),
    "PITX2": (
        "a176f096fe68937f6c38b9ad0ffae184a3403b2d6f3003a5a655da6a53ddd118",
        "0f360b94c7e034e3784645239201910a5b070d715b777fc80ef5891921068611",
    ),
    "VAX2": (
        "97e1e71a39747a7cb99d82cb0b113c7b05b6b6f91f699bfc2d5ffb8cc3d1e862",
        "d34f8d920e09aebd41704e740f8e55b94e6eb6f984d248561916a4a6fadc46f5",
    ),
    "ZNF655": (
        "d9a86e2f8d6ec8c49450f6759068af52a9f3cd9e9ebd3a328db7e9ca28273ace",
        "2419e58c458b2aed434dc923351fd810e33301f7fab98f6ec0eeca758a7a8040",
    ),
}
FACTORS = tuple(SHA256)
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
    packed = read_verified(table_name(factor, replicate), SHA256[factor][replicate - 1], "build_tfbind8.py")
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
