"""The doctor on real runs: good ones, bad ones, and folders that are none."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.core.errors import DataError
from stochflow.reports.diagnosis import Diagnosis

TINY = ("optimiser.batch_size=16", "optimiser.updates=4", "model.width=16", "evaluation.num_samples=50")


def trained(path: Path, task: str, settings: tuple[str, ...] = (), **options: Any) -> tuple[list[str], Diagnosis]:
    """Kinds of the warnings that training gave, and what the doctor says afterwards."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = stochflow.train(task, settings=(*TINY, *settings), out=path, **options)
    (diagnosis,) = stochflow.doctor(run)
    assert stochflow.doctor(str(path)) == [diagnosis]
    return [str(warning.message).split(":")[0] for warning in caught], diagnosis


def kinds(diagnosis: Diagnosis) -> list[str]:
    return [finding.kind for finding in diagnosis.findings if finding.severity == "bad"]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reaches its optimum; to be read, not changed."""
    path = tmp_path_factory.mktemp("healthy") / "run"
    said, diagnosis = trained(path, "hypergrid", ("optimiser.batch_size=64",), method="sgfn-db", trajectories=3000)
    assert (said, kinds(diagnosis)) == ([], [])
    return path


def test_a_healthy_run_is_called_so(healthy: Path) -> None:
    (diagnosis,) = stochflow.doctor(healthy)
    assert diagnosis.healthy
    regret = stochflow.load(healthy).summary.regret
    assert diagnosis.verdict.startswith(f"Healthy: the regret is {regret:.3g} nats, 8")
    assert "% of the way from chance" in diagnosis.verdict
    assert diagnosis.problems == []


def test_a_run_that_does_not_move_is_warned_of_and_explained(tmp_path: Path) -> None:
    slow = ("optimiser.learning_rate=1e-9",)
    said, diagnosis = trained(tmp_path / "run", "hypergrid", slow, method="sgfn-db", steps=20)
    assert said == ["stalled"]
    assert kinds(diagnosis) == ["stalled"]
    assert "1e-09 now" in diagnosis.findings[0].remedy


def test_a_run_that_leaves_its_bounds_is_warned_of_and_explained(tmp_path: Path) -> None:
    fast = ("optimiser.learning_rate=1.0",)
    said, diagnosis = trained(tmp_path / "run", "tfbind8", fast, method="sgfn-kl-trajectory", steps=20)
    assert said == ["diverged", "collapsed"]
    assert kinds(diagnosis) == ["diverged", "collapsed"]
    assert not diagnosis.healthy
    assert diagnosis.verdict == "2 things are wrong."


def test_a_task_too_large_to_enumerate_is_watched_too(tmp_path: Path) -> None:
    sharp = ("reward.beta=200",)
    slow = (*sharp, "optimiser.learning_rate=1e-9")
    assert trained(tmp_path / "slow", "bits:40,4", slow, method="sgfn-db", steps=20)[0] == ["stalled"]
    said, diagnosis = trained(tmp_path / "greedy", "bits:40,4", (*sharp, "model.kmers=[1,2]"), method="ppo", steps=60)
    assert said == ["collapsed"]
    assert "rl.temperature" in diagnosis.findings[0].remedy
    assert trained(tmp_path / "chain", "bits:40,4", sharp, method="mcmc", steps=60)[0] == []


def test_what_was_said_is_not_said_again_on_resume(tmp_path: Path) -> None:
    slow = (*TINY, "optimiser.learning_rate=1e-9", "evaluation.every=0.05")
    stops = iter([False] * 15 + [True])
    with pytest.warns(UserWarning, match="stalled: the regret is 2.96"):
        stochflow.train(
            "hypergrid", method="sgfn-db", steps=20, settings=slow, out=tmp_path / "run", stop=lambda: next(stops)
        )
    (diagnosis,) = stochflow.doctor(tmp_path / "run")
    assert kinds(diagnosis) == ["stalled", "unfinished"]
    assert f"--resume --out {tmp_path / 'run'}" in diagnosis.findings[1].remedy
    stochflow.train(resume=True, out=tmp_path / "run")  # a warning would be an error
    assert stochflow.load(tmp_path / "run").metrics["start_regret"].notna().sum() == 1


def test_runs_of_a_comparison_come_worst_first(healthy: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        shutil.copytree(healthy, tmp_path / "runs" / name)
    (tmp_path / "runs" / "b" / "summary.json").unlink()
    (tmp_path / "runs" / "c" / "config.yaml").write_text("task: [", encoding="utf-8")
    with pytest.warns(UserWarning, match="The run c is left out"):
        found = stochflow.doctor(tmp_path)
    assert [diagnosis.path.name for diagnosis in found] == ["b", "a"]
    assert [diagnosis.healthy for diagnosis in found] == [False, True]


def test_damaged_files_are_named_and_not_trusted(healthy: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(healthy, tmp_path / "run"))
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    odd = json.dumps({"step": 7, "loss": "x", "regret": [1], "trajectories": 10**400, "start_regret": None})
    (run / "metrics.jsonl").write_text("\n".join([*lines[:20], "{", odd, '{"step": 8, "loss": NaN}']), encoding="utf-8")
    (run / "summary.json").write_text("{}", encoding="utf-8")
    (run / "samples.csv").write_bytes(b"\xff\x00")
    (diagnosis,) = stochflow.doctor(run)
    assert "unfinished" in kinds(diagnosis)
    assert len(diagnosis.problems) >= 3


def test_designs_that_score_nothing_are_counted(healthy: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(healthy, tmp_path / "run"))
    rows = pd.read_csv(run / "samples.csv")
    rows["score"] = 0.0
    rows.loc[~rows.iloc[:, 0].duplicated(keep=False).to_numpy(), "score"] = 1.0  # those that were drawn once
    rows.to_csv(run / "samples.csv", index=False)
    (diagnosis,) = stochflow.doctor(run)
    assert kinds(diagnosis) == ["zero-scores"]
    assert "9" in diagnosis.findings[0].seen


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="give a run directory"):
            stochflow.doctor(path)
