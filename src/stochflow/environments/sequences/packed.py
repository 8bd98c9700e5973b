"""Data files of the package, verified by the SHA-256 that `data/SHA256SUMS` lists, and tables of integers in them."""

import hashlib
import lzma
from collections.abc import Sequence
from functools import cache
from importlib import resources

import numpy as np

from stochflow.core.arrays import Array
from stochflow.core.errors import DataError

_SHIFTS = (0, 8, 16)
_DATA = resources.files("stochflow.environments.sequences") / "data"


def pack(columns: Sequence[Array]) -> bytes:
    """Columns of integers in [0, 2^24) as three byte planes each, compressed with xz."""
    numbers = np.stack(columns).astype(np.int64)
    if numbers.min() < 0 or numbers.max() >= 2**24:
        raise ValueError("a packed number must lie in [0, 2^24); shift or scale the column")
    planes = np.stack([numbers >> shift & 255 for shift in _SHIFTS], axis=1).astype(np.uint8)
    return lzma.compress(planes.tobytes(), preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes, num_columns: int) -> Array:
    """The columns of packed bytes, the inverse of `pack`; int64, [num_columns, rows]."""
    planes = np.frombuffer(lzma.decompress(packed), dtype=np.uint8).reshape(num_columns, len(_SHIFTS), -1)
    return (planes.astype(np.int64) << np.array(_SHIFTS)[:, None]).sum(axis=1)


@cache
def checksums() -> dict[str, str]:
    """SHA-256 of every data file by its name."""
    lines = (_DATA / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    return {name: sha256 for sha256, name in map(str.split, lines)}


def read_verified(name: str, script: str) -> bytes:
    """Bytes of a data file of the package; a DataError if its SHA-256 differs.

    Args:
        script: that builds the file.
    """
    try:
        packed, sha256 = (_DATA / name).read_bytes(), checksums()[name]
    except OSError as error:
        raise DataError(f"the table {name} cannot be read ({error}); reinstall stochflow") from None
    digest = hashlib.sha256(packed).hexdigest()
    if digest != sha256:
        raise DataError(
            f"the table {name} is damaged (SHA-256 {digest[:12]}…, expected {sha256[:12]}…); "
            f"reinstall stochflow or rebuild it with scripts/{script}"
        )
    return packed
