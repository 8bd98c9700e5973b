"""`stochflow pretrain`, and `stochflow train --from`."""

import shutil
from pathlib import Path

import pytest

import stochflow
from stochflow.environments.registry import TASKS
from tests.cli.conftest import Stochflow
from tests.training.conditional.favourites import Favourite

SMALL = [
    *("--set", "model.width=16", "--set", "pretraining.support_size=20", "--set", "pretraining.context_width=8"),
    *("--set", "evaluation.num_samples=20"),
]
TINY = ["--set", "optimiser.batch_size=16", "--set", "optimiser.updates=2", "--set", "evaluation.num_samples=20"]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three small tasks."""
    for letter in range(3):
        monkeypatch.setitem(TASKS, f"favourite-{letter}", lambda letter=letter: Favourite(letter))


def test_pretrain_then_train_from_it(run_cli: Stochflow) -> None:
    pretrain = ["pretrain", "--tasks", "favourite-0,favourite-1", "--noise", "0.2", "--steps", "20", *SMALL]
    code, out, err = run_cli(*pretrain, "--out", "runs/many")
    assert (code, "regret" in out, "20 steps" in err) == (0, True, True)
    assert "Next: stochflow train TASK --from runs/many --support N\n" in out
    assert run_cli(*pretrain, "--out", "runs/many")[0] == 2
    assert run_cli(*pretrain, "--out", "runs/many", "--overwrite")[0] == 0

    tune = ["train", "favourite-2", "--from", "runs/many", "--support", "24", "--trajectories", "32", *TINY]
    assert run_cli(*tune)[0] == 0
    path = Path("runs/favourite-2-sgfn-kl-0.2-seed0")  # the noise is that of the pre-training
    assert stochflow.load(path).summary.support == 24
    assert run_cli(*tune, "--resume")[0] == 0  # it is found by the same name
    shutil.rmtree("runs/many")
    for command in (["evaluate", str(path)], ["sample", str(path), "-n", "3"], ["doctor", str(path)]):
        assert run_cli(*command)[0] == 0


def test_a_run_without_a_name_goes_where_others_go(run_cli: Stochflow) -> None:
    assert run_cli("pretrain", "--tasks", "favourite-0", "--steps", "2", *SMALL)[0] == 0
    assert Path("runs/pretraining-conditional-kl-0.25-seed0/summary.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train tfbind8 --from runs/many", "give both or none"),
        ("train tfbind8 --support 256", "give both or none"),
        ("train tfbind8 --from runs/many --support 256", "runs/many is not a run directory"),
        ("train pretraining", "use `stochflow pretrain --tasks A,B`"),
        ("train --method conditional-kl", "use `stochflow pretrain --tasks A,B`"),
        ("pretrain", "name some with --tasks"),
        ("pretrain --tasks tfbind8:ARX,dmsc", "one alphabet and length"),
        ("pretrain --tasks tfbind9", "unknown task 'tfbind9'"),
        ("pretrain --tasks tfbind8 --steps 3 --resume --overwrite", "give one of them"),
        ("pretrain --tasks tfbind8 --noise dna-synthesis --steps 3", "set pretraining.relabelled to 0"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(words: str, sentence: str, run_cli: Stochflow) -> None:
    code, out, err = run_cli(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert not Path("runs").exists()
