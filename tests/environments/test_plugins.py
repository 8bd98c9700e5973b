"""Tasks of other packages: a real distribution, found by its metadata."""

import sys
import warnings
from pathlib import Path

import pytest

import stochflow
from stochflow.cli import app as cli
from stochflow.core.errors import ConfigError
from stochflow.environments.registry import TASKS, make_task, other_tasks

MODULE = """
import torch
from stochflow.environments.sequences.task import Alphabet, Task

class Ends(Task):
    name, description = "ends", "as many As [at] the ends as possible"
    alphabet, length, mode_threshold = Alphabet("AB"), 4, 0.9
    def score(self, tokens):
        return ((tokens[:, 0] == 0).double() + (tokens[:, -1] == 0).double()) / 2

def other(): return 3
def broken(): raise RuntimeError("no licence\\nfound")
class Bare(Task):
    def score(self, tokens): return tokens
"""
POINTS = """[stochflow.tasks]
ends = tiny_tasks:Ends
no-task = tiny_tasks:other
broken = tiny_tasks:broken
absent = tiny_tasks:nothing
bare = tiny_tasks:Bare
tfbind8 = tiny_tasks:Ends
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution as pip leaves it: a module and its dist-info."""
    site = tmp_path / "site"
    info = site / "tiny_tasks-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "tiny_tasks.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-tasks\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "tiny_tasks", raising=False)
    return site


def test_a_task_of_another_package_is_trained_by_its_name(package: Path, tmp_path: Path) -> None:
    tiny = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=20")
    run = stochflow.train("ends", method="sgfn-db", steps=2, settings=tiny, out=tmp_path / "run")
    assert run.summary.task == "ends"
    assert run.summary.regret is not None
    assert run.sample(5)["sequence"].str.fullmatch("[AB]{4}").all()


def test_the_list_names_the_package_and_warns_of_what_is_broken(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cli.tasks()
    said = [str(warning.message) for warning in caught]
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if "as many As" in line] == ["ends"]
    assert "tiny-tasks" in out
    assert sum(f" {name} " in out for name in TASKS) == len(TASKS)
    assert len(said) == 4
    assert all("tiny-tasks" in sentence and "\n" not in sentence for sentence in said)
    assert any("RuntimeError: no licence found" in sentence for sentence in said)
    assert any("returned int" in sentence for sentence in said)
    assert any("'absent'" in sentence for sentence in said)
    assert any("'bare'" in sentence for sentence in said)


def test_a_name_of_this_package_cannot_be_taken(package: Path) -> None:
    assert make_task("tfbind8").length == 8
    assert "tfbind8" not in other_tasks()


@pytest.mark.parametrize("name", ["no-task", "broken", "absent", "bare"])
def test_a_broken_task_is_refused_with_its_package(package: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="of the package tiny-tasks cannot be used"):
        make_task(name)


def test_an_unknown_name_lists_the_others_too(package: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown task 'end'; choose one of: tfbind8.*ends"):
        make_task("end")
