"""One process at a time trains in a run directory; whoever looks is let in, and who was killed holds nothing."""

import json
import multiprocessing
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import stochflow
from stochflow.cli import app as cli
from stochflow.config.layers import resolve
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import remove_leftovers, write_atomically
from stochflow.core.signals import stop_signal
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.forecasting.storage import read_forecaster
from stochflow.runs import directory as runs
from stochflow.runs.directory import RunDirectory

TINY = ("optimiser.batch_size=8", "model.width=8", "evaluation.num_samples=10", "evaluation.every=1", "device=cpu")


def train(path: Path, **options: Any) -> stochflow.Run:
    return stochflow.train("bits:8,4", method="mcmc", settings=TINY, out=path, **({"steps": 4} | options))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_LOCK_TIMEOUT", 0.0)


def while_training(path: Path, do: Callable[[], None], **options: Any) -> None:
    """Train, and do something in the middle of it."""
    train(path, listen=lambda record, _: do() if record["step"] == 2 else None, **options)


def test_nobody_else_trains_in_a_run_that_is_at_work(tmp_path: Path, impatient: None) -> None:
    refused = []

    def intrude() -> None:
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(ConfigError, match=r"another process is at work in .*; wait for it, end it, or choose"):
                train(tmp_path / "run", **options)
            refused.append(options)

    while_training(tmp_path / "run", intrude)
    assert len(refused) == 2
    assert stochflow.load(tmp_path / "run").metrics["step"].tolist() == [1, 2, 3, 4]
    assert sorted(os.listdir(tmp_path)) == ["run"]
    train(tmp_path / "run", overwrite=True)  # afterwards they may
    train(tmp_path / "run", resume=True, steps=5)


def test_whoever_looks_is_let_in(tmp_path: Path) -> None:
    seen = []

    def look() -> None:
        run = stochflow.load(tmp_path / "run")
        seen.append((len(run.sample(3)), run.evaluate().steps, stochflow.report(tmp_path / "run").exists()))

    while_training(tmp_path / "run", look)
    ((designs, steps, page),) = seen
    assert (designs, page) == (3, True)
    assert steps < 4


def test_an_error_lets_go_of_the_run(tmp_path: Path, impatient: None) -> None:
    def stop() -> None:
        raise RuntimeError("unforeseen")

    with pytest.raises(RuntimeError, match="unforeseen") as caught:
        while_training(tmp_path / "run", stop)
    with pytest.raises(ConfigError, match="another 'seed'"):
        train(tmp_path / "run", resume=True, seed=3)
    assert train(tmp_path / "run", resume=True).summary.status == "finished"
    assert caught.value is not None  # whose traceback still knows everything


def test_a_killed_process_holds_nothing(tmp_path: Path, impatient: None) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=while_training, args=(tmp_path / "run", die))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert train(tmp_path / "run", resume=True).summary.status == "finished"


