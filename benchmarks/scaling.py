"""Cost and memory of a training step against length, alphabet, batch, width and depth; and workers for a slow oracle.

python -m benchmarks.scaling [--part steps|limit|oracle] [--full]

One axis at a time around a base, one update per step, one thread, a process for each point. Beside what is measured
stands what the arithmetic says; both have their exponents in the axis, fitted by least squares on the logarithms of the
largest values.
"""

import argparse
import gc
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import sleeping_oracle
from benchmarks.sweep import RESULTS
from stochflow.config.oracle import OracleConfig
from stochflow.config.schema import Config
from stochflow.environments.sequences.oracles.task import OracleTask
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads
from stochflow.models.kmer_body import MAX_BUCKETS, num_rows
from stochflow.models.kmers import suitable_kmers

METHODS = ("gfn-tb", "sgfn-db", "sgfn-kl-trajectory", "sgfn-kl")
MEGA, GIGA = 1e6, 1e9
LIMIT = 2e9
NUM_TIMED = 3
TRAJECTORIES = 32_000  # of a whole run


@dataclass(frozen=True)
class Shape:
    """What a step's cost depends on."""

    length: int = 16
    alphabet: int = 4
    batch: int = 128
    width: int = 128
    depth: int = 2


AXES: dict[str, tuple[int, ...]] = {
    "length": (8, 16, 32, 64, 100),
    "alphabet": (4, 8, 20),
    "batch": (16, 128, 1024, 8192),
    "width": (64, 128, 256, 512),
    "depth": (1, 2, 4, 8),
}
SMALLEST = Shape(length=4, batch=2, width=8, depth=1)
LARGE = Shape(length=100, alphabet=20, batch=1024)


def config_of(method: str, shape: Shape, plans: bool = False) -> Config:
    """Settings of a shape, with one update per step; unless it plans, it does so in the first step alone."""
    rarely = {} if plans else {"plan": {"growth": 1e9, "every": 1.0}}
    return resolve_config(
        [
            {
                "method": method,
                "task": f"ehrlich:{shape.alphabet},{shape.length},2,2",
                "model": {"width": shape.width, "num_layers": shape.depth},
                "optimiser": {"batch_size": shape.batch, "updates": 1},
                "budget": {"steps": 1000},
                **rarely,
            }
        ]
    )


def paper_flops(method: str, shape: Shape, config: Config) -> float:
    """Floating-point operations of the matrix products of a step: sampling, and one update forward and backward.

    A state costs 2·d·w² in the body and 2·w·(2K + 1) in the heads. Sampling evaluates B·L states once and needs one
    head; an update evaluates its states forward and twice as much backward. Where states are drawn one by one, the sum
    of a state's embeddings is made anew, L/2 of them on average, forward and backward.
    """
    body, heads = 2 * shape.depth * shape.width**2, 2 * shape.width * (2 * shape.alphabet + 1)
    sampling = shape.batch * shape.length * (body + 2 * shape.width * shape.alphabet)
    states = states_of(method, shape, config)
    kmers = suitable_kmers(shape.alphabet, shape.length, MAX_BUCKETS)
    bags = states * shape.length * len(kmers) * shape.width if method == "sgfn-kl" else 0
    return sampling + 3 * states * (body + heads) + bags


def paper_bytes(method: str, shape: Shape, config: Config) -> float:
    """Bytes of the weights with gradient and two moments, and of what an update holds of every state.

    For its backward pass a state keeps the sum of its embeddings, the norm of it, the GELU of that, and two vectors for
    each layer; the backward pass itself has about three vectors in hand. The heads count three times.
    """
    kmers = suitable_kmers(shape.alphabet, shape.length, MAX_BUCKETS)
    table = num_rows(shape.alphabet, shape.length, kmers) * shape.width
    weights = table + shape.depth * shape.width**2 + shape.width * (2 * shape.alphabet + 1)
    per_state = shape.width * (6 + 2 * shape.depth) + 3 * (2 * shape.alphabet + 1)
    return 4.0 * (4 * weights + states_of(method, shape, config) * per_state)


