"""A comparison that was killed, stopped, extended or run elsewhere gives the table of one that nobody disturbed."""

import contextlib
import errno
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.cli import app as cli
from stochflow.config.layers import merge
from stochflow.config.yaml import parse_assignment
from stochflow.core.errors import ConfigError
from stochflow.experiments.sweep import compare
from stochflow.experiments.sweep.config import specify
from stochflow.experiments.sweep.local import LocalEngine
from stochflow.experiments.sweep.progress import State, Watch
from stochflow.experiments.sweep.specification import plan
from stochflow.experiments.sweep.worker import USAGE, Job, Meter, execute, lock
from stochflow.runs.directory import RunDirectory
from tests.experiments.sweep.engines import Here, forked

__all__ = ["forked"]  # a fixture is used by its name

# 25 steps with a checkpoint at every fifth: whoever is stopped has something to make again
SETTINGS = (
    "optimiser.batch_size=16",
    "optimiser.updates=2",
    "model.width=8",
    "evaluation.num_samples=50",
    "evaluation.every=1",
    "checkpoint_every=0.2",
)
METHODS = ["sgfn-db", "sgfn-kl-trajectory"]
ARGUMENTS: dict[str, Any] = {
    "methods": METHODS,
    "noise": [0.1],
    "seeds": 2,
    "trajectories": 400,
    "settings": SETTINGS,
    "jobs": 2,
}
OPTIONS = [
    *("--methods", ",".join(METHODS), "--noise", "0.1", "--seeds", "2", "--trajectories", "400", "--jobs", "2"),
    *(part for text in SETTINGS for part in ("--set", text)),
]
CLOCKS = ["seconds", "cpu_seconds"]
_PATIENCE = 120.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished comparison; to be read, not changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "_engine", lambda spec: Here())
        return stochflow.compare(**ARGUMENTS, out=tmp_path_factory.mktemp("undisturbed") / "sweep").path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_engine", lambda spec: Here())


