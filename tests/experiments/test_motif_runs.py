"""Runs on promoters: with shipped matrices, and with a user's own, which a run keeps."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stochflow
from stochflow.cli.app import app
from stochflow.config.yaml import parse_assignment
from stochflow.core.errors import ConfigError
from stochflow.environments.factory import configure
from stochflow.environments.settings import resolve_layers
from stochflow.reports.commands import train_command

SMALL: dict[str, Any] = {"model": {"width": 16, "num_layers": 1}, "optimiser": {"batch_size": 16}}
MATRIX = "A,C,G,T\n0.9,0.05,0.05,0\n0,0,1,0\n0.1,0.1,0.1,0.7\n"


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(MATRIX, encoding="utf-8")
    return path


def run(matrix: Path, **given: Any) -> stochflow.Run:
    settings = {"length": 14, "motif_matrix": matrix, "trajectories": 32, "config": SMALL, "out": matrix.parent / "run"}
    return stochflow.train(**settings | given)


def test_a_run_knows_the_optimum_of_a_space_that_nobody_can_enumerate(matrix: Path) -> None:
    summary = run(matrix, noise=0.2).summary
    expected = stochflow.exact(motif_matrix=matrix, length=14, noise=0.2)
    assert summary.task == expected["task"] == "motifs:mine,14"
    assert (expected["beta"], expected["floor"], expected["min_tv"]) == (60.0, 1e-40, None)
    assert 0.0 < expected["min_kl"] < expected["log_z_true"]
    for name in ("min_kl", "log_z_true", "attainable_score"):
        assert getattr(summary, name) == pytest.approx(expected[name], abs=1e-9)


def test_a_run_keeps_its_matrices_and_refuses_others(matrix: Path) -> None:
    before = run(matrix)
    matrix.unlink()
    again = stochflow.load(before.path)
    assert again.evaluate().min_kl == pytest.approx(before.summary.min_kl)
    assert again.sample(3)["sequence"].str.len().tolist() == [14, 14, 14]
    matrix.write_text(MATRIX.replace("0,0,1,0", "0,1,0,0"), encoding="utf-8")
    with pytest.raises(ConfigError, match="started with another 'motifs'"):
        run(matrix, resume=True, trajectories=64)
    matrix.write_text(MATRIX, encoding="utf-8")
    assert run(matrix, resume=True, trajectories=64).summary.trajectories == 64


def test_the_command_that_makes_a_run_again_has_its_matrices(matrix: Path) -> None:
    layers = [{"task": "motif-matrix", "motifs": {"file": str(matrix), "length": 12}}]
    config = configure(resolve_layers(layers)).config
    words = shlex.split(train_command(config, "run"))
    given = [parse_assignment(word) for flag, word in itertools.pairwise(words) if flag == "--set"]
    again = resolve_layers([{"task": words[2]}, *given])
    assert (again.motifs, again.reward) == (config.motifs, config.reward)


def test_the_command_prints_the_optimum_of_shipped_matrices() -> None:
    done = CliRunner().invoke(app, ["exact", "motifs:MAX+TBP,20", "--noise", "0.1"])
    assert done.exit_code == 0
    assert "motifs:MAX+TBP,20" in done.stdout
    told = json.loads(CliRunner().invoke(app, ["exact", "motifs:MAX+TBP,20", "--noise", "0.1", "--json"]).stdout)
    assert f"{told['log_z_true']:.4f}" in done.stdout
    assert f"{told['min_kl']:.5f}" in done.stdout


def test_a_space_that_can_be_enumerated_is(matrix: Path) -> None:
    found = stochflow.exact(motif_matrix=matrix, length=4, noise=0.2)
    assert found["min_tv"] is not None
    assert len(found["infeasible_share"]) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"length": None}, "give a --length"),
        ({"length": 2}, "has 3 columns"),
        ({"task": "tfbind8"}, "there are motif matrices, but the task is 'tfbind8'"),
        ({"table": "scores.csv"}, "there are motif matrices, but the task is 'table'"),
        ({"motif_matrix": None}, "a name or a length of motif matrices is given, but no file"),
        ({"motif_matrix": None, "settings": ["motifs.factors=[a]"]}, "1 names do not fit 0 matrices"),
        ({"motif_matrix": None, "task": "motif-matrix"}, "the task 'motif-matrix' needs a file"),
    ],
)
def test_what_does_not_fit_together_is_refused(matrix: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stochflow.exact(**{"motif_matrix": matrix, "length": 14} | given)
    assert words in str(caught.value)
