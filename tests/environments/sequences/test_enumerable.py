"""What must hold on every task that can be enumerated."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from stochflow.environments.factory import configure
from stochflow.environments.registry import TASKS, make_task
from stochflow.evaluation.samples import draw
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.truth.prefix_tree import kl_to_target
from stochflow.truth.truth import SequenceTruth

# small and hardly trained: the laws below hold for any policy
TINY = {
    "model": {"kmers": [1], "width": 8, "num_layers": 0},
    "optimiser": {"batch_size": 64, "updates": 2, "replay_size": 64},
    "dynamics": {"rounds": 1},
    "budget": {"steps": 2},
}
NUM_DRAWS = 4000


NAMED = [name for name in TASKS if make_task(name).enumerable]
TRAINED = [name for name in NAMED if not name.startswith("tfbind8:")]  # tfbind8 with other scores
# sequences of one to four letters, and the edits of a channel
MIXED = "sequence,score\nA,0.1\nAB,0.9\nBA,0.2\nBB,0.4\nAAB,0.8\nBBA,0.3\nABAB,1.0\nBBBB,0.6\n"
EDITS = {
    "variable length": {},
    "deletions": {"deletion": 0.1},
    "duplications": {"duplication": 0.1},
    "both": {"deletion": 0.1, "duplication": 0.05},
}


def settings_of(name: str, folder: Path) -> dict[str, Any]:
    if name in NAMED:
        return {"task": name}
    path = folder / "mixed.csv"
    path.write_text(MIXED, encoding="utf-8")
    table = {"file": str(path), "alphabet": "AB", "gap_score": 0.0}
    return {"task": "table", "table": table, "lengths": {"variable": True}, "channel": EDITS[name]}


@pytest.fixture(scope="module", params=[*TRAINED, *EDITS])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    experiment = build(resolve_config([TINY, settings_of(request.param, tmp_path_factory.mktemp("table"))]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment


@pytest.fixture(scope="module")
def truth(trained: Experiment) -> SequenceTruth:
    assert isinstance(trained.truth, SequenceTruth)
    return trained.truth


@pytest.fixture(scope="module")
def log_probs(trained: Experiment, truth: SequenceTruth) -> torch.Tensor:
    return truth.log_probs(trained.policy)


def test_the_exact_distribution_sums_to_one(trained: Experiment, truth: SequenceTruth, log_probs: torch.Tensor) -> None:
    assert len(log_probs) == len(truth.log_rewards) <= trained.environment.task.size
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(truth.attainable.log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-9)


def test_the_exact_distribution_agrees_with_sampling(
    trained: Experiment, truth: SequenceTruth, log_probs: torch.Tensor
) -> None:
    task = trained.environment.task
    sampled = draw(trained.policy, trained.environment, NUM_DRAWS, torch.Generator().manual_seed(0))
    powers = task.num_tokens ** torch.arange(task.length - 1, -1, -1)
    codes = (sampled.walk.outcomes * powers).sum(dim=-1)
    of_rows = trained.policy.terminal_log_probs(trained.environment)
    torch.testing.assert_close(of_rows[codes], sampled.log_probs.double(), atol=1e-3, rtol=0)
    designs = codes if truth.histories is None else truth.histories.numbers[codes]
    assert bool((designs >= 0).all())
    # the mean of any function of the sequence, here its score and its surprise, within five standard errors
    for values in (truth.scores, log_probs):
        mean = float(log_probs.exp() @ values)
        error = math.sqrt(float(log_probs.exp() @ (values - mean).square()) / NUM_DRAWS)
        assert float(values[designs].mean()) == pytest.approx(mean, abs=5 * error)


def test_no_policy_beats_the_optimum(trained: Experiment, truth: SequenceTruth) -> None:
    best = truth.attainable
    assert kl_to_target(best.log_probs, truth.log_rewards) == pytest.approx(best.min_kl, abs=1e-6)
    found = truth.evaluate(trained.policy)
    assert found["kl"] >= best.min_kl
    assert found["regret"] >= 0.0
    assert found["regret"] == pytest.approx(found["kl"] - best.min_kl)


@pytest.mark.parametrize("name", [*NAMED, *EDITS])
def test_scores_are_rewards_to_be(name: str, tmp_path: Path) -> None:
    task = configure(resolve_config([TINY, settings_of(name, tmp_path)])).environment.task
    assert bool(torch.isfinite(task.all_scores).all())
    assert 0.0 <= float(task.all_scores.min()) < task.mode_threshold < float(task.all_scores.max())