# every process of a comparison imports this: its runs wait at a step for as long as a file names it
HOLD = """
import os, time
from importlib.machinery import SourceFileLoader

plain = SourceFileLoader.exec_module

def exec_module(self, module):
    plain(self, module)
    if module.__name__ == "stochflow.experiments.sweep.worker":
        listen = module.Meter.listen
        def held(self, record, progress):
            listen(self, record, progress)
            while waits(record["step"]):
                time.sleep(0.005)
        module.Meter.listen = held

def waits(step):
    try:
        with open(os.environ["HOLD"]) as file:
            return step >= int(file.read())
    except FileNotFoundError:
        return False

SourceFileLoader.exec_module = exec_module
"""


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which to name the step where runs of every process that is started from now on wait."""
    file = tmp_path / "hold"
    (tmp_path / "sitecustomize.py").write_text(HOLD, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(stochflow.__file__).parents[1]}")
    monkeypatch.setenv("HOLD", str(file))
    return file


@pytest.fixture
def hold_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: None) -> Path:
    """The same for runs in workers that are forked from here."""
    file, listen = tmp_path / "hold", Meter.listen

    def held(self: Meter, record: dict[str, float], progress: float) -> None:
        listen(self, record, progress)
        with contextlib.suppress(FileNotFoundError):
            while record["step"] >= int(file.read_text(encoding="utf-8")):
                time.sleep(0.005)

    monkeypatch.setattr(Meter, "listen", held)
    return file


def start(out: Path, *options: str) -> subprocess.Popen[str]:
    """`stochflow compare` in a process group of its own, so that a signal to the group reaches nobody else."""
    command = [sys.executable, "-m", "stochflow", "compare", *OPTIONS, "--out", str(out), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, start_new_session=True, cwd=out.parent)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Look again and again until it is so; not for ever, and not after the process has ended."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.005)


def steps_made(out: Path) -> int:
    """Lines in all metrics.jsonl of a comparison."""
    return sum(path.read_bytes().count(b"\n") for path in out.glob("runs/*/metrics.jsonl"))


def outlived(process: ForkProcess, folder: Path, num_changes: int) -> int | None:
    """The exit code of a process, or None if it was killed as soon as so many changes were seen in a folder."""
    seen = changes(folder)
    while process.is_alive():
        changed = changes(folder) - seen
        seen |= changed
        num_changes -= len(changed)
        if num_changes <= 0:
            process.kill()
            process.join()
            return None
        time.sleep(0.001)
    return process.exitcode


def changes(folder: Path) -> set[tuple[str, int]]:
    """Every file below a folder with the moment it was last written, however fast they come and go."""
    found = set()
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found.add((f"{place}/{name}", os.stat(f"{place}/{name}").st_mtime_ns))
    return found


def worker_of(run: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((run / USAGE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"


def table_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv", float_precision="round_trip")


def assert_same_results(found: Path, expected: Path) -> None:
    """Equal tables to the last digit, but for the clocks; equal steps in every run."""
    left, right = (table_of(folder).drop(columns=CLOCKS) for folder in (found, expected))
    pd.testing.assert_frame_equal(left, right, check_exact=True)
    tables = [pd.read_parquet(folder / "results.parquet").drop(columns=CLOCKS) for folder in (found, expected)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    for name in left["run"]:
        records = [stochflow.load(folder / "runs" / name).metrics for folder in (found, expected)]
        pd.testing.assert_frame_equal(*(frame.drop(columns="seconds") for frame in records), check_exact=True)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with the moment it was written and its content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "sweep"))


def test_every_run_is_an_ordinary_run_directory_and_a_row(undisturbed: Path) -> None:
    table = table_of(undisturbed)
    names = [f"tfbind8-{method}-0.1-seed{seed}" for method in METHODS for seed in (0, 1)]
    assert table["run"].tolist() == names
    assert sorted(os.listdir(undisturbed / "runs")) == sorted(names)
    assert set(table["trajectories"]) == {400}
    assert set(table["status"]) == {"finished"}
    for name, row in zip(names, table.to_dict("records"), strict=True):
        summary = stochflow.load(undisturbed / "runs" / name).summary
        assert row["regret"] == summary.regret
        assert row["num_modes"] == summary.num_modes
        assert summary.log_z_true is not None
        assert row["log_z_error"] == summary.log_z - summary.log_z_true
        assert row["cpu_seconds"] > 0
        assert set(type(summary).model_fields) <= set(row)
    parquet = pd.read_parquet(undisturbed / "results.parquet")
    assert parquet.to_csv(index=False) == (undisturbed / "results.csv").read_text(encoding="utf-8")


def test_a_run_of_a_comparison_is_the_run_that_train_makes(undisturbed: Path, tmp_path: Path) -> None:
    run = stochflow.train(
        method="sgfn-db", noise=0.1, seed=1, trajectories=400, settings=SETTINGS, out=tmp_path / "alone"
    )
    kept = stochflow.load(undisturbed / "runs" / "tfbind8-sgfn-db-0.1-seed1").summary
    assert kept.model_dump(exclude={"seconds"}) == run.summary.model_dump(exclude={"seconds"})


def test_a_comparison_that_is_killed_and_stopped_ends_like_an_undisturbed_one(
    undisturbed: Path, tmp_path: Path, here: None, hold: Path
) -> None:
    out = tmp_path / "my sweep"
    hold.write_text("7", encoding="utf-8")
    process = start(out, "--jobs", "1")
    wait_for(lambda: steps_made(out) == 7, process)  # a run at step 7, with a checkpoint of step 5
    workers = [usage["pid"] for run in out.glob("runs/*") if (usage := worker_of(run))]
    assert len(workers) == 1
    process.kill()
    process.communicate()
    # workers follow their parent: nobody writes behind the back of the next one
    wait_for(lambda: not any(map(alive, workers)))
    assert len(table_of(out)) == 0  # not one has finished, and the table can be read

    hold.write_text("9", encoding="utf-8")
    process = start(out)
    wait_for(lambda: steps_made(out) == 18, process)  # the same from step 5 to step 9, and another one
    os.killpg(process.pid, signal.SIGINT)  # to parent and workers, as Ctrl-C in a terminal
    wait_for((out / ".stop").exists, process)
    hold.unlink()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    (line,) = err.splitlines()
    assert re.fullmatch(r"Stopped with 4 of 4 runs to go; go on with `stochflow compare --out '.*/my sweep'`\.", line)
    stopped = [stochflow.load(path.parent) for path in out.glob("runs/*/summary.json")]
    assert [(run.summary.status, run.summary.steps) for run in stopped] == [("interrupted", 9)] * 2
    for run in stopped:  # nothing was lost
        assert run.metrics["step"].tolist() == list(range(1, 10))

    found = stochflow.compare(out=out)
    assert (found.missing, found.interrupted) == ([], False)
    assert_same_results(out, undisturbed)
    sessions = [usage["sessions"] for run in out.glob("runs/*") if (usage := worker_of(run))]
    assert sorted(sessions) == [1, 1, 2, 3]


def test_a_comparison_that_is_killed_at_any_moment_ends_like_an_undisturbed_one(
    undisturbed: Path, tmp_path: Path, here: None
) -> None:
    out, rng, kills, code = tmp_path / "sweep", random.Random(0), 0, None
    context = multiprocessing.get_context("fork")  # nothing to import: strikes fall on the work, not on its start
    while code is None:
        process = context.Process(target=stochflow.compare, kwargs={**ARGUMENTS, "out": out})
        process.start()
        # short lives come first, so that every stage of a start is hit; later ones get further and further
        code = outlived(process, out, num_changes=rng.randint(1, 12 if kills < 6 else 20 * kills))
        kills += code is None
    assert code == 0
    assert kills >= 7
    assert_same_results(out, undisturbed)


def test_finished_runs_are_not_touched_again(copy: Path, here: None) -> None:
    before = snapshot(copy / "runs")
    stochflow.compare(**ARGUMENTS, out=copy)
    assert snapshot(copy / "runs") == before


@pytest.mark.filterwarnings("ignore:.*stalled")  # 400 trajectories at this noise teach sgfn-db next to nothing
def test_what_is_added_is_run_and_what_is_there_is_kept(copy: Path, undisturbed: Path, here: None) -> None:
    before = snapshot(copy / "runs")
    found = stochflow.compare(methods=["sgfn-kl-trajectory"], noise=[0.5], seeds=1, out=copy)
    # 0.5 joins 0.1, both methods and both seeds stay: a comparison is always a whole grid
    assert (found.spec.methods, found.spec.noise, found.spec.seeds) == (METHODS, [0.1, 0.5], 2)
    assert len(found.frame) == 8
    after = snapshot(copy / "runs")
    assert {path: after[path] for path in before} == before
    old = found.frame[found.frame["noise"] == 0.1]
    assert old["regret"].tolist() == table_of(undisturbed)["regret"].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trajectories": 800}, "was started with trajectories 400, not 800"),
        ({"settings": ("model.width=16",)}, "was started with settings"),
        ({"config": {"settings": {}}}, "was started with settings"),
    ],
)
def test_another_budget_or_other_settings_are_refused(change: dict[str, Any], words: str, copy: Path) -> None:
    before = snapshot(copy)
    with pytest.raises(ConfigError, match=words):
        stochflow.compare(**change, out=copy)
    assert snapshot(copy) == before


def test_runs_that_were_made_with_other_settings_are_refused(copy: Path) -> None:
    config = copy / "runs" / "tfbind8-sgfn-db-0.1-seed0" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("beta: 3.0", "beta: 2.0"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tfbind8-sgfn-db-0\.1-seed0 was made with another 'reward'"):
        stochflow.compare(out=copy)


@pytest.mark.parametrize(
    "content", ["5", "null", "[1]", '{"cpu_seconds": "x"}', '{"host": "", "pid": 1, "sessions": 1, "cpu_seconds": NaN}']
)
def test_a_damaged_worker_file_costs_the_cpu_seconds_alone(content: str, copy: Path, here: None) -> None:
    finished, unfinished = (copy / "runs" / f"tfbind8-sgfn-db-0.1-seed{seed}" for seed in (0, 1))
    for run in (finished, unfinished):
        (run / USAGE).write_text(content, encoding="utf-8")
    (unfinished / "summary.json").unlink()
    found = stochflow.compare(out=copy)
    assert (found.missing, found.failures) == ([], {})
    assert found.frame["cpu_seconds"].isna().tolist() == [True, False, False, False]


@pytest.mark.parametrize("name", ["results.csv", "results.parquet"])
def test_a_table_that_cannot_be_written_is_named(name: str, copy: Path) -> None:
    (copy / name).unlink()
    (copy / name).mkdir()
    with pytest.raises(ConfigError, match=rf"cannot write .*/{name} \(Is a directory\); free the space or remove"):
        stochflow.compare(out=copy)


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"File name too long\); choose another --out"):
        stochflow.compare(out=tmp_path / ("a" * 300))


@pytest.mark.filterwarnings("ignore:.*(diverged|collapsed)")  # 400 trajectories are no training
def test_channels_with_and_without_a_number_share_a_printed_table(
    copy: Path, here: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what the command line replaces
    monkeypatch.setattr(sys, "argv", ["stochflow", "compare", "--noise", "none", "--out", str(copy)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    for noise in ("0.1", "none"):
        assert f"tfbind8, noise {noise}, 400 trajectories" in printed
    assert len(re.findall(r"│ sgfn-\S+ .*│ +\d\.\d{3} │ .* 2/2 │", printed)) == 4


def test_two_comparisons_do_not_share_a_folder(copy: Path) -> None:
    with lock(copy, "compare"), pytest.raises(ConfigError, match="another comparison is at work"):
        stochflow.compare(out=copy)


def test_a_run_that_fails_is_recorded_and_stops_no_other(
    tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # too large a weight for float32, of a term that only one of the methods has
    options = ["--methods", "sgfn-kl-bootstrap,sgfn-kl-trajectory", "--seeds", "1"]
    options += ["--set", "objective.flow_weight=1e39", "--out", str(tmp_path / "sweep")]
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what the command line replaces
    monkeypatch.setattr(sys, "argv", ["stochflow", "compare", *OPTIONS, *options])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("Failed: tfbind8-sgfn-kl-bootstrap-0.1-seed0: the term ")
    assert "No clear winner yet: runs of sgfn-kl-bootstrap are missing." in out
    table = table_of(tmp_path / "sweep").set_index("method")
    assert table.loc["sgfn-kl-bootstrap", "status"] == "failed"
    assert table.loc["sgfn-kl-bootstrap", "error"] in line
    assert pd.isna(table.loc["sgfn-kl-bootstrap", "regret"])
    assert table.loc["sgfn-kl-trajectory", "status"] == "finished"


def jobs_of(out: Path) -> list[Job]:
    """The jobs of the undisturbed comparison, in a folder of their own."""
    settings: dict[str, Any] = {}
    for text in SETTINGS:
        settings = merge(settings, parse_assignment(text))
    spec = specify(out, ARGUMENTS | {"settings": settings})
    out.mkdir()
    return [Job(str(out), run.name, run.config.model_dump(mode="json")) for run in plan(spec)]


def test_the_longest_run_comes_first_and_goes_on_when_its_worker_is_killed(
    undisturbed: Path, tmp_path: Path, hold_forked: Path
) -> None:
    hold_forked.write_text("7", encoding="utf-8")  # so that it cannot end before it is killed
    short, long = jobs_of(tmp_path / "sweep")[1:3]
    killed: list[int] = []
    outcomes = []
    with LocalEngine(jobs=1, retries=1) as engine:
        for outcome in engine.run([short, long], lambda job: float(job is long), lambda: False):
            outcomes += [(outcome.name, outcome.status)] if outcome else []
            usage = worker_of(long.path)
            if usage and not killed:
                os.kill(usage["pid"], signal.SIGKILL)
                killed.append(usage["pid"])
                hold_forked.unlink()
    assert outcomes == [(long.name, "finished"), (short.name, "finished")]
    usage = worker_of(long.path)
    assert usage is not None
    assert usage["sessions"] == 2
    assert usage["pid"] != killed[0]
    for job in (short, long):
        found, expected = stochflow.load(job.path), stochflow.load(undisturbed / "runs" / job.name)
        assert found.summary.model_dump(exclude={"seconds"}) == expected.summary.model_dump(exclude={"seconds"})


def test_a_run_whose_worker_always_dies_is_given_up(tmp_path: Path, hold_forked: Path) -> None:
    hold_forked.write_text("7", encoding="utf-8")
    job = jobs_of(tmp_path / "sweep")[0]
    outcomes = []
    with LocalEngine(jobs=1, retries=0) as engine:
        for outcome in engine.run([job], lambda _: 0.0, lambda: False):
            outcomes += [outcome] if outcome else []
            usage = worker_of(job.path)
            if usage and alive(usage["pid"]):
                os.kill(usage["pid"], signal.SIGKILL)
    (given_up,) = outcomes
    assert (given_up.status, given_up.error) == ("failed", "its worker process was ended 1 times")


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(undisturbed: Path, tmp_path: Path) -> None:
    job = jobs_of(tmp_path / "sweep")[0]
    shutil.copytree(undisturbed / "runs" / job.name, job.path, ignore=lambda *_: {"checkpoint", "summary.json"})
    assert execute(job).status == "finished"
    assert stochflow.load(job.path).metrics["step"].tolist() == list(range(1, 26))


def test_a_full_disk_fails_a_run_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job = jobs_of(tmp_path / "sweep")[0]
    monkeypatch.setattr(RunDirectory, "append_metrics", full)
    outcome = execute(job)
    assert outcome.status == "failed"
    assert outcome.error == "a file: No space left on device; free the space or choose another --out"


def test_progress_is_read_from_the_run_directories(undisturbed: Path, tmp_path: Path) -> None:
    job = jobs_of(tmp_path / "sweep")[0]
    names = [job.name, "not-started"]
    watch = Watch(tmp_path / "sweep", trajectories=400, total=5)
    assert watch.look(names) == State(done=3, total=5, running={})
    assert watch.look(names) is None  # a moment ago
    shutil.copytree(undisturbed / "runs" / job.name, job.path, copy_function=shutil.copyfile)
    metrics = job.path / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    metrics.write_text("".join(lines[:10]), encoding="utf-8")
    share, record = watch.state(names).running[job.name]
    assert (share, record["step"]) == (0.4, 10)
    os.utime(metrics, (0, 0))  # of an earlier session
    assert watch.state(names).running == {}


def test_a_ray_cluster_with_a_killed_worker_gives_the_same_table(undisturbed: Path, tmp_path: Path, hold: Path) -> None:
    out = tmp_path / "sweep"
    hold.write_text("7", encoding="utf-8")
    process = start(out, "--engine", "ray")
    wait_for(lambda: steps_made(out) == 14, process)
    victim = next(run for run in out.glob("runs/*") if worker_of(run))
    usage = worker_of(victim)
    assert usage is not None
    os.kill(usage["pid"], signal.SIGKILL)
    hold.unlink()
    printed, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (0, "")
    assert "4 runs in " in printed
    usage = worker_of(victim)
    assert usage is not None
    assert usage["sessions"] == 2
    assert_same_results(out, undisturbed)


def test_ray_is_an_extra_that_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'stochflow\[ray\]'"):
        stochflow.compare(engine="ray", out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