def half_written(path: Path) -> Path:
    """A temporary file as a killed writer leaves it."""
    temporary = path.with_name(f".{path.name}.abc_1234.part")
    temporary.write_text("half", encoding="utf-8")
    return temporary


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        tmp_path / name for name in (".hidden", ".file.part", "file.part", ".file.abc_1234", ".other.abc_1234.part")
    ]
    for path in others:
        path.touch()
    half_written(tmp_path / "file")
    seen = []
    replace = os.replace

    def watched(source: str, target: str) -> None:
        remove_leftovers(tmp_path)  # as another process would, at this very moment
        seen.append(os.path.exists(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_atomically(tmp_path / "file", "whole")
    assert seen == [True]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "whole"
    assert not (tmp_path / ".other.abc_1234.part").exists()
    assert sorted(os.listdir(tmp_path)) == sorted(["file", *(path.name for path in others[:-1])])


def test_a_resume_clears_away_what_the_dead_have_left(tmp_path: Path) -> None:
    run = train(tmp_path / "run").path
    for path in (run / "summary.json", run / "checkpoint" / "step-000000009.json"):
        half_written(path)
    (run / "checkpoint" / "step-000000001.safetensors").touch()  # its JSON was removed first
    expected = {".lock", "checkpoint", "config.yaml", "metrics.jsonl", "summary.json", "versions.json"}
    train(run, resume=True)
    assert set(os.listdir(run)) == expected | {"samples.csv", "samples.fasta"}
    stems = sorted(path.stem for path in (run / "checkpoint").iterdir())
    assert len(stems) == 2
    assert stems[::2] == stems[1::2]


def workshop_of(path: Path) -> Path:
    """The folder in which an --overwrite prepares a new run."""
    return path.parent / f"{runs._staging_prefix(path)}abc_1234"


def taken_away(path: Path) -> None:
    """Leave a run as an --overwrite does that was killed between its two renames."""
    workshop = workshop_of(path)
    (workshop / "new").mkdir(parents=True)
    (workshop / "new" / ".lock").touch()
    path.rename(workshop / "old")


RETURNS: dict[str, Callable[[Path], object]] = {
    "sample": lambda run: stochflow.sample(run, 3),
    "report": stochflow.report,
    "resume": lambda run: train(run, resume=True),
    "overwrite": lambda run: train(run, overwrite=True),
    "check": lambda run: runs.check_free(run, overwrite=True),
}


@pytest.mark.parametrize("how", RETURNS)
def test_a_run_that_was_taken_away_comes_back(how: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run").path
    taken_away(run)
    with pytest.warns(UserWarning, match="was being replaced when that was stopped; the old run is back"):
        RETURNS[how](run)
    assert stochflow.load(run).summary.steps == 4
    assert os.listdir(tmp_path) == ["run"]


def test_a_workshop_of_the_living_and_one_of_another_run_stay(tmp_path: Path) -> None:
    run, another = (train(tmp_path / name).path for name in ("run", "another"))
    taken_away(run)
    taken_away(another)
    lock = runs._locked(workshop_of(run) / "new")
    with pytest.raises(DataError, match="not a run directory"):
        stochflow.load(run)
    lock.release()
    with pytest.warns(UserWarning, match="the old run is back"):
        stochflow.load(run)
    assert workshop_of(another).exists()


@pytest.mark.parametrize("mark", ["0", "2", "x", None])
def test_a_run_of_another_format_is_refused_and_one_without_a_mark_is_read(mark: str | None, tmp_path: Path) -> None:
    run = train(tmp_path / "run").path
    found = json.loads((run / "versions.json").read_text(encoding="utf-8"))
    assert found.pop("run-format") == runs.FORMAT
    (run / "versions.json").write_text(json.dumps(found | ({"run-format": mark} if mark else {})), encoding="utf-8")
    if mark is None:
        assert len(stochflow.sample(run, 3)) == 3
        (run / "versions.json").unlink()
        assert train(run, resume=True).summary.steps == 4
        return
    for attempt in (lambda: stochflow.sample(run, 3), lambda: train(run, resume=True), lambda: stochflow.report(run)):
        with pytest.raises(DataError, match=f"has the run format {mark}, but this version .* reads 1; use the version"):
            attempt()


def test_a_cache_of_another_format_is_refused_and_one_without_seals_is_read(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "c.sqlite", "lab:f", "me")
    cache.put({"ACGT": 1 / 3})
    assert cache.get(["ACGT"]) == {"ACGT": 1 / 3}
    connection = cache._connection
    assert connection is not None
    connection.execute("PRAGMA user_version = 7")
    cache.close()
    with pytest.raises(DataError, match=r"it has format 7, and this version of stochflow reads 1.*--oracle-cache"):
        cache.get(["ACGT"])


def test_a_score_that_was_changed_on_disk_is_noticed(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "c.sqlite", "lab:f", "me")
    cache.put({"ACGT": 1 / 3, "TTTT": 0.0})
    connection = cache._connection
    assert connection is not None
    with connection:
        connection.execute("UPDATE scores SET score = 0.5 WHERE design = 'TTTT'")
    cache.close()
    with pytest.raises(DataError, match="the row of 'TTTT' does not fit its checksum"):
        cache.get(["ACGT"])


def test_an_old_cache_is_read_and_written_as_it_is(tmp_path: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(tmp_path / "c.sqlite")
    columns = "oracle TEXT NOT NULL, design TEXT NOT NULL, score REAL NOT NULL, payer TEXT NOT NULL"
    connection.execute(f"CREATE TABLE scores ({columns}, PRIMARY KEY (oracle, design)) WITHOUT ROWID")
    connection.execute("INSERT INTO scores VALUES ('lab:f', 'ACGT', 0.25, 'you')")
    connection.execute(f"PRAGMA application_id = {0x53464F43}")
    connection.commit()
    connection.close()
    cache = ScoreCache(tmp_path / "c.sqlite", "lab:f", "me")
    cache.put({"TTTT": 0.5})
    assert cache.get(["ACGT", "TTTT"]) == {"ACGT": 0.25, "TTTT": 0.5}
    cache.close()


def test_a_forecaster_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "forecaster.json").write_text(json.dumps({"format": 9}), encoding="utf-8")
    (tmp_path / "forecaster.safetensors").touch()
    with pytest.raises(DataError, match="has format 9, this version reads 4; use the version that saved it, or fit"):
        read_forecaster(tmp_path)


def test_records_reach_the_disk_before_the_checkpoint_that_follows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    run = RunDirectory.create(tmp_path / "run", resolve([{}]), overwrite=False)
    run.append_metrics({"step": 1})
    synced = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    run.save_checkpoint({"x": torch.zeros(1)}, 1)
    assert synced[0] == "metrics.jsonl"


def command(*words: object) -> list[str]:
    settings = [part for text in TINY for part in ("--set", text)]
    return [sys.executable, "-m", "stochflow", *map(str, words), *settings]


def environment(**more: str) -> dict[str, str]:
    source = str(Path(stochflow.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **more}


def in_terminal(*words: object) -> NoReturn:
    """A command line as the only content of this process, on the terminal that its descriptors are."""
    code = 1
    try:
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
        os.environ["TERM"], sys.argv = "xterm", command(*words)[2:]
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def test_a_terminal_that_closes_ends_a_run_cleanly(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process, terminal = pty.fork()
    if process == 0:  # the session of a terminal of its own, with all imported that a start would import
        in_terminal("train", "bits:8,4", "--method", "mcmc", "--steps", 1_000_000, "--out", out)
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists():
        assert os.waitpid(process, os.WNOHANG) == (0, 0)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(terminal)  # the window is gone
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    summary = stochflow.load(out).summary
    assert summary.status == "interrupted"
    assert stochflow.load(out).metrics["step"].tolist() == list(range(1, summary.steps + 1))


def test_nohup_means_that_a_terminal_that_closes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signal() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_in_the_middle_of_an_import_is_silent(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    paths = f"{tmp_path}{os.pathsep}{Path(stochflow.__file__).parents[1]}"
    process = subprocess.run(
        command("methods")[:4],
        env=environment(PYTHONPATH=paths),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (process.returncode, process.stderr) == (-signal.SIGINT, "")


def test_the_package_itself_imports_next_to_nothing() -> None:
    code = "import sys, stochflow; print([name for name in ('torch', 'numpy', 'email') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert stochflow.ConfigError is ConfigError
    assert "train" in dir(stochflow)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stochflow.nothing


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from stochflow.runs import checkpoint

    folder = tmp_path / "checkpoint"
    for step in (1, 2):
        checkpoint.save_checkpoint(folder, {"step": torch.tensor(step)}, step)
    load, later = checkpoint._load, iter([(3, 4), (5, 6)])

    def overtaken(path: Path) -> dict[str, torch.Tensor]:
        for step in next(later, ()):
            checkpoint.save_checkpoint(folder, {"step": torch.tensor(step)}, step)
        return load(path)

    monkeypatch.setattr(checkpoint, "_load", overtaken)
    assert int(checkpoint.load_checkpoint(folder)["step"]) in (4, 5, 6)
    shutil.rmtree(folder)
