"""Every method on tasks that nobody can enumerate, with the same number of paid calls.

python -m benchmarks.long_spaces --parts rna-fold motifs --seeds 1        # hours on two cores for all of it
python -m benchmarks.long_spaces --parts rna-bind --methods sgfn-kl adalead

Every run is a row of `results/long_spaces.csv`: mean and top-100 of 1,000 draws, J and its standard error, regret where
it is known, modes reached, the 128 best of what was paid for and the best, and CPU seconds of training. Rows that are
there are not run again. The story is three words of four letters, each worth the cube of its best match.
"""

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from benchmarks.sweep import RESULTS
from stochflow.core.files import write_atomically
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.environments.settings import resolve_layers
from stochflow.evaluation.samples import draw
from stochflow.experiments.build import Experiment, build
from stochflow.experiments.torch_settings import torch_threads

METHODS = ["sgfn-kl", "adalead", "genetic", "mcmc", "kmer-plan", "gfn-tb", "gfn-ls", "gfn-delta-cs", "gfn-al"]
NUM_DRAWS, TOP, TOP_PAID = 1000, 100, 128
KEYS = ["task", "noise", "calls", "method", "seed"]
_DNA = Alphabet("ACGT")


class Part(NamedTuple):
    """Tasks of one kind, their noises and numbers of calls, and settings of the reward and the batch."""

    tasks: list[str]
    noises: list[float]
    calls: list[int]
    settings: dict[str, Any]


PARTS = {
    "story": Part(["story14", "story20"], [0.0], [8000], {"reward": {"beta": 10.0}}),
    "rna-fold": Part(["rna-fold:50"], [0.1], [2000, 8000], {"reward": {"beta": 40.0, "floor": 1e-40}}),
    "rna-fold-100": Part(["rna-fold:100"], [0.1, 0.25], [8000], {"reward": {"beta": 80.0, "floor": 1e-80}}),
    "bits": Part(["bits:120,8"], [0.1], [8000, 32000], {"reward": {"beta": 240.0, "floor": 1e-300}}),
    "rna-bind": Part(["rna-bind:RNA1,50"], [0.0, 0.1, 0.25], [1280], {"optimiser": {"batch_size": 128}}),
    "rna-bind-100": Part(["rna-bind:RNA1,100"], [0.0], [1280], {"optimiser": {"batch_size": 128}}),
    "ehrlich": Part(["ehrlich:20,32,2,4", "ehrlich:32,32,4,4"], [0.0], [5120], {}),
    "motifs": Part(["motifs:RUNX1+YY1,50", "motifs:RUNX1+YY1,100"], [0.0, 0.1, 0.25], [8000], {}),
    "tables": Part(["dmsc", "gb1", "tfbind8"], [0.25], [2000], {}),
}


class Story(Task):
    """Σ over three words of (share of letters that the best window has right)³."""

    alphabet, mode_threshold, description = _DNA, 2.5, "three words of four letters"
    words = _DNA.encode(["TATA", "CAAT", "GGCG"])

    def score(self, tokens: Tensor) -> Tensor:
        windows = tokens.unfold(1, 4, 1)
        matches = [(windows == word).double().mean(dim=-1).amax(dim=1) for word in self.words]
        return torch.stack(matches).pow(3).sum(dim=0)


for _length in (14, 20):
    TASKS[f"story{_length}"] = type(f"Story{_length}", (Story,), {"name": f"story{_length}", "length": _length})


def run(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """One training run and what it reached."""
    channel = {"kind": "uniform-slip", "noise": row["noise"]} if row["noise"] else {"kind": "none"}
    budget = {"trajectories" if row["task"] in PARTS["tables"].tasks else "oracle_calls": row["calls"]}
    layer = {"task": row["task"], "method": row["method"], "seed": row["seed"], "channel": channel, "budget": budget}
    experiment = build(resolve_layers([layer, settings]))
    begun = time.process_time()
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    spent = time.process_time() - begun
    return {**row, **_judged(experiment), "cpu_seconds": round(spent, 1)}


def _judged(experiment: Experiment) -> dict[str, float]:
    environment, learner, truth = experiment.environment, experiment.trainer.learner, experiment.truth
    made = draw(experiment.policy, environment, NUM_DRAWS, torch.Generator().manual_seed(1), pay=True)
    gaps = environment.log_reward(made.made, made.scores, learner.reward) - made.log_probs
    paid = learner.memory.scores
    found = {
        "mean": float(made.scores.mean()),
        "top100": float(made.scores.topk(TOP).values.mean()),
        "j": float(gaps.mean()),
        "j_se": float(gaps.std()) / NUM_DRAWS**0.5,
        "top128_paid": float(paid.topk(min(TOP_PAID, len(paid))).values.mean()),
        "best_paid": float(paid.max()),
        "paid": len(paid),
    }
    modes = environment.modes_reached(made.made)
    if modes is not None:
        found["modes"] = int(modes.sum())
    if truth is not None and truth.exact_evaluation:
        found["regret"] = truth.evaluate(experiment.policy)["regret"]
    elif truth is not None:
        found["regret"] = truth.attainable.log_z - truth.attainable.min_kl - found["j"]
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--noises", nargs="+", type=float)
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--calls", nargs="+", type=int)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS / "long_spaces.csv")
    given = parser.parse_args()
    for part in (PARTS[name] for name in given.parts):
        cases = [
            dict(zip(KEYS, (task, noise, calls, method, seed), strict=True))
            for seed in given.seeds
            for task in given.tasks or part.tasks
            for noise in given.noises or part.noises
            for calls in given.calls or part.calls
            for method in given.methods
        ]
        for case in cases:
            there = pd.read_csv(given.results) if given.results.exists() else pd.DataFrame(columns=KEYS)
            if any(all(one[key] == case[key] for key in KEYS) for one in there[KEYS].to_dict("records")):
                continue
            row = run(case, part.settings)
            print(row, flush=True)
            there = pd.read_csv(given.results) if given.results.exists() else there
            rows = pd.concat([there, pd.DataFrame([row])]).sort_values(KEYS)
            write_atomically(given.results, rows.to_csv(index=False))


if __name__ == "__main__":
    with torch_threads(1):
        main()
