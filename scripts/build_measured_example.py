"""Rebuild examples/campaign/measured.csv from the shipped measurements of PAX4.

    python scripts/build_measured_example.py

A laboratory's first library, in which nothing binds strongly: 500 of the DNA 8-mers whose E-score is at most 0.3, drawn
at random.
"""

from pathlib import Path

import numpy as np
import torch

from stochflow.environments.sequences.task import Alphabet
from stochflow.environments.sequences.tfbind8 import LENGTH, read_e_scores

TARGET = Path(__file__).parents[1] / "examples/campaign/measured.csv"
FACTOR, NUM, MOST = "PAX4", 500, 0.3


def measured() -> str:
    """The table as text."""
    e_scores = read_e_scores(FACTOR)
    weak = np.flatnonzero(e_scores <= MOST)
    rows = weak[torch.randperm(len(weak), generator=torch.Generator().manual_seed(0))[:NUM].numpy()]
    tokens = torch.cartesian_prod(*[torch.arange(4)] * LENGTH)[rows]
    lines = zip(Alphabet("ACGT").decode(tokens), e_scores[rows], strict=True)
    return "sequence,score\n" + "".join(f"{sequence},{score:.5f}\n" for sequence, score in lines)


if __name__ == "__main__":
    TARGET.write_text(measured(), encoding="utf-8")
