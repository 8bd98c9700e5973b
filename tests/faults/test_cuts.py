"""Ended at operations on files, by a kill or by a power loss that takes along what was not synced."""

from pathlib import Path

import pytest

from stochflow.forecasting.storage import MANIFEST, TENSORS, read_forecaster
from tests.faults.harness import NAMED, Machine, assert_same_run, snapshot
from tests.faults.test_kills import FACTOR, ORACLE, TINY

# two steps with a checkpoint after each, and a summary
SHORT = ["train", "bits:8,4", "--method", "sgfn-db", "--steps", 2, *TINY, "--set", "checkpoint_every=0.5"]
PAID = ["train", *ORACLE, "--method", "sgfn-db", "--steps", 2, *TINY]
EVERY = 5
# all operations with FAULT_KILLS=2 or more; a file is written by four of them, so that a fifth meets each kind
FIRSTS = range(1, EVERY + 1) if FACTOR > 1 else [1]


def operations(machine: Machine, *command: object, folder: Path) -> int:
    """How many operations on files below a folder a command needs."""
    life = machine(*command, folder=folder)
    assert life.code == 0, life.text
    assert life.count is not None
    return life.count


@pytest.mark.parametrize("first", FIRSTS)  # every fifth operation each, so that tests can be shared out
def test_a_run_can_be_cut_off_at_any_operation(first: int, machine: Machine) -> None:
    place = machine.folder / "place"
    place.mkdir()
    num = operations(machine, *SHORT, "--out", place / "undisturbed", folder=place)
    assert num > 40  # config, versions, three checkpoints of two files, samples, summary, each with its own syncs
    for number in range(first, num + 1, EVERY):
        out = place / f"run-{number}"
        life = machine(*SHORT, "--out", out, folder=place, cut_at=number, power=number, kind="power loss")
        assert life.killed, life
        again = ["train", "--resume", "--out", out] if out.exists() else [*SHORT, "--out", out]
        life = machine(*again)
        assert life.code == 0, life.text
        assert_same_run(out, place / "undisturbed")
        assert not [path for path in place.rglob("*") if path.name.endswith(".part")]
    leftover = [path for path in place.iterdir() if path.name.startswith(".")]
    assert not leftover


def test_a_replacement_that_is_cut_off_loses_neither_the_old_run_nor_the_new_one(machine: Machine) -> None:
    place, old = machine.folder / "place", machine.folder / "old"
    out, calls = place / "run", machine.folder / "calls.txt"
    assert machine(*PAID, "--out", old).code == 0
    before, paid = snapshot(old), calls.read_text()
    kept = []
    for number in range(1, 100, 1 if FACTOR > 1 else 3):
        machine.shell("rm", "-rf", place)
        machine.shell("mkdir", place)
        machine.shell("cp", "-a", old, out)
        calls.write_text(paid)
        command = [*PAID, "--seed", 1, "--overwrite", "--out", out]
        assert machine(*command, folder=place, cut_at=number, kind="overwrite").killed
        begun = "seed: 1" in str(snapshot(place)["run/config.yaml"]) if out.exists() else False
        if begun and (out / "checkpoint").exists():
            break  # the new run is at work
        life = machine("train", "--resume", *NAMED, "--out", out)
        assert life.code == 0, life.text
        assert [path.name for path in place.iterdir()] == ["run"]
        kept.append(not begun)
        if begun:
            assert not set(paid.splitlines()) & set(calls.read_text()[len(paid) :].splitlines())
        else:
            found = snapshot(out)
            assert {name: found[name] for name in before} == before
    assert kept == sorted(kept, reverse=True)  # first the old run, from some moment on the new one, and never none
    assert kept.count(True) > 5
    assert kept.count(False) > 1


def test_a_forecaster_that_takes_the_place_of_another_is_the_one_or_the_other(machine: Machine) -> None:
    place = machine.folder / "place"
    for number in (0, 1):
        rows = "".join(f"a,2020-01-{day:02d},{day % 7 + number * day}\n" for day in range(1, 31))
        (machine.folder / f"series{number}.csv").write_text(f"unique_id,ds,y\n{rows}")
    options = ["--horizon", 2, "--network", "none", "--overwrite", "--out", "f.csv", "--save"]
    for number in (0, 1):
        assert machine("forecast", f"series{number}.csv", *options, machine.folder / f"model{number}").code == 0
    manifests = [(machine.folder / f"model{number}" / MANIFEST).read_bytes() for number in (0, 1)]
    found = []
    for number in range(1, 100, 1 if FACTOR > 1 else 2):
        machine.shell("rm", "-rf", place)
        machine.shell("cp", "-a", machine.folder / "model0", place)
        command = ["forecast", "series1.csv", *options, place]
        life = machine(*command, folder=place, cut_at=number, power=number, kind="forecaster")
        found.append(manifests.index((place / MANIFEST).read_bytes()))
        read_forecaster(place)
        if not life.killed:
            break
        assert machine(*command).code == 0
        assert sorted(path.name for path in place.iterdir()) == sorted([MANIFEST, TENSORS])
    assert found == sorted(found)
    assert {0, 1} == set(found)
