"""Where the time of training goes."""

import gzip
import json
from pathlib import Path

import pytest

import stochflow
from stochflow.experiments.profiler import (
    BACKWARD,
    CHECKPOINT,
    EVALUATION,
    FIRST,
    FORWARD,
    PLAN,
    REST,
    SAMPLE,
    SCORE,
    TRACE,
    Stopwatch,
)
from stochflow.runs.directory import PROFILE

TINY = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=50")


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stage_inside_another_counts_once() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now = 1.0
    with watch.stage(SAMPLE):
        clock.now = 3.0
        with watch.stage(SCORE):
            clock.now = 7.0
        clock.now = 15.0
    clock.now = 31.0
    assert watch.total() == 31.0
    assert {name: seconds for name, seconds in watch.seconds.items() if seconds} == {
        SAMPLE: 10.0,
        SCORE: 4.0,
        REST: 17.0,
    }


def test_what_an_iterator_does_between_its_elements_counts_and_nothing_else() -> None:
    clock = Clock()
    watch = Stopwatch(clock)

    def elements(num: int):  # type: ignore[no-untyped-def]
        for number in range(num):
            clock.now += 2.0
            yield number
        clock.now += 5.0

    received = []
    for element in watch.timed_iterator(FORWARD, elements)(3):
        received.append(element)
        with watch.stage(BACKWARD):
            clock.now += 10.0
    watch.total()
    assert received == [0, 1, 2]
    assert (watch.seconds[FORWARD], watch.seconds[BACKWARD]) == (11.0, 30.0)


def test_time_that_must_not_count_does_not() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    with watch.standing():
        clock.now = 5.0
        with watch.stage(SAMPLE):
            clock.now = 9.0
    clock.now = 10.0
    assert watch.total() == 1.0


def test_a_run_says_where_its_time_went_and_learns_the_same(tmp_path: Path) -> None:
    steps = FIRST + 1
    watched = stochflow.train("bits:8,2", steps=steps, settings=TINY, out=tmp_path / "watched", profile=True)
    plain = stochflow.train("bits:8,2", steps=steps, settings=TINY, out=tmp_path / "plain")
    assert watched.metrics["loss"].tolist() == plain.metrics["loss"].tolist()
    text = (watched.path / PROFILE).read_text(encoding="utf-8")
    stages, operations = text.split("by operation")
    for stage in (SAMPLE, SCORE, PLAN, FORWARD, BACKWARD, EVALUATION, CHECKPOINT):
        assert stage in stages
    assert operations.count("aten::") > 5
    with gzip.open(watched.path / TRACE) as trace:
        assert json.load(trace)["traceEvents"]
    assert not (plain.path / PROFILE).exists()


@pytest.mark.parametrize("task", ["tfbind8", "hypergrid:2,3"])
def test_a_run_too_short_for_operations_still_has_its_stages(task: str, tmp_path: Path) -> None:
    method = "random" if task == "tfbind8" else "gfn-tb"
    settings = ("optimiser.batch_size=16", "evaluation.num_samples=50")
    run = stochflow.train(task, method=method, steps=2, settings=settings, out=tmp_path / "run", profile=True)
    text = (run.path / PROFILE).read_text(encoding="utf-8")
    assert "with 2 training steps" in text
    assert "by operation" not in text
    assert not (run.path / TRACE).exists()
