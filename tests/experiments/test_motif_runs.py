"""Runs on promoters: with shipped matrices, and with a user's own, which a run keeps."""

import itertools
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stochflow
from stochflow.cli.app import app
from stochflow.config.yaml import parse_assignment
from stochflow.core.errors import ConfigError
from stochflow.environments.factory import configure
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.settings import resolve_layers
from stochflow.experiments.build import build
from stochflow.experiments.experiment import summarise
from stochflow.reports.commands import train_command
from stochflow.truth.automaton import automaton_reward
from stochflow.truth.truth import AutomatonTruth

SMALL: dict[str, Any] = {
    "model": {"width": 16, "num_layers": 1},
    "optimiser": {"batch_size": 16, "updates": 4},
    "imagination": {"updates": 2, "rows": 16, "num_chains": 8, "moves": 5},
}
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


def test_the_command_prints_a_regret_with_its_standard_error(tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = ["model.width=16", "model.num_layers=1", "optimiser.batch_size=128", "optimiser.updates=4"]
    told = [word for setting in settings for word in ("--set", setting)]
    command = [
        "train",
        "motifs:GATA1+SP1,30",
        "--trajectories",
        "512",
        "--method",
        "sgfn-tb",
        "--noise",
        "0.1",
        "--all",
    ]
    done = CliRunner().invoke(app, [*command, *told, "--out", str(out)])
    assert done.exit_code == 0
    found = stochflow.load(out)
    end = found.summary.model_dump()
    assert end["kl"] == pytest.approx(end["log_z_true"] - end["j"])
    assert end["regret"] == pytest.approx(end["kl"] - end["min_kl"])
    assert end["regret_se"] == end["j_se"] > 0.0
    assert re.search(rf"regret +│ +{end['regret']:.5g} ± {end['regret_se']:.2g} ", done.stdout)
    first, *_, last = found.metrics.to_dict("records")
    assert first["start_regret"] == pytest.approx(end["log_z_true"] - first["start_j"] - end["min_kl"])
    assert last["regret"] == pytest.approx(end["log_z_true"] - last["j"] - end["min_kl"])
    assert last["regret_se"] == last["j_se"] > end["j_se"]


def test_the_regret_by_an_automaton_is_that_of_the_whole_tree(matrix: Path) -> None:
    layers = [{"task": "motif-matrix", "motifs": {"file": str(matrix), "length": 5}, "budget": {"steps": 4}}, SMALL]
    experiment = build(configure(resolve_layers(layers)).config).train()
    environment, reward = experiment.environment, experiment.trainer.learner.reward
    assert isinstance(environment, SequenceEnvironment)
    assert environment.task.automaton is not None
    rewards = automaton_reward(environment.task.automaton, reward, 5)
    assert rewards is not None
    exact, _ = summarise(experiment)
    found, _ = summarise(replace(experiment, truth=AutomatonTruth(environment, reward, rewards)))
    assert (exact.regret_se, found.tv) == (None, None)
    assert found.regret_se is not None
    assert found.regret == pytest.approx(exact.regret, abs=4.0 * found.regret_se)
    assert found.kl == pytest.approx(exact.kl, abs=4.0 * found.regret_se)
    assert found.regret_se < 0.1 * float(str(exact.regret))


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
