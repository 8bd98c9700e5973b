"""Whether the intervals of surrogates hold what they promise, on nineteen landscapes.

python -m benchmarks.surrogate_calibration [--tasks tfbind8:ARX,…] [--surrogates kmer-ridge,…] [--seeds 3]

Each surrogate is fitted to 500 random designs whose scores carry normal noise of a fifth of their standard deviation,
and predicts 2,000 other designs. It is not told the noise, as a table without replicates does not tell it, so its
deviations come from errors on noisy scores and its intervals are of the next measurement: `coverage` is the share of
held-out scores with the same noise inside 80 % intervals. `coverage_true` is that of the scores without noise, which
should be a little larger, and `coverage_best` that of the noisy scores of the hundred best predictions, designs that
would be ordered. R² and Spearman's rank correlation are those of the noisy scores too. Designs are drawn from
those that were measured; in spaces too large to be listed one half is random and the other mutants of its best.
Every fit is a row of benchmarks/results/surrogate_calibration.csv, means over seeds are in surrogate_calibration.txt.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

from benchmarks.surrogates import names_in
from stochflow.core.files import write_atomically
from stochflow.environments.registry import FACTORS, make_task
from stochflow.environments.sequences.lookup_task import MeasuredTask
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.tfbind8 import task_name
from stochflow.experiments.torch_settings import torch_threads
from stochflow.surrogates.base import HeldOut, Prediction
from stochflow.surrogates.letter_distances import letter_distance
from stochflow.surrogates.registry import SURROGATES, make_surrogate

RESULTS = Path(__file__).parent / "results"
LONG = ("rna-bind:RNA1,50", "motifs:GATA1+SP1,30")
TASKS = (*map(task_name, FACTORS), "gb1", "dmsc", "mpsa", "smn1", "intron30c", *LONG)
NUM_ROWS, NUM_TEST, NUM_BEST = 500, 2000, 100
NOISE = 0.2  # of the standard deviation of the scores
LEAST, MOST = 0.7, 0.9  # coverage of an 80 % interval that counts as honest
NUM_PARENTS, NUM_CHANGES = 50, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--surrogates", default=",".join(SURROGATES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = []
    with torch_threads(1):
        for name in names_in(given.tasks):
            task = make_task(name)
            for seed in range(given.seeds):
                rows += measure(task, given.surrogates.split(","), seed)
            print(name, flush=True)
    found = pd.DataFrame(rows)
    write_atomically(given.results / "surrogate_calibration.csv", found.to_csv(index=False, float_format="%.4f"))
    text = summary(found)
    write_atomically(given.results / "surrogate_calibration.txt", text)
    print(text)


def measure(task: Task, surrogates: list[str], seed: int) -> list[dict[str, object]]:
    """One row for every surrogate."""
    generator = torch.Generator().manual_seed(seed)
    tokens = designs(task, NUM_ROWS + NUM_TEST, generator)
    scores = task.score(tokens).double()
    noise = NOISE * scores.std() * torch.randn(len(scores), generator=generator, dtype=torch.float64)
    shift = float((scores + noise).min())  # surrogates refuse negative scores, and none depends on their zero
    noisy, true = scores + noise - shift, scores - shift
    rows = []
    for name in surrogates:
        started = time.process_time()
        surrogate = make_surrogate(name, task.num_tokens, task.length, letter_distance(task))
        surrogate.fit(tokens[:NUM_ROWS], noisy[:NUM_ROWS])
        prediction = surrogate.predict(tokens[NUM_ROWS:])
        found = figures(noisy[NUM_ROWS:], prediction)
        best = prediction.mean.topk(NUM_BEST).indices
        found["coverage_true"] = coverage(true[NUM_ROWS:], prediction)
        found["coverage_best"] = coverage(noisy[NUM_ROWS:][best], prediction[best])
        seconds = round(time.process_time() - started, 2)
        label = {"task": task.name, "surrogate": name, "seed": seed}
        rows.append(label | found | {"cpu_seconds": seconds})
    return rows


def figures(scores: Tensor, prediction: Prediction) -> dict[str, float]:
    """How predictions fit scores that the surrogate has not seen: R², Spearman's rank correlation, 80 % coverage."""
    held_out = HeldOut(torch.arange(len(scores)), scores, prediction)
    rank = float(spearmanr(scores.numpy(), prediction.mean.numpy()).statistic)
    return {"r_squared": held_out.r_squared, "spearman": rank, "coverage": held_out.coverage()}


def coverage(scores: Tensor, prediction: Prediction) -> float:
    """Share of scores inside their 80 % intervals."""
    return HeldOut(torch.arange(len(scores)), scores, prediction).coverage()


def designs(task: Task, num: int, generator: torch.Generator) -> Tensor:
    """Different designs with scores in random order, [num, L]."""
    if not task.enumerable:
        return _with_mutants(task, num, generator)
    tokens = task.all_sequences
    if isinstance(task, MeasuredTask):
        tokens = tokens[task.is_measured(tokens)]
    return tokens[torch.randperm(len(tokens), generator=generator)[:num]]


def _with_mutants(task: Task, num: int, generator: torch.Generator) -> Tensor:
    """One half uniform, the other the fifty best of these with up to three letters changed."""
    tokens = torch.randint(task.num_tokens, (num // 2, task.length), generator=generator)
    best = tokens[task.score(tokens).topk(NUM_PARENTS).indices]
    mutants = best[torch.randint(NUM_PARENTS, (2 * num,), generator=generator)]
    places = torch.randint(task.length, (2 * num, NUM_CHANGES), generator=generator)
    letters = torch.randint(task.num_tokens, (2 * num, NUM_CHANGES), generator=generator)
    mutants = mutants.scatter(1, places, letters).unique(dim=0)
    mutants = mutants[torch.randperm(len(mutants), generator=generator)[: num - len(tokens)]]
    return torch.cat([tokens, mutants])[torch.randperm(num, generator=generator)]


def summary(found: pd.DataFrame) -> str:
    """Means over seeds, and on how many landscapes intervals are honest."""
    means = found.groupby(["task", "surrogate"], sort=False).mean(numeric_only=True).drop(columns="seed")
    tables = {column: means[column].unstack("surrogate", sort=False) for column in means}
    parts = [f"{column}\n{table.to_string(float_format='%.3f')}" for column, table in tables.items()]
    return "\n\n".join([*parts, f"coverage between {LEAST} and {MOST}\n{honest(tables['coverage'])}"]) + "\n"


def honest(coverage: pd.DataFrame) -> str:
    """On how many landscapes each surrogate covers what it should; rows are tasks, columns surrogates."""
    within = (coverage >= LEAST) & (coverage <= MOST)
    return "\n".join(f"{name}: {within[name].sum()} of {len(within)}" for name in within)


if __name__ == "__main__":
    main()
