"""Killed again and again at random moments, and yet the same run. The counts are printed at the end of all tests."""

import contextlib
import itertools
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.faults.harness import NAMED, Life, Machine, assert_same_run

# more kills than fit into `make test`: FAULT_KILLS=10 makes it ten times as many
FACTOR = int(os.environ.get("FAULT_KILLS", "1"))
# a checkpoint at every second of 8 steps: whoever is killed has something to make again
TINY = [
    part
    for text in (
        *("optimiser.batch_size=16", "optimiser.updates=2", "model.width=8", "evaluation.num_samples=20"),
        *("evaluation.every=1", "checkpoint_every=0.25", "plan.rows_per_level=16", "device=cpu"),
    )
    for part in ("--set", text)
]
TABLE = "sequence,score\n" + "".join(f"{a}{b}CA,{len({a, b}) / 2}\n{b}GT{a},0.25\n" for a in "ACG" for b in "ACGT")
ORACLE = [*NAMED, "--length", 4, "--alphabet", "dna"]
# method by method: planned values, replay, a chain without gradients, a graph, a table, a function that is paid
TRAINING = {
    "planned": ["train", "bits:8,4", "--method", "sgfn-kl", "--steps", 8],
    "replay": ["train", "bits:8,4", "--method", "sgfn-db", "--steps", 8],
    "chain": ["train", "bits:8,4", "--method", "mcmc", "--steps", 8],
    "graph": ["train", "hypergrid:2,4", "--method", "sgfn-db", "--steps", 8],
    "table": ["train", "--table", "table.csv", "--gap-score", 0, "--method", "gfn-tb", "--steps", 8],
    "oracle": ["train", *ORACLE, "--method", "sgfn-db", "--oracle-calls", 60, "--set", "oracle.batch_size=4"],
}


def harassed(
    machine: Machine, rng: random.Random, seconds: float, num_kills: int, command: Callable[[], list[object]], kind: str
) -> Life:
    """Give a command again and again, killed at random moments, until it was killed so often; then let it end."""
    while machine.kills[kind] < num_kills:
        life = machine(*command(), kill_after=rng.uniform(0.0, seconds), kind=kind)
        if not life.killed:
            return life
    return machine(*command(), kind=kind)


@pytest.mark.parametrize("name", TRAINING)
def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(name: str, machine: Machine) -> None:
    rng, command = random.Random(name), [*TRAINING[name], *TINY]
    (machine.folder / "table.csv").write_text(TABLE)
    undisturbed = machine(*command, "--out", "undisturbed")
    assert undisturbed.code == 0, undisturbed.text
    goal = 4 * FACTOR
    while machine.kills["training"] < goal:
        out = machine.folder / f"run-{machine.kills['training']}"

        def resumed() -> list[object]:
            named = NAMED if NAMED[1] in command else []
            return ["train", "--resume", *named, "--out", out] if out.exists() else [*command, "--out", out]  # noqa: B023

        # few kills on each run: later ones fall on later steps, for what is done is done
        chain = min(goal, machine.kills["training"] + 4)
        life = harassed(machine, rng, undisturbed.seconds, chain, resumed, "training")
        assert life.code == 0, life.text
        assert_same_run(out, machine.folder / "undisturbed")


def test_what_was_paid_for_is_never_paid_for_again(machine: Machine) -> None:
    rng, command, goal = random.Random(0), [*TRAINING["oracle"], *TINY], 3 * FACTOR
    undisturbed = machine(*command, "--out", "undisturbed")
    calls = machine.folder / "calls.txt"
    price = len(calls.read_text().splitlines())
    runs = (machine.folder / f"run-{number}" for number in itertools.count())
    while machine.kills["oracle"] < goal:
        calls.write_text("")
        out, earlier, life = next(runs), machine.kills["oracle"], None
        while life is None or life.killed:
            paid, before = known(out / "oracle.sqlite"), calls.read_text().splitlines()
            again = ["train", "--resume", *NAMED, "--out", out] if out.exists() else [*command, "--out", out]
            after = rng.uniform(0.1, 0.9) * undisturbed.seconds if machine.kills["oracle"] < goal else None
            life = machine(*again, kill_after=after, kind="oracle")
            asked = calls.read_text().splitlines()[len(before) :]
            assert not paid & set(asked)  # an answer that was known was not asked for
            lost = set(asked) - known(out / "oracle.sqlite")
            assert len(lost) <= (4 if life.killed else 0)  # at most the one batch that was in flight
        assert life.code == 0, life.text
        assert_same_run(out, machine.folder / "undisturbed")
        everything = calls.read_text().splitlines()
        assert len(set(everything)) == price  # the same designs, and each once but for what was in flight
        assert len(everything) <= price + 4 * (machine.kills["oracle"] - earlier)


