"""Seeds that are trained as one program leave the runs that separate training leaves."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.errors import NumericsError
from stochflow.stacking.trainer import StackedTrainer
from stochflow.sweeps import compare
from stochflow.sweeps.compare import stack_groups
from stochflow.sweeps.local import LocalEngine
from stochflow.sweeps.plan import RUNS, PlannedRun, SweepConfig, plan
from stochflow.sweeps.work import STOP, Job, Meter, Outcome, Stack, Work, execute

SETTINGS = (
    "optimiser.batch_size=16",
    "optimiser.updates=2",
    "model.width=8",
    "evaluation.num_samples=50",
    "checkpoint_every=0.2",
)
ARGUMENTS: dict[str, Any] = {
    "tasks": ["bits:8,2"],
    "methods": ["sgfn-tb", "sgfn-kl-trajectory"],
    "seeds": 3,
    "trajectories": 240,
    "settings": SETTINGS,
    "jobs": 1,
}


class Here:
    """An engine without processes that keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[Work] = []

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, jobs: list[Work], cost: Any, stop: Any) -> Iterator[Outcome]:
        self.given = sorted(jobs, key=cost)
        return map(execute, jobs)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    engine = Here()
    monkeypatch.setattr(compare, "_engine", lambda spec: engine)
    return engine


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in (path / RUNS).rglob("*")}


def planned(**changes: Any) -> list[PlannedRun]:
    return plan(SweepConfig(methods=["gfn-tb"], **changes))


def small_stack(folder: Path) -> Stack:
    """Three seeds of SGFN-TB, fifteen steps each, with a checkpoint at every third."""
    settings = {
        "optimiser": {"batch_size": 16, "updates": 2},
        "model": {"width": 8},
        "evaluation": {"num_samples": 50},
        "checkpoint_every": 0.2,
    }
    spec = SweepConfig(tasks=["bits:8,2"], methods=["sgfn-tb"], seeds=3, trajectories=240, settings=settings)
    (folder / RUNS).mkdir(parents=True)
    return Stack(tuple(Job(str(folder), run.name, run.config.model_dump(mode="json")) for run in plan(spec)))


def reached(stack: Stack) -> pd.DataFrame:
    """What the runs of a stack wrote, step by step and in the end, without clocks."""
    runs = [stochflow.load(job.path) for job in stack.jobs]
    steps = pd.concat([run.metrics for run in runs]).drop(columns="seconds")
    return steps.assign(mean_score=[run.summary.mean_score for run in runs for _ in range(15)])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    stack = small_stack(tmp_path_factory.mktemp("undisturbed") / "sweep")
    assert execute(stack).status == "finished"
    return reached(stack)


def test_a_stacked_comparison_is_a_comparison(tmp_path: Path, here: Here) -> None:
    alone = stochflow.compare(**ARGUMENTS, out=tmp_path / "alone")
    together = stochflow.compare(**ARGUMENTS, stack=True, out=tmp_path / "together")
    assert [type(work) for work in here.given] == [Stack, Stack]
    assert [len(work.jobs) for work in here.given if isinstance(work, Stack)] == [3, 3]
    assert files(together.path) == files(alone.path)
    clocks = ["seconds", "cpu_seconds"]
    # the letters are the same, sums differ by rounding
    expected, found = (each.frame.drop(columns=clocks) for each in (alone, together))
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-3)
    assert found["oracle_calls"].tolist() == expected["oracle_calls"].tolist()
    assert (together.frame["cpu_seconds"] > 0).all()


def test_a_comparison_stays_stacked_until_told_otherwise(tmp_path: Path, here: Here) -> None:
    arguments = ARGUMENTS | {"methods": ["gfn-tb"], "trajectories": 32}
    stochflow.compare(**arguments, stack=True, out=tmp_path / "sweep")
    stochflow.compare(seeds=5, out=tmp_path / "sweep")
    assert [type(work) for work in here.given] == [Stack]
    stochflow.compare(seeds=7, stack=False, out=tmp_path / "sweep")
    assert [type(work) for work in here.given] == [Job, Job]


