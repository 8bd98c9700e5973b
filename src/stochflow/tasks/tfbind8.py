"""TFBind8: how strongly a transcription factor binds each of the 65,536 DNA 8-mers (measured, not modelled)."""

import hashlib
import zlib
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from stochflow.errors import DataError
from stochflow.tasks.base import Alphabet, Task

TABLE = "tfbind8_six6_ref_r1.bin"
TABLE_SHA256 = "37d2f1239013fb6313cf892671cdc9620de9cbc2dd0d2c7e3dfa5f823a744de9"
LENGTH = 8
# E-scores are published with five decimals: the table holds E·1e5 − E_SCORE_OFFSET as three byte planes
E_SCORE_OFFSET = -47907
_COMPLEMENT = np.array([3, 2, 1, 0])  # A↔T, C↔G in the order ACGT


class TFBind8(Task):
    """SIX6 (reference allele, replicate 1): E-scores scaled to [0, 1] by their minimum and maximum."""

    name = "tfbind8"
    description = "DNA 8-mers that bind the transcription factor SIX6; 65,536 measured scores in [0, 1]"
    alphabet = Alphabet("ACGT")
    length = LENGTH
    mode_threshold = 0.9

    def __init__(self) -> None:
        e_scores = torch.from_numpy(read_table())
        low, high = e_scores.min(), e_scores.max()
        self._scores = (e_scores - low) / (high - low)
        self._powers = 4 ** torch.arange(LENGTH - 1, -1, -1)

    def score(self, tokens: Tensor) -> Tensor:
        return self._scores[(tokens * self._powers).sum(dim=-1)]


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


def pack_table(e_scores: np.ndarray) -> bytes:
    """Compressed table from the E-scores of the canonical 8-mers, [32,896]."""
    values = np.round(e_scores * 1e5).astype(np.int64) - E_SCORE_OFFSET
    planes = np.stack([values >> shift & 255 for shift in (0, 8, 16)]).astype(np.uint8)
    return zlib.compress(planes.tobytes(), level=9)


def read_table() -> np.ndarray:
    """Verified E-scores of all 8-mers in lexicographic order, float64, [65,536]."""
    path = resources.files("stochflow.tasks") / "data" / TABLE
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise DataError(f"the TFBind8 table {TABLE} cannot be read ({error}); reinstall stochflow") from None
    digest = hashlib.sha256(packed).hexdigest()
    if digest != TABLE_SHA256:
        raise DataError(
            f"the TFBind8 table {TABLE} is damaged (SHA-256 {digest[:12]}…, expected {TABLE_SHA256[:12]}…); "
            "reinstall stochflow or rebuild it with scripts/build_tfbind8.py"
        )
    planes = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(3, -1).astype(np.int64)
    values = planes[0] | planes[1] << 8 | planes[2] << 16
    canonical = canonical_codes()
    # integer over 1e5 gives the very decimal that was published
    e_scores = np.empty(4**LENGTH)
    e_scores[canonical] = (values + E_SCORE_OFFSET) / 1e5
    e_scores[reverse_complement_codes(canonical)] = e_scores[canonical]
    return e_scores
