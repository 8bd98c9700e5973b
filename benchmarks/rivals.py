"""AdaLead of this package against that of FLEXS, with the same forest, first batch and number of oracle calls.

python -m benchmarks.rivals --flexs DIRECTORY [--task rna-fold:30] [--calls 512] [--batch 128] [--seeds 2]

DIRECTORY holds the package flexs (`pip download flexs==0.2.8 --no-deps`, unpacked). Its own `__init__` imports
tensorflow and more; only the explorer is loaded here. There is no noise. Printed are the mean of the 100 best paid
scores, the best one, the mean Hamming distance of the 100, and CPU seconds.
"""

import argparse
import random
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from stochflow.environments.registry import make_task
from stochflow.environments.sequences.task import Task
from stochflow.evaluation.design_metrics import mean_pairwise_hamming
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads
from stochflow.surrogates.letter_distances import letter_distance
from stochflow.surrogates.registry import make_surrogate

TOP = 100
SCREENED = 20


def load_flexs(folder: Path) -> ModuleType:
    """FLEXS without what its `__init__` imports: landscapes, models, explorers and AdaLead alone."""
    for name in ("flexs", "flexs.utils", "flexs.baselines", "flexs.baselines.explorers"):
        package = ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package
    flexs = sys.modules["flexs"]
    for name, found in (("landscape", "Landscape"), ("model", "Model"), ("explorer", "Explorer")):
        setattr(flexs, found, getattr(import_module(f"flexs.{name}"), found))
    flexs.Adalead = import_module("flexs.baselines.explorers.adalead").Adalead  # type: ignore[attr-defined]  # a stub of the module
    return flexs


def forest_model(flexs: Any, task: Task) -> Any:
    """The forest of this package as a model of FLEXS."""

    class ForestModel(flexs.Model):  # type: ignore[misc]  # its type is not known here
        def train(self, sequences: Any, labels: Tensor) -> None:
            self.forest = make_surrogate("forest", task.num_tokens, task.length, letter_distance(task))
            self.forest.fit(task.alphabet.encode(list(sequences)), labels)

        def _fitness_function(self, sequences: Any) -> Any:
            return self.forest.predict_mean(task.alphabet.encode(list(sequences))).numpy()

    return ForestModel("forest")


def theirs(flexs: Any, task: Task, first: Tensor, calls: int) -> tuple[Tensor, Tensor]:
    """Designs that the AdaLead of FLEXS pays for, and their scores; [calls, L], [calls]."""
    model, batch = forest_model(flexs, task), len(first)
    start, letters = task.alphabet.decode(first[:1])[0], task.alphabet.letters
    # it proposes one less than it is asked for
    settings = {"mu": 1, "recomb_rate": 0.2, "threshold": 0.05, "rho": 1}
    explorer = flexs.Adalead(model, 1, batch + 1, SCREENED * batch, start, "".join(letters), **settings)
    paid, scores = first, task.score(first)
    while len(paid) < calls:
        names = task.alphabet.decode(paid)
        model.train(names, scores)
        proposed, _ = explorer.propose_sequences(pd.DataFrame({"sequence": names, "true_score": scores.numpy()}))
        fresh = task.alphabet.encode(list(proposed))[: calls - len(paid)]
        paid, scores = torch.cat([paid, fresh]), torch.cat([scores, task.score(fresh)])
    return paid, scores


def ours(task: Task, first: Tensor, calls: int, seed: int) -> tuple[Tensor, Tensor]:
    """The same with `--method adalead`, beginning with the same batch."""
    settings = {
        **{"task": task.name, "method": "adalead", "seed": seed, "channel": {"kind": "none"}},
        **{"budget": {"oracle_calls": calls}, "optimiser": {"batch_size": len(first)}},
        "population": {"screened": SCREENED},
    }
    trainer = build(resolve_config([settings])).trainer
    memory: Any = trainer.learner.memory
    memory.pay(first, task.score)
    while not trainer.finished:
        trainer.train_step()
    return memory.sequences, memory.scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flexs", type=Path, required=True)
    parser.add_argument("--task", default="rna-fold:30")
    for name, default in (("--calls", 512), ("--batch", 128), ("--seeds", 2)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    flexs, task = load_flexs(given.flexs), make_task(given.task)
    for seed in range(given.seeds):
        random.seed(seed)
        generator = torch.Generator().manual_seed(seed)
        first = torch.randint(task.num_tokens, (given.batch, task.length), generator=generator).unique(dim=0)
        for name in ("stochflow", "flexs"):
            begun = time.process_time()
            arguments = (task, first, given.calls)
            paid, scores = ours(*arguments, seed) if name == "stochflow" else theirs(flexs, *arguments)
            best = scores.argsort(descending=True)[:TOP]
            found = f"top-{TOP} {scores[best].mean():.3f}, best {scores.max():.3f}"
            spent = f"{len(paid)} calls, {time.process_time() - begun:.1f} CPU s"
            print(f"{name:10} seed {seed}: {found}, distance {mean_pairwise_hamming(paid[best]):.1f}, {spent}")


if __name__ == "__main__":
    with torch_threads(1):
        main()
