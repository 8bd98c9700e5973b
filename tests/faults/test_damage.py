"""Files that were cut short or have a bit turned: noticed, or without consequence; never a crash or another result."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.harness import NAMED, Machine, assert_same_run, contents
from tests.faults.test_kills import FACTOR, TABLE, TINY, TRAINING

NUM = 2 * FACTOR


def truncate(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(1, len(data))])


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


Prepare = Callable[[str], tuple[Path, Path]]
DAMAGES = {"truncated": truncate, "flipped": flip}


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[Path, Path]]:
    """What `prepared` has made, by name, for the tests of this module."""
    return {}


@pytest.fixture
def prepared(machine: Machine, made: dict[str, tuple[Path, Path]], tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Makes an undisturbed run, and one that was stopped in the middle; both to be copied, not changed."""

    def prepare(name: str) -> tuple[Path, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            (machine.folder / "table.csv").write_text(TABLE)
            command = [*TRAINING[name], *TINY]
            assert machine(*command, "--out", folder / "undisturbed").code == 0
            half = folder / "half"
            life = machine(*command, "--out", half, folder=half, cut_at=44, kind="damage")
            assert life.killed, life
            made[name] = folder / "undisturbed", half
        return made[name]

    return prepare


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_falls_back_and_ends_the_same(how: str, machine: Machine, prepared: Prepare) -> None:
    undisturbed, half = prepared("replay")
    rng = random.Random(how)
    for attempt in range(NUM):
        run = Path(shutil.copytree(half, machine.folder / f"run-{attempt}"))
        suffix = rng.choice(["safetensors", "json"])
        newest, *_ = sorted((run / "checkpoint").glob(f"*.{suffix}"), reverse=True)
        DAMAGES[how](newest, rng)
        life = machine("train", "--resume", "--out", run)
        assert life.code == 0, life.text
        # a manifest may still be whole: white space, or the number of the step, which its name says again
        assert "going on from" in life.text.replace("\n", " ") or suffix == "json"
        assert_same_run(run, undisturbed)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["table.csv", "oracle.sqlite"])
def test_a_damaged_table_or_cache_is_refused_and_a_restored_one_goes_on(
    name: str, how: str, machine: Machine, prepared: Prepare
) -> None:
    undisturbed, half = prepared("table" if name == "table.csv" else "oracle")
    named = NAMED if name == "oracle.sqlite" else []
    if name == "oracle.sqlite":  # what is in its journal goes into the file itself, where we can reach it
        import sqlite3

        with sqlite3.connect(half / name) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    rng, refused = random.Random(f"{name} {how}"), 0
    for attempt in range(NUM):
        run = Path(shutil.copytree(half, machine.folder / f"run-{attempt}"))
        whole = (run / name).read_bytes()
        DAMAGES[how](run / name, rng)
        life = machine("train", "--resume", *named, "--out", run)
        if life.code != 0:
            assert name in life.refused() or "table" in life.refused()
            refused += 1
            (run / name).write_bytes(whole)
            life = machine("train", "--resume", *named, "--out", run)
        assert life.code == 0, life.text
        # what is not refused hit a part that nobody reads
        assert_same_run(run, undisturbed)
    # a bit of a database may lie in a part that is not used
    assert refused >= (0 if (name, how) == ("oracle.sqlite", "flipped") else 1)


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_settings_are_not_gone_on_with(how: str, machine: Machine, prepared: Prepare) -> None:
    undisturbed, half = prepared("chain")
    rng, refused = random.Random(how), 0
    for attempt in range(NUM):
        run = Path(shutil.copytree(half, machine.folder / f"run-{attempt}"))
        whole = (run / "config.yaml").read_bytes()
        DAMAGES[how](run / "config.yaml", rng)
        life = machine("train", "--resume", "--out", run)
        if life.code != 0:
            life.refused()
            refused += 1
            (run / "config.yaml").write_bytes(whole)
            life = machine("train", "--resume", "--out", run)
        assert life.code == 0, life.text
        assert_same_run(run, undisturbed)  # also where only the checksum was hit
    assert refused >= NUM - 1


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_records_are_said_and_what_was_learned_is_not_affected(
    how: str, machine: Machine, prepared: Prepare
) -> None:
    undisturbed, half = prepared("replay")
    rng = random.Random(how)
    expected = contents(undisturbed)
    for attempt in range(NUM):
        run = Path(shutil.copytree(half, machine.folder / f"run-{attempt}"))
        DAMAGES[how](run / "metrics.jsonl", rng)
        life = machine("train", "--resume", "--out", run)
        assert life.code == 0, life.text
        found = contents(run)
        assert (found["samples"], found["summary"]) == (expected["samples"], expected["summary"])
        num_lost = len(expected["metrics"]) - len(found["metrics"])
        assert bool(num_lost) == ("metrics.jsonl is damaged" in life.text.replace("\n", " "))


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "versions.json", "metrics.jsonl", "samples.csv"])
def test_whoever_looks_at_a_damaged_run_gets_an_answer_or_a_sentence(
    name: str, how: str, machine: Machine, prepared: Prepare
) -> None:
    run = Path(shutil.copytree(prepared("chain")[0], machine.folder / "run"))
    DAMAGES[how](run / name, random.Random(f"{name} {how}"))
    for command in (["sample", "-n", 2], ["evaluate"], ["report"], ["train", "--resume", "--out"]):
        life = machine(*command, run)
        assert life.code == 0 or life.refused()
