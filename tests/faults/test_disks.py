"""Disks that fill or cannot be written: one sentence, nothing old is lost, and the run goes on once there is room."""

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.harness import NAMED, Machine, assert_same_run, snapshot
from tests.faults.test_kills import FACTOR, TINY, TRAINING

RUN = [*TRAINING["replay"], *TINY]


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path | None]:
    """The folder of a disk of one megabyte, in a name space of its own; None where that is not allowed."""
    disk = machine.folder / "disk"
    disk.mkdir()
    with machine.isolated() as allowed:
        mounted = allowed and machine.shell("mount", "-t", "tmpfs", "-o", "size=1m", "none", disk)
        yield disk if mounted else None


def test_a_disk_that_is_full_and_one_that_is_read_only(
    machine: Machine, small_disk: Path | None, record_property: Callable[[str, object], None]
) -> None:
    record_property("disks", "real" if small_disk else "imitated")  # said at the end of all tests
    if small_disk is None:  # then the tests below, with limits and errors of the same kind, must do
        return
    disk = small_disk
    out, undisturbed = disk / "run", machine.folder / "undisturbed"
    assert machine(*RUN, "--out", undisturbed).code == 0
    rng = random.Random(0)
    for attempt in range(1 + FACTOR):
        machine.shell("rm", "-rf", out)
        room = rng.randint(29, 114) if attempt else 4  # kilobytes: for nothing, or for some of its files
        machine.shell("dd", "if=/dev/zero", f"of={disk / 'other'}", "bs=1024", f"count={1024 - room}")
        life = machine(*RUN, "--out", out)
        assert "No space left on device" in life.refused()
        machine.shell("rm", disk / "other")
        there = machine.shell("test", "-e", out)
        again = ["train", "--resume", "--out", out] if there else [*RUN, "--out", out]
        assert machine(*again).code == 0
        copy = machine.folder / f"copy{attempt}"
        machine.shell("cp", "-a", out, copy)  # where we can see it
        assert_same_run(copy, undisturbed)
    assert machine.shell("mount", "-o", "remount,ro", disk)
    assert "Read-only file system" in machine("train", "--resume", "--out", out).refused()
    assert "Read-only file system" in machine(*RUN, "--overwrite", "--out", out).refused()
    assert "Read-only file system" in machine(*RUN, "--out", disk / "another").refused()
    assert "Read-only file system" in machine("sample", out, "--out", disk / "designs.csv").refused()
    # whoever only looks needs no permission
    for command in (["sample", out, "-n", 3], ["evaluate", out, "--json"], ["report", out, "--out", "page.html"]):
        assert machine(*command).code == 0
    machine.shell("mount", "-o", "remount,rw", disk)
    assert machine("train", "--resume", "--out", out).code == 0


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_an_operation_that_fails_is_one_sentence_and_the_run_goes_on_later(failure: int, machine: Machine) -> None:
    rng, place = random.Random(failure), machine.folder / "place"
    place.mkdir()
    life = machine(*RUN, "--out", place / "undisturbed", folder=place)
    assert life.count is not None
    for attempt in range(FACTOR):
        out = place / f"run-{attempt}"
        first = machine(*RUN, "--out", out, folder=place, cut_at=rng.randint(2, life.count), failure=failure)
        first.refused()
        if out.exists():  # from the first operation on: as in a folder that cannot be written at all
            before = snapshot(out)
            machine("train", "--resume", "--out", out, folder=place, cut_at=1, failure=failure).refused()
            assert snapshot(out) == before
        again = ["train", "--resume", "--out", out] if out.exists() else [*RUN, "--out", out]
        assert machine(*again).code == 0
        assert_same_run(out, place / "undisturbed")
    assert not [path.name for path in place.iterdir() if path.name.startswith(".")]


