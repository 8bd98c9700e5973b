"""Feeds inputs of some kinds to stochflow in a process with little memory, and prints what came of it as JSON.

    python -m tests.fuzz.worker config 0 100     the first hundred configs

An input is known by its kind and number: `config 17 18` makes one of them again.
"""

import json
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stochflow.experiments.sweep.compare import _Sweep
from tests.fuzz.judge import OUTSIDE, Watch, limit_memory, problem_of
from tests.fuzz.kinds import CONFINED, KINDS, Workshop

_SHOWN = 10


def feed(shop: Workshop, watch: Watch, kind: str, first: int, last: int) -> dict[str, Any]:
    """Inputs `first` to `last` of a kind: how many were refused with a sentence, and what is wrong with the others."""
    problems: list[str] = []
    watch.begin(shop.path / OUTSIDE if kind in CONFINED else None)
    for number in range(first, last):
        call = KINDS[kind](shop, np.random.default_rng([number, *kind.encode()]))
        problem = problem_of(call, watch)
        if problem:
            problems.append(f"{kind} {number}: {problem}")
        os.chdir(shop.path)
    found = {"kind": kind, "inputs": last - first, "refused": watch.num_refused}
    return found | {"bad": len(problems), "problems": problems[:_SHOWN]}


def main(jobs: list[tuple[str, int, int]]) -> None:
    """Each job is a kind with its first and last number."""
    torch.set_num_threads(1)
    # which runs a comparison would start is looked at, but none is started
    _Sweep.work_off = lambda *_: False  # type: ignore[method-assign]
    folder_in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=folder_in_memory) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        sys.path.append(folder)
        shop, watch = Workshop(Path(folder)), Watch()
        shop.prepare({kind for kind, _, _ in jobs})
        limit_memory()
        found = [feed(shop, watch, *job) for job in jobs]
        os.chdir("/")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "kinds": found}))


if __name__ == "__main__":
    words = sys.argv[1:]
    main(
        [(kind, int(first), int(last)) for kind, first, last in zip(words[::3], words[1::3], words[2::3], strict=True)]
    )
