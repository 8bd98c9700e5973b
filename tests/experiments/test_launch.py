"""From layers of settings to a run: nothing is read, built or hashed twice."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow.__main__ import main
from stochflow.environments import factory
from stochflow.environments.base import Environment
from stochflow.environments.sequences import user_table
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.lookup_task import MeasuredTask
from stochflow.experiments import build, launch, world

TINY = ("model.width=8", "optimiser.batch_size=16", "optimiser.updates=1", "evaluation.num_samples=20")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text("sequence,score\nAA,0.1\nAC,0.5\nCA,0.9\nCC,1.0\n", encoding="utf-8")
    return path


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a table is parsed and hashed, and an environment configured and built."""
    found: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            found[name] += 1
            return function(*arguments, **options)

        return counted

    def digest(text: bytes) -> Any:
        found["hashed"] += text.startswith(b"sequence,score")
        return hashed(text)

    hashed = user_table.hashlib.sha256
    monkeypatch.setattr(factory, "read_user_table", counting("parsed", user_table.read_user_table))
    monkeypatch.setattr("hashlib.sha256", digest)
    monkeypatch.setattr(world, "configure", counting("configured", factory.configure))
    for kind, name in ((MeasuredTask, "task"), (SequenceEnvironment, "environment")):
        monkeypatch.setattr(kind, "__init__", counting(name, kind.__init__))
    return found


ONCE = dict.fromkeys(("parsed", "hashed", "configured", "task", "environment"), 1)


def test_a_run_reads_its_table_once_and_builds_its_environment_once(
    table: Path, tmp_path: Path, counts: Counter[str]
) -> None:
    stochflow.train(table=table, alphabet="AC", steps=2, settings=TINY, out=tmp_path / "run")
    assert dict(counts) == ONCE


def test_so_does_the_command_line(
    table: Path, tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "--table", str(table), "--alphabet", "AC", "--steps", "2", "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["stochflow", *words, *(f"--set={name}" for name in TINY)])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert (tmp_path / "run" / "summary.json").exists()
    assert dict(counts) == ONCE


def test_so_does_a_run_that_is_continued(table: Path, tmp_path: Path, counts: Counter[str]) -> None:
    stochflow.train(table=table, alphabet="AC", steps=2, settings=TINY, out=tmp_path / "run")
    counts.clear()
    stochflow.train(out=tmp_path / "run", resume=True, steps=3)
    assert dict(counts) == ONCE


def test_a_graph_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = factory.configured_graph
    monkeypatch.setattr(factory, "configured_graph", lambda config: built.append(config) or original(config))
    stochflow.train("hypergrid:2,4", steps=2, settings=TINY, out=tmp_path / "run")
    assert len(built) == 1


def test_what_is_prepared_is_what_is_built(table: Path) -> None:
    configured = launch.prepare([{"task": "table", "table": {"file": str(table), "alphabet": "AC"}}])
    environment: Environment = configured.environment
    assert build.build(configured.config, environment).environment is environment