def known(cache: Path) -> set[str]:
    """Designs whose scores are in a cache."""
    if not cache.exists():
        return set()
    with contextlib.closing(sqlite3.connect(cache)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        return {row[0] for row in connection.execute("SELECT design FROM scores")} if tables else set()


def test_a_comparison_that_is_killed_again_and_again_ends_in_the_same_table(machine: Machine) -> None:
    rng = random.Random(1)
    command = ["compare", "--tasks", "bits:8,4", "--methods", "sgfn-db,mcmc", "--seeds", 1, "--trajectories", 128]
    command += ["--jobs", 2, *TINY]
    undisturbed = machine(*command, "--out", "undisturbed")
    assert undisturbed.code == 0, undisturbed.text
    goal = 3 * FACTOR
    while machine.kills["compare"] < goal:
        out = machine.folder / f"sweep-{machine.kills['compare']}"
        chain = min(goal, machine.kills["compare"] + 3)
        life = harassed(machine, rng, undisturbed.seconds, chain, lambda: [*command, "--out", out], "compare")  # noqa: B023
        assert life.code == 0, life.text
        tables = [pd.read_csv(folder / "results.csv") for folder in (out, machine.folder / "undisturbed")]
        pd.testing.assert_frame_equal(*(table.drop(columns=["seconds", "cpu_seconds"]) for table in tables))
        assert not list(out.rglob("*.part"))
        for name in tables[0]["run"]:
            assert_same_run(out / "runs" / name, machine.folder / "undisturbed" / "runs" / name)


def test_samples_are_whole_or_absent(machine: Machine) -> None:
    rng = random.Random(2)
    assert machine(*TRAINING["replay"], *TINY, "--out", "run").code == 0
    command = ["sample", "run", "-n", 4000, "--out"]
    undisturbed = machine(*command, "whole.csv")
    out, whole = machine.folder / "designs.csv", (machine.folder / "whole.csv").read_bytes()
    while machine.kills["sample"] < 3 * FACTOR:
        machine(*command, out, kill_after=rng.uniform(0.0, undisturbed.seconds), kind="sample")
        assert not out.exists() or out.read_bytes() == whole
        out.unlink(missing_ok=True)
    assert machine(*command, out).code == 0
    assert out.read_bytes() == whole
    assert not list(machine.folder.glob(".designs*"))  # and nothing is left of those who were killed


def test_forecasts_and_forecasters_are_whole_or_absent(machine: Machine) -> None:
    from stochflow.forecasting.forecaster import StochflowForecaster

    rng = random.Random(3)
    days = pd.date_range("2020-01-01", periods=60)
    frame = pd.DataFrame({"unique_id": "a", "ds": days, "y": [5 + day % 7 + 0.01 * day for day in range(60)]})
    frame.to_csv(machine.folder / "series.csv", index=False)
    options = ["forecast", "series.csv", "--horizon", 3, "--network", "none", "--plot", "--overwrite", "--seed"]
    folders = {seed: machine.folder / f"seed{seed}" for seed in (0, 1)}
    for seed, folder in folders.items():
        folder.mkdir()
        life = machine(*options, seed, "--out", folder / "f.csv", "--save", folder / "model")
        assert life.code == 0, life.text
    out, saved = machine.folder / "f.csv", machine.folder / "model"
    tables = {(folder / "f.csv").read_bytes() for folder in folders.values()}
    assert len(tables) == 2
    while machine.kills["forecast"] < 4 * FACTOR:
        seed = rng.randint(0, 1)  # over what an earlier one has left
        after = rng.uniform(0.0, 1.1 * life.seconds)
        machine(*options, seed, "--out", out, "--save", saved, kill_after=after, kind="forecast")
        assert not out.exists() or out.read_bytes() in tables
        if (saved / "forecaster.json").exists():
            assert len(StochflowForecaster.load(saved).predict(3)) == 3
    assert machine(*options, 0, "--out", out, "--save", saved).code == 0
    assert out.read_bytes() == (folders[0] / "f.csv").read_bytes()
    assert sorted(os.listdir(saved)) == sorted(os.listdir(folders[0] / "model"))
    for name in os.listdir(saved):
        assert (saved / name).read_bytes() == (folders[0] / "model" / name).read_bytes()
    assert not [path for path in machine.folder.rglob("*") if path.name.endswith(".part")]
