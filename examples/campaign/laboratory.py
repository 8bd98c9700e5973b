"""Stands in for the laboratory: makes, sequences and measures a plate, with the published E-scores of PAX4.

    python examples/campaign/laboratory.py plate.csv results.csv

Synthesis slips as in the tutorial: a letter is replaced by a random one with probability 0.02. Two wells fail.
"""

import sys
from pathlib import Path

import pandas as pd
import torch

from stochflow.environments.channels import uniform_slip
from stochflow.environments.sequences.task import Alphabet
from stochflow.environments.sequences.tfbind8 import LENGTH, read_e_scores

ALPHABET, SLIP = Alphabet("ACGT"), 0.02


def main(plate: Path, results: Path) -> None:
    orders = pd.read_csv(plate)
    generator = torch.Generator().manual_seed(len(orders))
    intended, channel = ALPHABET.encode(orders["order"].tolist()), uniform_slip(len(ALPHABET), SLIP)
    made = torch.stack([channel.sample(intended[:, t], t, generator) for t in range(LENGTH)], dim=1)
    codes = made @ 4 ** torch.arange(LENGTH - 1, -1, -1)
    scores = pd.Series(read_e_scores("PAX4")[codes.numpy()])
    failed = torch.randperm(len(orders), generator=generator)[:2].numpy()
    table = orders[["id"]].assign(observed=ALPHABET.decode(made), score=scores, failed="")
    table.loc[failed, ["observed", "score", "failed"]] = ["", float("nan"), "yes"]
    table.to_csv(results, index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
