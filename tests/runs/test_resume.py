"""A run that was stopped and continued cannot be told from one that was never disturbed."""

import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import stochflow
from stochflow import api
from stochflow.__main__ import main
from stochflow.config.methods import METHODS
from stochflow.config.yaml import parse_assignment
from stochflow.core.errors import ConfigError, StochflowError
from stochflow.experiments import build as experiment
from stochflow.experiments import launch
from stochflow.experiments.launch import Listener, run
from stochflow.runs.directory import RunDirectory

STEPS = 5
# checkpoints at steps 2, 4 and 5: stopping at 3 loses a step that has to be made again
TINY = (
    "optimiser.batch_size=16",
    "optimiser.updates=2",
    "model.width=16",
    "evaluation.num_samples=50",
    "evaluation.every=0.5",
    "checkpoint_every=0.4",
)
SMALL = "bits:8,2"  # 256 designs


class PowerCutError(Exception):
    """The machine stops between two steps."""


def train(path: Path, method: str = "sgfn-db", **arguments: Any) -> stochflow.Run:
    return stochflow.train(method=method, settings=TINY, out=path, **({"steps": STEPS} | arguments))


def cut_after(step: int) -> Listener:
    def listen(record: dict[str, float], progress: float) -> None:
        if record["step"] == step:
            raise PowerCutError

    return listen


def stop_after(path: Path, method: str, step: int, task: str = "tfbind8") -> None:
    """Train and ask to stop after a step, as Ctrl-C does."""
    flags = {"task": task, "method": method, "budget": {"steps": STEPS}}
    config = launch.resolve_config([*map(parse_assignment, TINY), flags])
    built = experiment.build(config)
    directory = RunDirectory.create(path, config, overwrite=False)
    run(built, directory, lambda record, progress: None, lambda: built.trainer.step >= step)


def contents(path: Path) -> dict[str, Any]:
    """All that a run leaves behind, without what the clock says."""
    run = stochflow.load(path)
    state = run.directory.load_checkpoint()
    state["counters"][2] = 0.0
    return {
        "state": state,
        "metrics": run.metrics.drop(columns="seconds").to_dict("list"),
        "summary": run.summary.model_dump(exclude={"seconds"}),
        "samples": (path / "samples.csv").read_text(encoding="utf-8"),
        "config": run.config,
        "files": sorted(str(file.relative_to(path)) for file in path.rglob("*")),
    }


