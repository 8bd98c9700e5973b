"""Feeds inputs of one kind to stochflow in a process with little memory, and prints what came of it as JSON."""

import json
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

from stochflow.sweeps.compare import _Sweep
from tests.fuzz.judge import OUTSIDE, Watch, limit_memory, problem_of
from tests.fuzz.kinds import CONFINED, KINDS, Workshop

_SHOWN = 20


def main(kind: str, first: int, last: int) -> None:
    """Inputs `first` to `last` of a kind; each has a seed of its own, so that one can be made again alone."""
    torch.set_num_threads(1)
    # which runs a comparison would start is looked at, but none is started
    _Sweep.work_off = lambda *_: False  # type: ignore[method-assign]
    problems: list[str] = []
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        sys.path.append(folder)
        shop = Workshop(Path(folder))
        shop.prepare()
        watch = Watch(Path(folder) / OUTSIDE if kind in CONFINED else Path("/nowhere-at-all"))
        KINDS[kind](shop, np.random.default_rng([0, 0]))  # what is made once is made before memory is short
        limit_memory()
        for number in range(first, last):
            call = KINDS[kind](shop, np.random.default_rng([number, len(kind)]))
            problem = problem_of(call, watch)
            if problem:
                problems.append(f"{kind} {number}: {problem}")
            os.chdir(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {"kind": kind, "inputs": last - first, "peak": peak, "problems": problems[:_SHOWN], "bad": len(problems)}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
