"""Proposals from a table that holds 500 measured sequences of a much larger space.

python -m benchmarks.half_measured [--tasks story20 tfbind8:ARX …] [--seeds 0 1 2]

As a user would: `train --table` with its defaults and no noise of synthesis, then the 96 best of 20,000 draws that are
not in the table and differ from each other in two letters at least. The story (three words of four letters in 20, best
possible 3) is measured without noise, the twelve factors of tfbind8 with a normal error of 20 % of the deviation of
their scores. Every run is a row of `results/half_measured.csv`: true mean and best of the 96, and where their mean lies
among all designs of the task (in the story: 100,000 random ones); mean and best of what was measured; mean distance of
the 96 to the table; held-out figures of the surrogate; wall-clock and CPU seconds. Rows that are there are not run
again.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import stochflow
from benchmarks.long_spaces import register_story
from benchmarks.sweep import RESULTS
from stochflow.core.files import write_atomically
from stochflow.environments.registry import FACTORS, make_task
from stochflow.environments.sequences.task import Task
from stochflow.experiments.torch_settings import torch_threads

TASKS = ["story20", *("tfbind8" if factor == "SIX6" else f"tfbind8:{factor}" for factor in FACTORS)]
NUM_MEASURED, NUM_PROPOSED, NUM_DRAWS, NUM_RANDOM = 500, 96, 20_000, 100_000
NOISE = {"story20": 0.0}  # of a measurement, relative to the deviation of the scores; 0.2 elsewhere
LEAST_DISTANCE = 2


def measured_table(task: Task, seed: int) -> pd.DataFrame:
    """Random designs and their measured scores."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(task.num_tokens, (2 * NUM_MEASURED, task.length), generator=generator).unique(dim=0)
    tokens = drawn[torch.randperm(len(drawn), generator=generator)[:NUM_MEASURED]]
    errors = torch.randn(NUM_MEASURED, generator=generator, dtype=torch.float64)
    scores = task.score(tokens).double()
    scores = scores + NOISE.get(task.name, 0.2) * scores.std() * errors
    return pd.DataFrame({"sequence": task.alphabet.decode(tokens), "score": scores.numpy()})


def proposals(drawn: pd.DataFrame, task: Task) -> pd.DataFrame:
    """The best draws that are not in the table, each two letters at least from the better ones."""
    ranked = drawn[~drawn["measured"]].drop_duplicates("sequence").sort_values("score", ascending=False)
    tokens = task.alphabet.encode(list(ranked["sequence"]))
    kept: list[int] = []
    for place in range(len(ranked)):
        if len(kept) == NUM_PROPOSED:
            break
        if not kept or int((tokens[kept] != tokens[place]).sum(dim=1).min()) >= LEAST_DISTANCE:
            kept.append(place)
    return ranked.iloc[kept]


def run(name: str, seed: int) -> dict[str, Any]:
    """Train on one table and judge what it proposes by the truth."""
    task, begun, cpu = make_task(name), time.perf_counter(), time.process_time()
    table = measured_table(task, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table.to_csv(path, index=False)
        options: dict[str, Any] = {"world": "measured", "noise": "none", "seed": seed}
        trained = stochflow.train(table=path, out=f"{folder}/run", **options)
        chosen, summary = proposals(trained.sample(NUM_DRAWS), task), trained.summary
    seconds = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}
    true, known = (task.score(task.alphabet.encode(list(rows["sequence"]))) for rows in (chosen, table))
    found = {
        "true_mean": float(true.mean()),
        "true_best": float(true.max()),
        "percentile": 100.0 * float((everything(task) < true.mean()).double().mean()),
        "measured_mean": float(known.mean()),
        "measured_best": float(known.max()),
        "distance": float(chosen["distance"].mean()),
        "r2": summary.surrogate_r2,
        "rank_correlation": summary.surrogate_rank_correlation,
        "coverage": summary.surrogate_coverage,
        **seconds,
    }
    figures = {key: None if value is None else round(value, 3) for key, value in found.items()}
    return {"task": name, "seed": seed, "method": summary.method, "proposed": len(chosen), **figures}


def everything(task: Task) -> Tensor:
    """True scores of all designs, or of random ones where they cannot be listed."""
    if task.enumerable:
        return task.all_scores
    generator = torch.Generator().manual_seed(0)
    return task.score(torch.randint(task.num_tokens, (NUM_RANDOM, task.length), generator=generator))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS / "half_measured.csv")
    given = parser.parse_args()
    register_story()
    rows = pd.read_csv(given.results).to_dict("records") if given.results.exists() else []
    there = {(row["task"], row["seed"]) for row in rows}
    for name, seed in ((name, seed) for seed in given.seeds for name in given.tasks):
        if (name, seed) not in there:
            rows.append(run(name, seed))
            print(rows[-1], flush=True)
            frame = pd.DataFrame(rows).sort_values(["task", "seed"])
            write_atomically(given.results, frame.to_csv(index=False))


if __name__ == "__main__":
    with torch_threads(1):
        main()
