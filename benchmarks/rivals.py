"""Searches of this package beside those of others: the same first designs and the same number of oracle calls.

pip install --no-deps --target DIRECTORY -r benchmarks/originals.txt
python -m benchmarks.rivals --originals DIRECTORY [--parts genetic ehrlich …] [--methods …]

`adalead` and `genetic` are measured beside FLEXS 0.2.8, everything on Ehrlich functions beside the genetic algorithm of
pytorch-holo 0.0.5, on its functions and ours, and folding beside RNAinverse of ViennaRNA. On Ehrlich functions all
begin with the same feasible design, as that package does; in the part `ehrlich-blind` with random designs. There is no
noise. Every run is a row of `results/rivals_originals.csv`: mean and Hamming distance of the 100 best designs that were
paid for, the best one, how many were paid for and asked about, and CPU seconds. Rows that are there are not run again.
A call is a distinct design. Those of RNAinverse are what it ended with: it sees the energies themselves, so only its
time counts.
"""

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from benchmarks import originals
from benchmarks.originals import HOLO, HoloEhrlich, Ledger, SpentError
from benchmarks.sweep import RESULTS
from stochflow.core.files import write_atomically
from stochflow.environments.registry import TASKS, make_task
from stochflow.environments.sequences.ehrlich import Ehrlich
from stochflow.environments.sequences.task import Task
from stochflow.evaluation.design_metrics import mean_pairwise_hamming
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads

TOP, BATCH = 100, 128
BLIND = "ehrlich-blind"
INVERTED = {30: 100, 50: 20}  # designs of RNAinverse by length
# methods of this package, and `genetic` with one setting after the other nearer to the originals'
_FEW = {"optimiser": {"batch_size": 4}}
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "adalead": ("adalead", {}),
    "sgfn-kl": ("sgfn-kl", {}),
    "genetic": ("genetic", {}),
    "genetic-batch4": ("genetic", _FEW),
    "genetic-top10": ("genetic", {"population": {"survivors": 10}}),
    "genetic-uncrossed": ("genetic", {"population": {"crossover": 0.0}}),
    "genetic-batch4-top10": ("genetic", {**_FEW, "population": {"survivors": 10}}),
    "genetic-batch4-top10-uncrossed": ("genetic", {**_FEW, "population": {"survivors": 10, "crossover": 0.0}}),
    "genetic-batch1024-top10": ("genetic", {"optimiser": {"batch_size": 1024}, "population": {"survivors": 10}}),
}
KEYS = ["part", "task", "calls", "method", "seed"]


class Part(NamedTuple):
    """What is compared on which tasks; `{}` in the name of a task is the seed."""

    tasks: list[str]
    calls: list[int]
    methods: list[str]
    num_seeds: int


_SIZES = ["20,32,2,4", "32,32,4,4"]
_EHRLICH = Part(
    [f"{HOLO}:{size},{{}}" for size in _SIZES] + [f"ehrlich:{size}" for size in _SIZES],
    [5120],
    ["genetic", "holo-genetic", "holo-genetic-128", "adalead", "sgfn-kl"],
    10,
)
PARTS = {
    "adalead": Part(["rna-fold:30"], [512], ["adalead", "flexs-adalead"], 10),
    "genetic": Part(
        ["rna-fold:30", "rna-bind:RNA1,50"], [2048], ["genetic", "flexs-genetic", "flexs-genetic-forest"], 3
    ),
    "ehrlich": _EHRLICH,
    BLIND: _EHRLICH,
    "rna-inverse": Part(
        ["rna-fold:30", "rna-fold:50"], [2048], ["genetic", "adalead", "sgfn-kl", "rna-inverse", "rna-inverse-pf"], 3
    ),
}


def ours(task: Task, first: Tensor, method: str, calls: int, seed: int) -> tuple[Tensor, Tensor]:
    """Designs that a method of this package pays for after the first ones, and their scores; [calls, L], [calls]."""
    kind, nearer = OURS[method]
    layer = {"task": task.name, "method": kind, "seed": seed, "channel": {"kind": "none"}}
    trainer = build(resolve_config([{**layer, "budget": {"oracle_calls": calls}}, nearer])).trainer
    memory: Any = trainer.learner.memory
    memory.pay(first, task.score)
    while not trainer.finished:
        trainer.train_step()
    return memory.sequences, memory.scores


