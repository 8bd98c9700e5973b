"""Rivals are ordinary methods: same budget, same files, same judgement."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stochflow
from stochflow.cli.render import progress_line
from stochflow.config.methods import METHODS
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task

RIVALS = [name for name, method in METHODS.items() if not method.objective.shareable]
TRAINED = [name for name in RIVALS if name != "gfn-al"]  # gfn-delta-cs with another δ
SMALL = (
    *("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=50"),
    *("dynamics.rounds=2", "dynamics.sample_size=64"),
)


class Long(Task):
    """Thirty letters: too many sequences to list."""

    name = "long"
    alphabet = Alphabet("ABCD")
    length = 30
    mode_threshold = 0.5
    description = "share of As"

    def score(self, tokens: Tensor) -> Tensor:
        return (tokens == 0).double().mean(dim=-1)


def train(path: Path, method: str, **arguments: Any) -> stochflow.Run:
    given = {"task": "bits:8,2", "trajectories": 70, **arguments}  # 256 designs
    return stochflow.train(method=method, settings=SMALL, out=path, **given)


def test_every_rival_has_a_method_of_its_name() -> None:
    assert sorted(RIVALS) == [
        "adalead",
        "genetic",
        "gfn-al",
        "gfn-delta-cs",
        "gfn-ls",
        "kmer-plan",
        "mars",
        "mcmc",
        "ppo",
        "random",
        "sac",
        "soft-q",
    ]
    baselines = [name for name in RIVALS if not name.startswith("gfn")]
    assert all(METHODS[name].objective.kind == name for name in baselines)
    assert all(METHODS[name].reference for name in RIVALS)


@pytest.mark.parametrize("method", TRAINED)
def test_a_run_is_judged_again_from_its_files(method: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", method)
    assert (run.summary.trajectories, run.summary.steps) == (70, 5)  # four batches of 16 and the 6 that are left
    assert 0 < run.summary.oracle_calls <= 70
    assert run.evaluate() == run.summary
    noisier = run.evaluate(noise=0.9).mean_score
    if method == "random":  # slips change nothing where every intention is as likely
        assert noisier == pytest.approx(run.summary.mean_score)
    else:
        assert abs(noisier - run.summary.mean_score) > 1e-6
    designs = run.sample(30, unique=True)
    assert list(designs.columns) == ["sequence", "intended", "score", "log_reward", "log_prob"]
    assert designs["sequence"].is_unique
    assert bool((designs["log_prob"] < 0).all())
    assert run.sample(10, seed=3).equals(run.sample(10, seed=3))


@pytest.mark.parametrize("method", TRAINED)
def test_the_same_seed_gives_the_same_run_and_another_one_does_not(method: str, tmp_path: Path) -> None:
    same = [train(tmp_path / str(number), method, seed=number // 2, trajectories=32) for number in range(3)]
    states = [run.directory.load_checkpoint() for run in same]
    for name, tensor in states[0].items():
        assert name == "counters" or torch.equal(states[1][name], tensor), name
    assert not torch.equal(states[2]["replay.outcomes"], states[0]["replay.outcomes"])


@pytest.mark.parametrize("method", TRAINED)
def test_a_task_that_cannot_be_listed_can_still_be_trained_and_sampled(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "long", Long)
    run = train(tmp_path / "run", method, task="long", trajectories=40)
    assert run.summary.regret is None
    assert run.evaluate() == run.summary
    assert len(run.sample(5)) == 5


def test_the_command_line_shows_progress_without_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line("trajectories") as listen:
        listen({"trajectories": 512.0, "regret": 0.5}, 0.5)
    shown = capsys.readouterr().err
    assert "512 trajectories" in shown
    assert "loss" not in shown
