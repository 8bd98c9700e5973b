"""Every method on tasks that nobody can enumerate, with the same number of paid calls.

python -m benchmarks.long_spaces --parts rna-fold motifs --seeds 1        # hours on two cores for all of it
python -m benchmarks.long_spaces --parts rna-bind --methods sgfn-kl adalead

Every run is a row of `results/long_spaces.csv`: mean and top-100 of 1,000 draws, J and its standard error, regret where
it is known, modes reached, the 128 best of what was paid for and the best, and CPU seconds of training. Rows that are
there are not run again. The story is three words of four letters, each worth the cube of its best match.

`results/long_spaces_curves.csv` beside it has eight points along every run: calls paid so far, J of 300 draws and its
standard error, the largest J that any policy can have where that is known, the best score paid for, the mean of the 100
best, and CPU seconds of training so far. `benchmarks.long_spaces_plot` draws them.
"""

import argparse
import time
from collections.abc import Iterator
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
from stochflow.evaluation.elbo import elbo
from stochflow.evaluation.samples import draw
from stochflow.experiments.build import Experiment, build
from stochflow.experiments.torch_settings import torch_threads

METHODS = ["sgfn-kl", "adalead", "genetic", "mcmc", "kmer-plan", "gfn-tb", "gfn-ls", "gfn-delta-cs", "gfn-al"]
NUM_DRAWS, TOP, TOP_PAID = 1000, 100, 128
NUM_CURVE_DRAWS = 300
CURVE_AT = (0.03, 0.06, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0)  # shares of the budget: more often where more happens
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


def register_story() -> None:
    """Make the two lengths of the story tasks of this process."""
    for length in (14, 20):
        TASKS[f"story{length}"] = type(f"Story{length}", (Story,), {"name": f"story{length}", "length": length})


def run(row: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One training run: what it reached, and points along the way."""
    channel = {"kind": "uniform-slip", "noise": row["noise"]} if row["noise"] else {"kind": "none"}
    budget = {"trajectories" if row["task"] in PARTS["tables"].tasks else "oracle_calls": row["calls"]}
    layer = {"task": row["task"], "method": row["method"], "seed": row["seed"], "channel": channel, "budget": budget}
    experiment = build(resolve_layers([layer, settings]))
    points = list(trained(experiment))
    return {**row, **_judged(experiment), "cpu_seconds": points[-1]["cpu_seconds"]}, [row | point for point in points]


def trained(experiment: Experiment) -> Iterator[dict[str, float | None]]:
    """Train to the end of the budget; a point of the learning curve at the shares of `CURVE_AT`, the last at the end.

    Evaluation is not part of the CPU seconds, pays for nothing and draws from a generator of its own.
    """
    trainer, spent, due = experiment.trainer, 0.0, list(CURVE_AT)
    while not trainer.finished:
        begun = time.process_time()
        trainer.train_step()
        spent += time.process_time() - begun
        if trainer.progress >= due[0]:
            due = [share for share in due if share > trainer.progress]
            yield {**_point(experiment), "cpu_seconds": round(spent, 1)}


def _point(experiment: Experiment) -> dict[str, float | None]:
    learner, truth = experiment.trainer.learner, experiment.truth
    made = draw(experiment.policy, experiment.environment, NUM_CURVE_DRAWS, torch.Generator().manual_seed(2), pay=True)
    best = learner.memory.best_scores(TOP)
    found = {
        "paid": experiment.trainer.calls,
        **elbo(made, experiment.environment, learner.reward),
        "j_ceiling": None if truth is None else truth.attainable.log_z - truth.attainable.min_kl,
        "best_paid": float(best[0]),
        "top100_paid": float(best.mean()),
    }
    return {name: None if value is None else round(value, 4) for name, value in found.items()}


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
    parser.add_argument("--curves", action="store_true", help="run cases again that have a row but no learning curve")
    given = parser.parse_args()
    register_story()
    curves = given.results.with_stem(f"{given.results.stem}_curves")
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
            if has(given.results, case) and (has(curves, case) or not given.curves):
                continue
            row, points = run(case, part.settings)
            print(row, flush=True)
            keep(curves, points, [*KEYS, "paid"])
            keep(given.results, [row], KEYS)


def has(path: Path, case: dict[str, Any]) -> bool:
    """True where a file has a row of the case."""
    return path.exists() and bool(_same(pd.read_csv(path), case).any())


def keep(path: Path, rows: list[dict[str, Any]], order: list[str]) -> None:
    """Add the rows of one case to a file, in the place of any that it has of the same case."""
    frame = pd.DataFrame(rows)
    if path.exists():
        there = pd.read_csv(path)
        frame = pd.concat([there[~_same(there, rows[0])], frame])
    write_atomically(path, frame.sort_values(order).to_csv(index=False))


def _same(frame: pd.DataFrame, case: dict[str, Any]) -> "pd.Series[bool]":
    """True in the rows of a case."""
    return (frame[KEYS] == pd.Series({key: case[key] for key in KEYS})).all(axis=1)


if __name__ == "__main__":
    with torch_threads(1):
        main()
