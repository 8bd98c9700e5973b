"""TFBind8: how strongly a transcription factor binds each of the 65,536 DNA 8-mers (measured, not modelled)."""

import hashlib
import zlib
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from stochflow.errors import ConfigError, DataError
from stochflow.tasks.base import Alphabet, Task

TABLE = "tfbind8_six6_ref_r1.bin"
TABLE_SHA256 = "37d2f1239013fb6313cf892671cdc9620de9cbc2dd0d2c7e3dfa5f823a744de9"
LENGTH = 8
# E-scores are published with five decimals: a table holds E·1e5 − offset as three byte planes
E_SCORE_OFFSET = -47907
# the other factors start at the smallest E-score there can be
OTHER_OFFSET = -50000
OTHER_SHA256 = {
    "ARX": "6ca9b2f3ac38d32d33c0b67053aa127df3befa4bbe10c4fe8db25d0e1693e645",
    "HOXC4": "cf157a4b1f48fbf4d3a561bd8ed5ae94d07fcb961e89a16e49c22de867341679",
    "ISX": "00a964cb4411bf0aaddccd529da9b6c10e6162a146d8d33d1b603851621eb093",
    "MSX2": "a361e19d14643e3c3a86439cbe0ee1321b85b5df97872f8d1ee95f817c988f07",
    "PAX4": "d658bdd611542964dd71978e569811b8d94f2fba086daaf4c66c0f1f1e9ab535",
    "PITX2": "a176f096fe68937f6c38b9ad0ffae184a3403b2d6f3003a5a655da6a53ddd118",
    "VAX2": "97e1e71a39747a7cb99d82cb0b113c7b05b6b6f91f699bfc2d5ffb8cc3d1e862",
    "ZNF655": "d9a86e2f8d6ec8c49450f6759068af52a9f3cd9e9ebd3a328db7e9ca28273ace",
}
FACTORS = ("SIX6", *OTHER_SHA256)
_COMPLEMENT = np.array([3, 2, 1, 0])  # A↔T, C↔G in the order ACGT


class TFBind8(Task):
    """One factor (reference allele, replicate 1): E-scores scaled to [0, 1] by their minimum and maximum."""

    name = "tfbind8"
    alphabet = Alphabet("ACGT")
    length = LENGTH
    mode_threshold = 0.9

    def __init__(self, factor: str = "SIX6") -> None:
        if factor not in FACTORS:
            raise ConfigError(f"unknown transcription factor '{factor}'; choose one of: {', '.join(FACTORS)}")
        self.name = task_name(factor)
        self.description = f"DNA 8-mers that bind the transcription factor {factor}; 65,536 measured scores in [0, 1]"
        e_scores = torch.from_numpy(read_table(factor))
        low, high = e_scores.min(), e_scores.max()
        self._scores = (e_scores - low) / (high - low)
        self._powers = 4 ** torch.arange(LENGTH - 1, -1, -1)

    def score(self, tokens: Tensor) -> Tensor:
        return self._scores[(tokens * self._powers).sum(dim=-1)]


def task_name(factor: str) -> str:
    """What the command line calls a factor's task: `tfbind8` for SIX6, `tfbind8:<factor>` for the others."""
    return TFBind8.name if factor == "SIX6" else f"{TFBind8.name}:{factor}"


def table_name(factor: str) -> str:
    """File of a factor's table."""
    return TABLE if factor == "SIX6" else f"tfbind8_{factor.lower()}_ref_r1.bin"


def canonical_codes() -> np.ndarray:
    """Codes of the 32,896 8-mers that do not come after their reverse complement, ascending."""
    codes = np.arange(4**LENGTH)
    return codes[codes <= reverse_complement_codes(codes)]


def reverse_complement_codes(codes: np.ndarray) -> np.ndarray:
    """Lexicographic codes of the reverse complements; same shape."""
    result = np.zeros_like(codes)
    for position in range(LENGTH):
        result = result * 4 + _COMPLEMENT[codes // 4**position % 4]
    return result


def pack_table(e_scores: np.ndarray, factor: str = "SIX6") -> bytes:
    """Compressed table from the E-scores of the canonical 8-mers, [32,896]."""
    values = np.round(e_scores * 1e5).astype(np.int64) - _offset(factor)
    planes = np.stack([values >> shift & 255 for shift in (0, 8, 16)]).astype(np.uint8)
    return zlib.compress(planes.tobytes(), level=9)


def read_table(factor: str = "SIX6") -> np.ndarray:
    """Verified E-scores of all 8-mers in lexicographic order, float64, [65,536]."""
    name = table_name(factor)
    expected = TABLE_SHA256 if factor == "SIX6" else OTHER_SHA256[factor]
    path = resources.files("stochflow.tasks") / "data" / name
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise DataError(f"the TFBind8 table {name} cannot be read ({error}); reinstall stochflow") from None
    digest = hashlib.sha256(packed).hexdigest()
    if digest != expected:
        raise DataError(
            f"the TFBind8 table {name} is damaged (SHA-256 {digest[:12]}…, expected {expected[:12]}…); "
            "reinstall stochflow or rebuild it with scripts/build_tfbind8.py"
        )
    planes = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(3, -1).astype(np.int64)
    values = planes[0] | planes[1] << 8 | planes[2] << 16
    canonical = canonical_codes()
    # integer over 1e5 gives the very decimal that was published
    e_scores = np.empty(4**LENGTH)
    e_scores[canonical] = (values + _offset(factor)) / 1e5
    e_scores[reverse_complement_codes(canonical)] = e_scores[canonical]
    return e_scores


def _offset(factor: str) -> int:
    return E_SCORE_OFFSET if factor == "SIX6" else OTHER_OFFSET