def test_files_that_may_not_grow_are_like_a_full_disk(machine: Machine) -> None:
    assert machine(*RUN, "--out", "undisturbed").code == 0
    out = machine.folder / "run"
    largest = max(path.stat().st_size for path in (machine.folder / "undisturbed").rglob("*"))
    # a checkpoint does not fit; then it does, but the samples or the metrics do not
    for limit in (largest // 2, largest - 1):
        again = ["train", "--resume", "--out", out] if out.exists() else [*RUN, "--out", out]
        assert "File too large" in machine(*again, file_size=limit).refused()
    assert machine("train", "--resume", "--out", out).code == 0
    assert_same_run(out, machine.folder / "undisturbed")


def test_a_cache_that_cannot_grow_is_one_sentence(machine: Machine) -> None:
    command = [*TRAINING["oracle"], *TINY]
    assert machine(*command, "--out", "undisturbed").code == 0
    out = machine.folder / "run"
    sentence = machine(*command, "--out", out, file_size=16384).refused()
    assert str(out) in sentence
    assert machine("train", "--resume", *NAMED, "--out", out).code == 0
    assert_same_run(out, machine.folder / "undisturbed")


def test_a_comparison_on_a_full_disk_goes_on_later(machine: Machine) -> None:
    command = ["compare", "--tasks", "bits:8,4", "--methods", "mcmc", "--seeds", 1, "--trajectories", 64, "--jobs", 1]
    place = machine.folder / "place"
    place.mkdir()
    life = machine(*command, *TINY, "--out", place / "undisturbed", folder=place)
    assert life.count is not None
    for number in (1, 8, life.count - 1):
        out = place / f"sweep-{number}"
        machine(*command, *TINY, "--out", out, folder=place, cut_at=number, failure=errno.ENOSPC).refused()
        assert machine(*command, *TINY, "--out", out).code == 0
        assert_same_run(*(next(iter((folder / "runs").iterdir())) for folder in (out, place / "undisturbed")))


def test_a_stop_file_that_is_a_folder_is_named(machine: Machine) -> None:
    command = ["compare", "--tasks", "bits:8,4", "--methods", "mcmc", "--seeds", 1, "--trajectories", 64, "--jobs", 1]
    (machine.folder / "sweep" / ".stop").mkdir(parents=True)
    assert ".stop" in machine(*command, *TINY, "--out", "sweep").refused()
    (machine.folder / "sweep" / ".stop").rmdir()
    assert machine(*command, *TINY, "--out", "sweep").code == 0


def test_forecasts_on_a_full_disk_leave_what_was_there(machine: Machine) -> None:
    rows = "".join(f"a,2020-01-{day:02d},{day % 7}\n" for day in range(1, 31))
    (machine.folder / "series.csv").write_text(f"unique_id,ds,y\n{rows}")
    place = machine.folder / "place"
    place.mkdir()
    command = ["forecast", "series.csv", "--horizon", 2, "--network", "none", "--overwrite"]
    command += ["--out", place / "f.csv", "--save", place / "model"]
    life = machine(*command, folder=place)
    assert life.code == 0, life.text
    assert life.count is not None
    before = snapshot(place)
    for number in range(1, life.count + 1, 4 if FACTOR > 1 else 6):
        machine(*command, folder=place, cut_at=number, failure=errno.ENOSPC).refused()
        found = snapshot(place)
        assert {name: found[name] for name in before} == before
    assert machine(*command).code == 0
    assert snapshot(place) == before
    assert not [path for path in place.rglob("*") if path.name.endswith(".part")]


def test_an_oracle_that_fails_at_random_costs_time_but_nothing_else(machine: Machine) -> None:
    command = [*TRAINING["oracle"], *TINY, "--set", "oracle.retries=1", "--set", "oracle.backoff=0"]
    assert machine(*command, "--out", "undisturbed").code == 0
    out, failures = machine.folder / "run", 0
    chance = machine.folder / "chance"
    chance.write_text("0.5")
    life = machine(*command, "--out", out)
    while life.code != 0:
        assert "the robot is busy" in life.refused()
        failures += 1
        if failures == 8:
            chance.unlink()
        life = machine("train", "--resume", *NAMED, "--out", out)
    assert failures >= 2
    assert_same_run(out, machine.folder / "undisturbed")