def states_of(method: str, shape: Shape, config: Config) -> int:
    """States of one update: all prefixes of the batch, or as many as are drawn from a plan made after one batch."""
    if method == "sgfn-kl":
        most = min(config.plan.rows_per_level, 2**13 // shape.length, shape.batch)
        return sum(min(shape.alphabet**depth, most) for depth in range(shape.length))
    return shape.batch * (shape.length + 1)


def measure(method: str, shape: Shape, num_steps: int = NUM_TIMED, plans: bool = False) -> dict[str, float]:
    """CPU milliseconds of a step (median) and peak megabytes above those of the smallest step, after a first step."""
    seconds = []
    with torch_threads(1):
        build(config_of(method, SMALLEST, plans)).trainer.train_step()  # brings the libraries into memory
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        trainer = build(config_of(method, shape, plans)).trainer
        trainer.train_step()
        for _ in range(num_steps):
            started = time.process_time()
            trainer.train_step()
            seconds.append(time.process_time() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # ru_maxrss counts in units of 1,024 bytes
    found = {"megabytes": 1024 * (peak - before) / MEGA, "all_gb": 1024 * peak / GIGA}
    return {"cpu_ms": 1e3 * statistics.median(seconds), **found}


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's answer from a process of its own, forked after the imports: its peak memory is its own."""
    gc.collect()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments)


def steps(methods: tuple[str, ...]) -> pd.DataFrame:
    rows = []
    for method in methods:
        for axis, values in AXES.items():
            for value in values:
                shape = replace(Shape(), **{axis: value})
                config = config_of(method, shape)
                row = {"method": method, "axis": axis, **asdict(shape), **apart(measure, method, shape)}
                row["paper_gflop"] = paper_flops(method, shape, config) / GIGA
                row["paper_megabytes"] = paper_bytes(method, shape, config) / MEGA
                row["gflop_per_s"] = row["paper_gflop"] / (row["cpu_ms"] / 1e3)
                rows.append(row)
                print(method, axis, value, {name: round(row[name], 1) for name in ("cpu_ms", "megabytes")}, flush=True)
    return pd.DataFrame(rows)


def exponents(frame: pd.DataFrame) -> pd.DataFrame:
    """Slope of the logarithm of each quantity against that of the axis, over its largest values."""
    rows = []
    for (method, axis), group in frame.groupby(["method", "axis"], sort=False):
        kept = group.iloc[-max(2, (len(group) + 1) // 2) :]
        x = np.log(kept[axis].to_numpy(dtype=float))
        found = {
            name: np.polyfit(x, np.log(np.maximum(kept[name].to_numpy(dtype=float), 1e-9)), 1)[0]
            for name in ("cpu_ms", "paper_gflop", "megabytes", "paper_megabytes")
        }
        rows.append({"method": method, "axis": axis, "from": kept[axis].iloc[0], "to": kept[axis].iloc[-1], **found})
    return pd.DataFrame(rows)


def limit(num_steps: int) -> pd.DataFrame:
    """The whole process at L = 100, K = 20, batch 1,024, imports and plans included."""
    rows = []
    for method in ("sgfn-kl-trajectory", "gfn-tb", "sgfn-kl"):
        rows.append({"method": method, "steps": num_steps + 1, **apart(measure, method, LARGE, num_steps, True)})
        rows[-1]["within_2_gb"] = 1e9 * rows[-1]["all_gb"] <= LIMIT
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def oracle(num_designs: int = 256) -> pd.DataFrame:
    """Designs per second of an oracle that sleeps, by the number of workers that ask it; the start not counted."""
    rows = []
    alone = 1.0 / sleeping_oracle.SECONDS
    for workers in (1, 2, 4, 8):
        config = OracleConfig(length=8, alphabet="dna", workers=workers, batch_size=8)
        task = OracleTask("benchmarks.sleeping_oracle:score", config, "benchmarks.sleeping_oracle:score")
        digits = torch.arange(4**8).unsqueeze(-1) // 4 ** torch.arange(8) % 4
        seconds = []
        with tempfile.TemporaryDirectory() as folder:
            task.open(Path(folder))
            task.score(digits[-8 * workers :])  # starts them all
            for start in range(0, 3 * num_designs, num_designs):
                started = time.perf_counter()
                task.score(digits[start : start + num_designs])
                seconds.append(time.perf_counter() - started)
            task.close()
        rate = num_designs / statistics.median(seconds)
        rows.append({"workers": workers, "designs_per_s": rate, "of_perfect": rate / (workers * alone)})
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def table(frame: pd.DataFrame, title: str) -> str:
    return f"{title}\n\n{frame.to_string(index=False, float_format=lambda value: f'{value:.4g}')}\n\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--part", choices=("steps", "limit", "oracle"))
    options.add_argument("--full", action="store_true", help="the limit over a whole run, not over its first steps")
    options.add_argument("--methods", nargs="+", default=METHODS)
    given = options.parse_args()
    RESULTS.mkdir(exist_ok=True)
    text = ""
    if given.part in (None, "limit"):
        text += table(
            limit(TRAJECTORIES // LARGE.batch if given.full else NUM_TIMED),
            "L = 100, K = 20, batch 1,024: peak memory, GB of the whole process, limit 2",
        )
    if given.part in (None, "steps"):
        frame = steps(tuple(given.methods))
        frame.to_csv(RESULTS / "scaling.csv", index=False)
        text += table(exponents(frame), "Exponents: CPU time and FLOP, memory and bytes on paper")
        text += table(
            frame.drop(columns="all_gb"),
            "A step of one update, one thread; memory above that of the smallest step",
        )
    if given.part in (None, "oracle"):
        text += table(oracle(), f"An oracle that takes {1e3 * sleeping_oracle.SECONDS:.0f} ms per design, batches of 8")
    print("\n" + text)
    name = "scaling" if given.part is None else f"scaling_{given.part}"
    (RESULTS / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
