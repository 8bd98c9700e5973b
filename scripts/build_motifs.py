"""Rebuild the motif matrices of the package from the wheel of pyjaspar 4.0.0, which holds the JASPAR 2024 database.

    pip download --no-deps pyjaspar==4.0.0
    python scripts/build_motifs.py pyjaspar-4.0.0-py3-none-any.whl

Writes motifs.jaspar into src/stochflow/environments/sequences/data, in the format of JASPAR, and prints its SHA-256,
which belongs in SHA256SUMS of that folder.
"""

import argparse
import hashlib
import sqlite3
import tempfile
import zipfile
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/stochflow/environments/sequences/data/motifs.jaspar"
DATABASE = "pyjaspar/data/JASPAR2024.sqlite"
# factor: identifier with version, of a human profile where there is one
PROFILES = {
    "CREB1": "MA0018.5",
    "CTCF": "MA0139.2",
    "E2F1": "MA0024.3",
    "FOS": "MA0476.2",
    "FOXA1": "MA0148.5",
    "GATA1": "MA0035.5",
    "HNF4A": "MA0114.5",
    "JUN": "MA0488.2",
    "KLF4": "MA0039.5",
    "MAX": "MA0058.4",
    "MYC": "MA0147.4",
    "NFKB1": "MA0105.4",
    "NRF1": "MA0506.3",
    "PAX6": "MA0069.1",
    "POU5F1": "MA1115.2",
    "REST": "MA0138.3",
    "RUNX1": "MA0002.3",
    "SOX2": "MA0143.5",
    "SP1": "MA0079.5",
    "SRF": "MA0083.3",
    "STAT3": "MA0144.3",
    "TBP": "MA0108.3",
    "TP53": "MA0106.3",
    "YY1": "MA0095.4",
}


def profile(database: sqlite3.Connection, factor: str, identifier: str) -> str:
    """One matrix of counts in the format of JASPAR: a heading and one row per letter."""
    base, version = identifier.split(".")
    rows = database.execute(
        "SELECT m.NAME, d.row, d.col, d.val FROM MATRIX m JOIN MATRIX_DATA d ON d.ID = m.ID "
        "WHERE m.COLLECTION = 'CORE' AND m.BASE_ID = ? AND m.VERSION = ? ORDER BY d.row, d.col",
        (base, int(version)),
    ).fetchall()
    if {name.upper() for name, *_ in rows} != {factor}:
        raise SystemExit(f"{identifier} is not the profile of {factor}")
    lines = [f">{identifier} {factor}"]
    for letter in "ACGT":
        counts = [count for _, row, _, count in rows if row == letter]
        lines.append(f"{letter} [ {' '.join(f'{count:g}' for count in counts)} ]")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pyjaspar", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(arguments.pyjaspar) as wheel:
        database = sqlite3.connect(wheel.extract(DATABASE, folder))
        text = "".join(profile(database, *named) for named in PROFILES.items())
        database.close()
    TARGET.write_text(text, encoding="ascii", newline="\n")
    print(f"{TARGET.name}: {len(text):,} bytes, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}")


if __name__ == "__main__":
    main()