def test_a_stack_that_was_stopped_goes_on_to_the_same_end(
    tmp_path: Path, undisturbed: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = small_stack(tmp_path / "sweep")
    stop = tmp_path / "sweep" / STOP

    def listen(self: Meter, record: dict[str, float], progress: float) -> None:
        if record["step"] == 7:
            stop.touch()

    monkeypatch.setattr(Meter, "listen", listen)
    outcome = execute(stack)
    assert [part.status for part in outcome.parts] == ["interrupted"] * 3
    assert stochflow.load(stack.jobs[0].path).summary.steps == 8  # after 16 updates nothing waits
    stop.unlink()
    monkeypatch.undo()
    assert execute(stack).status == "finished"
    pd.testing.assert_frame_equal(reached(stack), undisturbed, check_exact=False, rtol=1e-4, atol=1e-5)


def test_a_stack_whose_rows_wait_stops_where_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "optimiser": {"batch_size": 4},
        "model": {"width": 8},
        "evaluation": {"num_samples": 10, "every": 0.3},
        "checkpoint_every": 0.5,
    }
    spec = SweepConfig(methods=["sgfn-kl-trajectory"], seeds=2, noise=[0.1], trajectories=160, settings=settings)
    undisturbed, stopped = (
        Stack(tuple(Job(str(tmp_path / name), run.name, run.config.model_dump(mode="json")) for run in plan(spec)))
        for name in ("undisturbed", "stopped")
    )
    for name in ("undisturbed", "stopped"):
        (tmp_path / name / RUNS).mkdir(parents=True)
    assert execute(undisturbed).status == "finished"
    stop = tmp_path / "stopped" / STOP

    def listen(self: Meter, record: dict[str, float], progress: float) -> None:
        if record["step"] == 22:
            stop.touch()

    monkeypatch.setattr(Meter, "listen", listen)
    execute(stopped)
    assert stochflow.load(stopped.jobs[0].path).summary.steps == 24  # at which it is judged
    stop.unlink()
    monkeypatch.undo()
    assert execute(stopped).status == "finished"
    for before, after in zip(undisturbed.jobs, stopped.jobs, strict=True):
        expected, found = (stochflow.load(job.path).metrics.drop(columns="seconds") for job in (before, after))
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    alone = stochflow.train(config=undisturbed.jobs[0].config, out=tmp_path / "alone")
    judged, expected = (run.metrics["regret"].dropna() for run in (stochflow.load(undisturbed.jobs[0].path), alone))
    assert judged.index.tolist() == expected.index.tolist() == [11, 23, 35, 39]
    assert judged.to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-5)


def test_runs_that_stand_at_different_steps_come_together_where_they_can(
    tmp_path: Path, undisturbed: pd.DataFrame
) -> None:
    stack = small_stack(tmp_path / "sweep")
    assert execute(stack).status == "finished"
    for job in stack.jobs:
        (job.path / "summary.json").unlink()
    for newest in (stack.jobs[1].path / "checkpoint").glob("step-000000015.*"):
        newest.unlink()
    shutil.rmtree(stack.jobs[2].path)
    outcome = execute(stack)
    assert (outcome.status, outcome.warnings) == ("finished", ())
    pd.testing.assert_frame_equal(reached(stack), undisturbed, check_exact=False, rtol=1e-4, atol=1e-5)


def test_where_a_stack_breaks_its_runs_go_on_one_by_one(
    tmp_path: Path, undisturbed: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = small_stack(tmp_path / "sweep")
    whole = StackedTrainer.train_step

    def broken(self: StackedTrainer) -> Any:
        if self.trainers[0].step == 8:
            raise NumericsError("seed 1: the term 'loss' became nan")
        return whole(self)

    monkeypatch.setattr(StackedTrainer, "train_step", broken)
    outcome = execute(stack)
    assert [part.status for part in outcome.parts] == ["finished"] * 3
    assert len(outcome.warnings) == 1
    assert "one by one (NumericsError: seed 1" in outcome.warnings[0]
    pd.testing.assert_frame_equal(reached(stack), undisturbed, check_exact=False, rtol=1e-4, atol=1e-5)


def test_a_stack_travels_to_a_worker_process(tmp_path: Path, undisturbed: pd.DataFrame) -> None:
    stack = small_stack(tmp_path / "sweep")
    with LocalEngine(jobs=1, retries=0) as engine:
        outcomes = [each for each in engine.run([stack], lambda work: 1.0, lambda: False) if each is not None]
    assert [(outcome.status, len(outcome.parts)) for outcome in outcomes] == [("finished", 3)]
    pd.testing.assert_frame_equal(reached(stack), undisturbed, check_exact=False, rtol=1e-4, atol=1e-5)


def test_a_stack_that_an_engine_gives_up_fails_all_of_its_runs(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "run", lambda jobs, cost, stop: [Outcome(job.name, "failed", "it died") for job in jobs])
    found = stochflow.compare(**ARGUMENTS, stack=True, out=tmp_path / "sweep")
    assert set(found.failures.values()) == {"it died"}
    assert len(found.failures) == 6


def test_seeds_are_divided_among_workers_that_would_wait() -> None:
    assert [len(group) for group in stack_groups(planned(seeds=5), num_jobs=1)] == [5]
    assert [len(group) for group in stack_groups(planned(seeds=5), num_jobs=2)] == [3, 2]
    assert [len(group) for group in stack_groups(planned(seeds=5, noise=[0.1, 0.25]), num_jobs=2)] == [5, 5]
    assert [len(group) for group in stack_groups(planned(seeds=2), num_jobs=8)] == [1, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ["sgfn-kl"]}, "seeds of sgfn-kl are trained one by one: its objective has no stacked form"),
        ({"tasks": ["hypergrid"], "methods": ["sgfn-db"]}, "it trains on a graph"),
        ({"methods": ["gfn-tb"], "settings": {"model": {"body": "transformer"}}}, "only k-mer bodies"),
    ],
)
def test_what_cannot_be_stacked_is_said_and_stays_alone(changes: dict[str, Any], words: str) -> None:
    with pytest.warns(UserWarning, match=words):
        groups = stack_groups(plan(SweepConfig(seeds=2, **changes)), num_jobs=1)
    assert [len(group) for group in groups] == [1, 1]