def assert_same_run(found: Path, expected: Path) -> None:
    left, right = contents(found), contents(expected)
    assert left["state"].keys() == right["state"].keys()
    for name, tensor in right["state"].items():
        assert torch.equal(left["state"][name], tensor), name
    for part in ("metrics", "summary", "samples", "config", "files"):
        assert str(left[part]) == str(right[part])  # as text: NaN marks steps without an evaluation


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run; to be read, not changed."""
    return train(tmp_path_factory.mktemp("finished") / "run").path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.mark.parametrize("method", METHODS)
def test_stopping_and_resuming_changes_nothing(method: str, tmp_path: Path) -> None:
    straight, path = tmp_path / "straight", tmp_path / "run"
    train(straight, method, task=SMALL)

    stop_after(path, method, 1, SMALL)
    assert stochflow.load(path).summary.status == "interrupted"
    assert stochflow.load(path).summary.steps == 1
    made: list[float] = []

    def cut(record: dict[str, float], progress: float) -> None:
        made.append(record["step"])
        cut_after(3)(record, progress)

    with pytest.raises(PowerCutError):
        train(path, method, task=SMALL, resume=True, listen=cut)
    assert made == [2, 3]  # asking to stop saves what is there; nothing is made twice
    assert stochflow.load(path).metrics["step"].tolist() == [1, 2, 3]

    made.clear()
    train(path, method, task=SMALL, resume=True, listen=lambda record, _: made.append(record["step"]))
    assert made == [3, 4, 5]  # a power cut loses what came after the last checkpoint
    assert_same_run(path, straight)


@pytest.mark.parametrize("method", ["sgfn-db", "genetic"])
def test_paid_scores_are_logged_as_if_a_long_run_had_never_stopped(method: str, tmp_path: Path) -> None:
    straight, path, task = tmp_path / "straight", tmp_path / "run", "bits:120,8"
    train(straight, method, task=task)
    with pytest.raises(PowerCutError):
        train(path, method, task=task, listen=cut_after(3))
    train(path, method, task=task, resume=True)
    assert len(stochflow.load(path).metrics["best_paid"].dropna()) == 2
    assert_same_run(path, straight)


@pytest.mark.parametrize("folder", [False, True])
def test_one_command_begins_a_run_and_goes_on_with_it(folder: bool, finished: Path, tmp_path: Path) -> None:
    if folder:  # which a scheduler of jobs may have made
        (tmp_path / "job").mkdir()
    with pytest.raises(PowerCutError):
        train(tmp_path / "job", resume=True, listen=cut_after(3))
    made: list[float] = []
    train(tmp_path / "job", resume=True, listen=lambda record, _: made.append(record["step"]))
    assert made == [3, 4, 5]
    assert_same_run(tmp_path / "job", finished)


def test_a_run_without_a_place_begins_in_its_own(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = stochflow.train(method="sgfn-db", settings=TINY, steps=STEPS, resume=True)
    assert run.path == Path("runs") / "tfbind8-sgfn-db-0.25-seed0"
    assert_same_run(run.path, finished)


def test_resuming_needs_no_settings(finished: Path, tmp_path: Path) -> None:
    stop_after(tmp_path / "stopped", "sgfn-db", 2)
    stochflow.train(out=tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", finished)


def test_a_power_cut_before_the_first_step_can_be_resumed(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(PowerCutError):
        train(tmp_path / "cut", listen=cut_after(1))
    train(tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "cut", finished)


def test_a_damaged_checkpoint_costs_steps_but_not_the_result(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "stopped"
    stop_after(copy, "sgfn-db", 4)
    newest = max((copy / "checkpoint").glob("*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match="damaged .*going on from step-00000000[0-3]"):
        stochflow.train(out=copy, resume=True)
    assert_same_run(copy, finished)


def test_resuming_a_finished_run_changes_nothing(finished: Path, copy: Path) -> None:
    stochflow.train(out=copy, resume=True)
    assert_same_run(copy, finished)


def test_a_larger_budget_goes_on_where_the_run_ended(copy: Path) -> None:
    before = stochflow.load(copy).metrics
    run = stochflow.train(out=copy, resume=True, steps=STEPS + 2)
    assert run.metrics["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert run.metrics["loss"].tolist()[:STEPS] == before["loss"].tolist()
    assert (run.summary.status, run.summary.steps) == ("finished", STEPS + 2)
    assert run.config.budget.steps == STEPS + 2


def test_a_budget_of_another_kind_replaces_the_old_one(copy: Path) -> None:
    run = stochflow.train(out=copy, resume=True, trajectories=16 * STEPS + 1)
    assert run.config.budget.model_dump(exclude_none=True) == {"trajectories": 16 * STEPS + 1}
    assert run.summary.trajectories == 16 * STEPS + 1


def test_a_smaller_budget_takes_no_step_back(copy: Path) -> None:
    run = stochflow.train(out=copy, resume=True, steps=2)
    assert (run.summary.status, run.summary.steps) == ("finished", STEPS)
    assert run.metrics["step"].tolist() == [1, 2, 3, 4, 5]


def test_how_a_run_is_watched_may_change(copy: Path) -> None:
    run = stochflow.train(out=copy, resume=True, settings=("evaluation.num_samples=7", "checkpoint_every=1"))
    assert len((copy / "samples.csv").read_text(encoding="utf-8").splitlines()) == 8
    assert run.config.evaluation.num_samples == 7


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"noise": 0.5}, "channel"),
        ({"noise": "none"}, "channel"),
        ({"method": "sgfn-kl"}, "method"),
        ({"seed": 1}, "seed"),
        ({"settings": ("model.width=32",)}, "model"),
        ({"settings": ("optimiser.batch_size=32",)}, "optimiser"),
        ({"config": {"reward": {"beta": 4}}}, "reward"),
    ],
)
def test_a_run_cannot_be_resumed_as_another_one(arguments: dict[str, Any], named: str, copy: Path) -> None:
    before = snapshot(copy)
    with pytest.raises(ConfigError, match=f"was started with another '{named}'; resume it without that setting"):
        stochflow.train(out=copy, resume=True, **arguments)
    assert snapshot(copy) == before


@pytest.mark.parametrize("damage", ["config.yaml", "checkpoint"])
def test_an_incomplete_run_is_refused_and_left_alone(damage: str, copy: Path) -> None:
    if damage == "config.yaml":
        (copy / damage).unlink()
    else:
        shutil.rmtree(copy / "checkpoint")
    before = snapshot(copy)
    with pytest.raises(StochflowError, match=r"(train|give|start)"):
        stochflow.train(out=copy, resume=True)
    assert snapshot(copy) == before


def test_a_checkpoint_of_another_config_is_refused(copy: Path) -> None:
    config = copy / "config.yaml"
    changed = config.read_text(encoding="utf-8").replace("width: 16", "width: 8")
    config.write_text(changed, encoding="utf-8")
    with pytest.raises(StochflowError, match=r"config\.yaml in .* is not as it was written; restore it, or remove"):
        stochflow.train(out=copy, resume=True)
    config.write_text(changed.split("\n", maxsplit=1)[1], encoding="utf-8")  # without its checksum
    with pytest.raises(StochflowError, match=r"does not fit its config\.yaml; restore the config or train again"):
        stochflow.train(out=copy, resume=True)


def test_resume_and_overwrite_exclude_each_other(copy: Path) -> None:
    before = snapshot(copy)
    with pytest.raises(ConfigError, match="give one of them"):
        stochflow.train(out=copy, resume=True, overwrite=True)
    assert snapshot(copy) == before


def signalled(path: Path, signals: list[signal.Signals], log: Path) -> None:
    """The command line, as the whole life of a process that sends itself signals after the third step."""
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background may have switched it off
    original = api.train

    def train(*arguments: Any, listen: Listener, **options: Any) -> stochflow.Run:
        def listen_and_signal(record: dict[str, float], progress: float) -> None:
            listen(record, progress)
            if record["step"] == 3:
                for number in signals:
                    os.kill(os.getpid(), number)

        return original(*arguments, listen=listen_and_signal, **options)

    api.train = train
    settings = [part for text in TINY for part in ("--set", text)]
    sys.argv = ["stochflow", "train", "--method", "sgfn-db", "--steps", str(STEPS), *settings, "--out", str(path)]
    for stream, number in (("stdout", 1), ("stderr", 2)):  # pytest has put its own in their place
        setattr(sys, stream, open(number, "w", closefd=False))  # noqa: SIM115
    main()


def run_signalled(path: Path, signals: str) -> tuple[int | None, str]:
    """Exit code and output of a command that was sent signals; it is forked, for a start takes longer than the run."""
    log = path.with_name("log")
    numbers = [signal.Signals[name] for name in signals.split(",")]
    process = multiprocessing.get_context("fork").Process(target=signalled, args=(path, numbers, log))
    process.start()
    process.join(100)
    return process.exitcode, log.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGHUP,SIGHUP"])
def test_asking_to_stop_ends_cleanly_with_everything_written(name: str, finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    code, text = run_signalled(path, name)
    assert code == 0, text
    assert "Traceback" not in text
    assert f"--resume --out {path}" in text.replace("\n", "")
    run = stochflow.load(path)
    assert (run.summary.status, run.summary.steps) == ("interrupted", 3)
    assert run.metrics["step"].tolist() == [1, 2, 3]
    assert len((path / "samples.csv").read_text(encoding="utf-8").splitlines()) == 51
    assert run.evaluate() == run.summary
    train(path, resume=True)
    assert_same_run(path, finished)


def test_a_second_ctrl_c_stops_at_once_and_the_run_can_be_resumed(finished: Path, tmp_path: Path) -> None:
    code, text = run_signalled(tmp_path / "run", "SIGINT,SIGINT")
    assert code == 130
    assert text.splitlines()[-1] == "Error: interrupted"
    assert "Traceback" not in text
    train(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", finished)


def test_a_killed_process_loses_nothing_that_a_resume_cannot_make_again(finished: Path, tmp_path: Path) -> None:
    code, _ = run_signalled(tmp_path / "run", "SIGKILL")
    assert code == -signal.SIGKILL
    kept = ["checkpoint", "config.yaml", "metrics.jsonl", "versions.json"]
    assert sorted(os.listdir(tmp_path / "run")) == [".lock", *kept]
    train(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", finished)
