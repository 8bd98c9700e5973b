"""Local search: kept prefixes are intended again, the better of two designs stays, and all of them are trained on."""

from typing import Any

import pytest
import torch

from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.objectives.local_search import LocalSearchBalance
from stochflow.training.trainer import Trainer

SMALL: dict[str, Any] = {
    "method": "gfn-ls",
    "task": "tfbind8",
    "channel": {"noise": 0.0},
    "model": {"width": 16},
    "optimiser": {"batch_size": 32, "updates": 2},
    "search": {"rounds": 2, "cut": 0.4},
    "exploration": {"epsilon": 0.5},
    "budget": {"steps": 6},
}


def make_trainer(**overrides: Any) -> tuple[Trainer, LocalSearchBalance]:
    trainer = build(resolve_config([SMALL, overrides])).trainer
    assert isinstance(trainer.objective, LocalSearchBalance)
    return trainer, trainer.objective


def newest(trainer: Trainer) -> torch.Tensor:
    return trainer.learner.replay.newest(32).long()


def test_a_rebuild_intends_the_first_letters_again_and_the_policy_writes_the_last() -> None:
    trainer, objective = make_trainer()
    trainer.train_step()
    before = objective.designs
    trainer.train_step()
    same = newest(trainer) == before
    assert bool(same[:, :4].all())  # of eight letters, four are at least 0.4 of them
    assert 0.1 < float(same[:, 4:].double().mean()) < 0.5


def test_what_came_is_intended_again_in_a_noisy_world() -> None:
    trainer, objective = make_trainer(channel={"noise": 0.5})
    trainer.train_step()
    intended, came = newest(trainer), objective.designs
    assert not torch.equal(intended, came)
    trainer.train_step()
    assert torch.equal(newest(trainer)[:, :4], came[:, :4])


def test_the_better_design_stays() -> None:
    trainer, objective = make_trainer()
    trainer.train_step()
    before = objective.designs, objective.scores
    trainer.train_step()
    rebuilt = newest(trainer)
    scores = trainer.learner.memory.lookup(rebuilt)
    better = scores >= before[1]
    assert 0 < int(better.sum()) < 32
    assert torch.equal(objective.scores, torch.maximum(scores, before[1]))
    assert torch.equal(objective.designs, torch.where(better.unsqueeze(-1), rebuilt, before[0]))


def test_fresh_designs_follow_after_all_rebuilds_and_everything_is_paid_for() -> None:
    trainer, objective = make_trainer()
    left = []
    for _ in range(6):
        trainer.train_step()
        left.append(objective.num_left)
    assert left == [2, 1, 0, 2, 1, 0]
    designs = trainer.learner.replay.sample(1000, torch.Generator().manual_seed(0)).outcomes
    assert trainer.calls == len(trainer.learner.memory) > 32
    assert not bool(trainer.learner.memory.lookup(designs).isnan().any())


def test_without_rebuilds_it_is_trajectory_balance() -> None:
    searching, _ = make_trainer(search={"rounds": 0})
    plain = build(resolve_config([SMALL, {"method": "gfn-tb"}])).trainer
    for _ in range(2):
        assert searching.train_step()["loss"] == plain.train_step()["loss"]


@pytest.mark.parametrize("num", [20, 40])
def test_a_batch_of_another_size_can_be_rebuilt(num: int) -> None:
    trainer, objective = make_trainer()
    trainer.train_step()
    allowed = objective.sampler(num).allowed()
    assert allowed is not None
    kept = min(num, 32)
    assert allowed.sum(dim=-1).tolist() == [1] * kept + [4] * (num - kept)
