"""`--deterministic`: the same numbers on repeated runs, alone or several at a time."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import stochflow
from stochflow.config.layers import resolve
from stochflow.core.errors import ConfigError
from stochflow.experiments.sweep import compare as sweep
from stochflow.experiments.torch_settings import computing
from stochflow.runs.directory import RunDirectory
from tests.experiments.sweep.engines import Here, forked

__all__ = ["forked"]  # a fixture is used by its name

TINY = ("optimiser.batch_size=16", "optimiser.updates=4", "model.width=8", "evaluation.num_samples=20")
METHODS = ("sgfn-kl", "sgfn-db", "gfn-tb", "ppo", "mars")


def train(path: Path, method: str, **options: Any) -> stochflow.Run:
    return stochflow.train(method=method, settings=TINY, out=path, **({"steps": 3, "deterministic": True} | options))


def numbers(path: Path) -> dict[str, Any]:
    """Everything a run leaves behind but what the clock says."""
    run = stochflow.load(path)
    weights = {name: value.tolist() for name, value in run.directory.load_checkpoint().items() if name != "counters"}
    summary = run.summary.model_dump() | {"seconds": None}
    metrics = run.metrics.drop(columns="seconds").to_csv()
    return {"weights": weights, "summary": summary, "metrics": metrics, "samples": (path / "samples.csv").read_text()}


@pytest.mark.parametrize("method", METHODS)
def test_a_repeated_run_gives_the_same_numbers(tmp_path, method):
    for name in ("one", "two"):
        train(tmp_path / name, method)
    assert numbers(tmp_path / "one") == numbers(tmp_path / "two")


@pytest.mark.parametrize("task", ["hypergrid:2,4"])
def test_a_repeated_run_on_a_graph_gives_the_same_numbers(tmp_path, task):
    for name in ("one", "two"):
        stochflow.train(task, noise=0.1, steps=3, settings=TINY, deterministic=True, out=tmp_path / name)
    assert numbers(tmp_path / "one") == numbers(tmp_path / "two")


def test_runs_beside_each_other_give_the_numbers_of_runs_one_by_one(tmp_path, forked, monkeypatch):
    frames, engine = [], sweep._engine
    for jobs in (1, 2):
        monkeypatch.setattr(sweep, "_engine", engine if jobs == 2 else lambda spec: Here())
        out = tmp_path / str(jobs)
        plan = {"tasks": ["bits:8,4"], "methods": ["sgfn-kl", "gfn-tb"], "noise": ["0.25"], "seeds": 1}
        found = sweep.compare(**plan, trajectories=48, settings=TINY, deterministic=True, jobs=jobs, out=out)
        assert not found.failures
        frames.append(found.frame.drop(columns=["seconds", "cpu_seconds"], errors="ignore"))
        assert all(RunDirectory.open(path).config().deterministic for path in (out / "runs").iterdir())
    pd.testing.assert_frame_equal(*frames)
    for path in (tmp_path / "1" / "runs").iterdir():
        assert numbers(path) == numbers(tmp_path / "2" / "runs" / path.name)


@pytest.mark.parametrize("deterministic", [True, False])
def test_torch_is_asked_for_it_while_a_run_lasts_and_no_longer(tmp_path, deterministic):
    asked = []

    def listen(*_: object) -> None:
        asked.append(torch.are_deterministic_algorithms_enabled())

    train(tmp_path / "run", "gfn-tb", deterministic=deterministic, listen=listen)
    assert asked == [deterministic] * 3
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_budget_in_minutes_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a budget in minutes ends where the clock says"):
        train(tmp_path / "run", "gfn-tb", steps=None, minutes=0.1)


def test_an_operation_without_a_deterministic_way_names_the_remedy():
    config = resolve([{"deterministic": True}])
    with (
        pytest.raises(ConfigError, match="add --device cpu, or leave out --deterministic"),
        computing(config),
    ):
        raise RuntimeError("index_add_cuda_ does not have a deterministic implementation, but you set it")
