"""Regret on 200 random small worlds with the default settings: SGFN-KL must not lose itself in a corner of any.

python -m benchmarks.small_worlds                             # an hour or two on two cores
python -m benchmarks.small_worlds --worlds 40 --seeds 1

A world has 2 to 6 letters, 1 to 5 positions, uniform scores, and noise from 0 to 0.6 as slip, confusion matrix or
one matrix per position; in a third of them only some sequences are measured. Every run is a row of
`results/small_worlds.csv`; the same command again goes on where it stopped.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import stochflow
from benchmarks.sweep import RESULTS, parser, publish
from stochflow.environments.sequences.hash_random import HashRandom

NUM_WORLDS = 200
LETTERS = "ABCDEF"
CHANNELS = ("uniform-slip", "confusion", "positional")
GOOD, WORST = 0.01, 0.05  # nats of regret: in nearly all runs, and in all of them
_FINE = 1000  # values that a random score or share may take


@dataclass(frozen=True)
class World:
    """A table of sequences over a few letters, and the noise they are written with.

    Attributes:
        scores: of the measured sequences.
        channel: settings of the channel.
    """

    number: int
    num_tokens: int
    length: int
    scores: dict[str, float]
    channel: dict[str, Any]

    @property
    def letters(self) -> str:
        return LETTERS[: self.num_tokens]

    @property
    def label(self) -> dict[str, Any]:
        """Columns that describe the world in a table."""
        size = self.num_tokens**self.length
        shape = {"num_tokens": self.num_tokens, "length": self.length, "measured": len(self.scores) / size}
        return {"world": self.number, **shape, "channel": self.channel["kind"]}

    def write(self, path: Path) -> Path:
        """The table as CSV."""
        lines = ["sequence,score", *(f"{sequence},{score}" for sequence, score in self.scores.items())]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


class Case(NamedTuple):
    """One training run."""

    world: int
    seed: int


def world_of(number: int) -> World:
    """World number 0, 1, …; the first 25 have every shape once, and every third has gaps.

    >>> world = world_of(3)
    >>> world.letters, world.length, world.channel["kind"], world.scores
    ('ABCDE', 1, 'confusion', {'B': 0.448, 'E': 0.362})
    """
    random = HashRandom(f"small-world:{number}")
    num_tokens, length = 2 + number % 5, 1 + number // 5 % 5
    sequences = ["".join(letters) for letters in product(LETTERS[:num_tokens], repeat=length)]
    scores = [(score + 1) / _FINE for score in random.integers(_FINE, len(sequences)).tolist()]
    measured = len(sequences)
    if number % 3 == 0:
        measured = max(2, round(len(sequences) * _share(random, 0.3, 0.9)))
    kept = sorted(random.permutation(len(sequences))[:measured].tolist())
    return World(
        number, num_tokens, length, {sequences[row]: scores[row] for row in kept}, _channel(random, number, length)
    )


def _channel(random: HashRandom, number: int, length: int) -> dict[str, Any]:
    kind, num_tokens = CHANNELS[number // 3 % 3], 2 + number % 5
    if kind == "uniform-slip":
        return {"kind": kind, "noise": _share(random, 0.0, 0.6)}
    matrices = [_confusion(random, num_tokens) for _ in range(length)]
    return {"kind": kind, "matrix": matrices[0]} if kind == "confusion" else {"kind": kind, "matrices": matrices}


def _confusion(random: HashRandom, num_tokens: int) -> list[list[float]]:
    """(1 − α)·identity + α·random rows, with α of its own."""
    noise = _share(random, 0.0, 0.6)
    matrix = []
    for letter in range(num_tokens):
        weights = (random.integers(_FINE, num_tokens) + 1).tolist()
        row = [noise * weight / sum(weights) for weight in weights]
        row[letter] += 1.0 - noise
        matrix.append(row)
    return matrix


def _share(random: HashRandom, low: float, high: float) -> float:
    return low + (high - low) * int(random.integers(_FINE + 1, 1)) / _FINE


def run_case(case: Case) -> dict[str, Any]:
    """Train with the default settings; CPU seconds count everything."""
    world, started = world_of(case.world), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = stochflow.train(
            table=world.write(Path(folder) / "world.csv"),
            alphabet=world.letters,
            gap_score=0.0,
            feedback="step",
            config={"channel": world.channel},
            seed=case.seed,
            out=Path(folder) / "run",
        )
        summary = run.summary
    figures = {"regret": summary.regret, "min_kl": summary.min_kl, "tv": summary.tv}
    return world.label | {"seed": case.seed} | figures | {"cpu_seconds": round(time.process_time() - started, 1)}


def measured(cases: list[Case], path: Path, jobs: int) -> pd.DataFrame:
    """A row per run, those that the file has and those that are missing in it."""
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["world", "seed"])
    known = set(zip(done["world"], done["seed"], strict=True))
    missing = [case for case in cases if case not in known]
    path.parent.mkdir(exist_ok=True)
    for number, row in enumerate(_rows(missing, jobs), start=1):
        pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False)
        print(f"{number}/{len(missing)}  {row}", flush=True)
    if not path.exists():
        raise SystemExit("no runs were asked for; give --worlds and --seeds of one or more")
    frame = pd.read_csv(path).sort_values(["world", "seed"]).reset_index(drop=True)
    frame.to_csv(path, index=False)
    return frame


def _rows(cases: list[Case], jobs: int) -> Iterator[dict[str, Any]]:
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_case, cases)


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__)
    options.set_defaults(seeds=3)
    options.add_argument("--worlds", type=int, default=NUM_WORLDS)
    given = options.parse_args()
    cases = [Case(world, seed) for seed in range(given.seeds) for world in range(given.worlds)]
    frame = measured(cases, RESULTS / "small_worlds.csv", given.jobs)
    regrets = frame["regret"]
    groups = frame.groupby("channel")["regret"]
    table = pd.DataFrame({"runs": groups.size(), "median": groups.median(), "largest": groups.max()}).reset_index()
    publish(
        table,
        "small_worlds",
        f"{frame['world'].nunique()} small worlds, default settings, {len(frame)} runs: regret below {GOOD} in "
        f"{(regrets < GOOD).mean():.1%}, below {WORST} in {(regrets < WORST).mean():.1%}, at most {regrets.max():.4f}",
    )


if __name__ == "__main__":
    main()
