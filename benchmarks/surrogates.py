"""How well surrogates predict scores that were not paid for, from random designs.

python -m benchmarks.surrogates [--tasks tfbind8:ARX,…] [--rows 500] [--seeds 3]

Each surrogate is fitted to the scores of random designs and predicts 5,000 others. Columns: R² on these; R² on the
rows it was fitted to, each held out (leave-one-out, out-of-bag); the share of the scores inside 80 % intervals; the
true mean of the 96 best predictions. Means over seeds; every measurement is in benchmarks/results/surrogates.csv.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from stochflow.environments.registry import make_task
from stochflow.environments.sequences.task import Task
from stochflow.experiments.torch_settings import torch_threads
from stochflow.surrogates.base import HeldOut, Surrogate
from stochflow.surrogates.ensemble import Ensemble
from stochflow.surrogates.forest import Forest
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.kmer_ridge import KmerRidge
from stochflow.surrogates.letter_distances import hamming, letter_distance

RESULTS = Path(__file__).parent / "results"
TASKS = "tfbind8:ARX,tfbind8,dmsc,gb1,bits:120,8,rna-fold:50"
NUM_TEST = 5000
NUM_BEST = 96


def process(task: Task) -> GaussianProcess:
    return GaussianProcess(task.num_tokens, task.length, letter_distance(task))


def ridge(task: Task) -> KmerRidge:
    return KmerRidge(task.num_tokens, task.length)


SURROGATES: dict[str, Callable[[Task], Surrogate]] = {
    "k-mer ridge": ridge,
    "process": process,
    "process, Hamming": lambda task: GaussianProcess(task.num_tokens, task.length, hamming(task.num_tokens)),
    "process, log": lambda task: GaussianProcess(task.num_tokens, task.length, letter_distance(task), transform="log"),
    "forest": lambda task: Forest(task.num_tokens, task.length, letter_distance(task)),
    "ensemble": lambda task: Ensemble({"ridge": ridge(task), "process": process(task)}),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", default=TASKS)
    options.add_argument("--rows", default="500")
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    rows = []
    with torch_threads(1):
        for name in names_in(given.tasks):
            task = make_task(name)
            for num_rows in map(int, given.rows.split(",")):
                rows += [row for seed in range(given.seeds) for row in measure(task, num_rows, seed)]
    table = pd.DataFrame(rows)
    table.to_csv(RESULTS / "surrogates.csv", index=False, float_format="%.4f")
    means = table.groupby(["task", "rows", "surrogate"], sort=False).mean(numeric_only=True).drop(columns="seed")
    text = means.to_string(float_format="%.3f")
    (RESULTS / "surrogates.txt").write_text(text + "\n", encoding="utf-8")
    print(text)


def names_in(text: str) -> list[str]:
    """Task names between commas; a part that is a number belongs to the name before it (bits:120,8)."""
    names: list[str] = []
    for part in text.split(","):
        if part.isdigit() and names:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def measure(task: Task, num_rows: int, seed: int) -> list[dict[str, object]]:
    """One row of the table for every surrogate."""
    tokens, scores = random_designs(task, num_rows + NUM_TEST, seed)
    measured = []
    for name, make in SURROGATES.items():
        surrogate = make(task)
        surrogate.fit(tokens[:num_rows], scores[:num_rows])
        test = HeldOut(torch.arange(NUM_TEST), scores[num_rows:], surrogate.predict(tokens[num_rows:]))
        best = test.prediction.mean.topk(NUM_BEST).indices
        measured.append(
            {
                "task": task.name,
                "rows": num_rows,
                "surrogate": name,
                "seed": seed,
                "R²": test.r_squared,
                "held out": surrogate.leave_one_out().r_squared,
                "coverage": test.coverage(),
                "best 96": float(test.scores[best].mean()),
            }
        )
    return measured


def random_designs(task: Task, num: int, seed: int) -> tuple[Tensor, Tensor]:
    """Different designs with known scores, in random order."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(task.num_tokens, (2 * num, task.length), generator=generator).unique(dim=0)
    tokens = tokens[task.known(tokens)]
    tokens = tokens[torch.randperm(len(tokens), generator=generator)[:num]]
    return tokens, task.score(tokens).double()


if __name__ == "__main__":
    main()