def theirs(method: str, ledger: Ledger, first: list[str], seed: int, folder: Path) -> None:
    """Let a search of another package go on until the ledger ends it."""
    if method == "flexs-adalead":
        originals.flexs_adalead(originals.load_flexs(folder), ledger, first, seed)
    elif method.startswith("flexs-genetic"):
        originals.flexs_genetic(originals.load_flexs(folder), ledger, first, seed, method.endswith("-forest"))
    elif method == "holo-genetic":
        originals.holo_genetic(ledger, first, seed, 1024, 0.01)  # as in its README
    elif method == "holo-genetic-128":
        originals.holo_genetic(ledger, first, seed, 128, 0.25)  # as many children and survivors as ours has
    else:
        originals.rna_inverse(ledger, seed, method.endswith("-pf"))


def run(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One search and what it found."""
    task, method, calls, seed = (make_task(case["task"]), case["method"], case["calls"], case["seed"])
    first = _first(task, seed, case["part"] == BLIND)
    begun = time.process_time()
    if method in OURS:
        paid, scores = ours(task, first, method, calls, seed)
        asked = len(paid)
    else:
        ledger = Ledger(task, INVERTED[task.length] if method.startswith("rna-inverse") else calls)
        with suppress(SpentError):
            theirs(method, ledger, task.alphabet.decode(first), seed, folder)
        names, scores = ledger.paid()
        paid, asked = task.alphabet.encode(names), ledger.num_asked
    spent = time.process_time() - begun
    best = scores.argsort(descending=True)[:TOP]
    found: dict[str, Any] = {
        "best": scores.max(),
        "top100": scores[best].mean(),
        "distance": mean_pairwise_hamming(paid[best]),
    }
    rounded = {name: round(float(value), 4) for name, value in found.items()}
    return {**case, **rounded, "paid": len(paid), "asked": asked, "cpu_seconds": round(spent, 1)}


def _first(task: Task, seed: int, blind: bool) -> Tensor:
    """What every search begins with: one feasible design of an Ehrlich function, otherwise a random batch; [num, L]."""
    if isinstance(task, HoloEhrlich | Ehrlich) and not blind:
        return originals.feasible_start(task, seed)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(task.num_tokens, (BATCH, task.length), generator=generator).unique(dim=0)


def _register(name: str) -> None:
    """Let a function of pytorch-holo be built by name."""
    numbers = [int(number) for number in name.partition(":")[2].split(",")]
    TASKS[name] = lambda: HoloEhrlich(*numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--originals", type=Path, required=True, help="where the other packages are installed")
    parser.add_argument("--parts", "--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--tasks", nargs="+", help="with {} for the seed in names of functions of pytorch-holo")
    parser.add_argument("--calls", nargs="+", type=int)
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--results", type=Path, default=RESULTS / "rivals_originals.csv")
    given = parser.parse_args()
    sys.path.append(str(given.originals))  # last, so that nothing of ours is replaced
    cases: list[dict[str, Any]] = [
        dict(zip(KEYS, (name, task.format(seed), calls, method, seed), strict=True))
        for name, part in PARTS.items()
        if name in given.parts
        for seed in given.seeds or range(part.num_seeds)
        for task in given.tasks or part.tasks
        for calls in given.calls or part.calls
        for method in given.methods or part.methods
    ]
    for case in cases:
        there = pd.read_csv(given.results) if given.results.exists() else pd.DataFrame(columns=KEYS)
        if any(all(one[key] == case[key] for key in KEYS) for one in there[KEYS].to_dict("records")):
            continue
        if case["task"].startswith(HOLO):
            _register(case["task"])
        row = run(case, given.originals)
        print(row, flush=True)
        there = pd.read_csv(given.results) if given.results.exists() else there
        rows = pd.concat([there, pd.DataFrame([row])]).sort_values(KEYS)
        write_atomically(given.results, rows.to_csv(index=False))


if __name__ == "__main__":
    with torch_threads(1):
        main()
