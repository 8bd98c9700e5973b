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


def after_one_batch(**overrides: Any) -> tuple[Trainer, LocalSearchBalance, torch.Tensor]:
    """A trainer that has drawn one batch, and which rows of the next are rebuilt."""
    trainer, objective = make_trainer(**overrides)
    trainer.train_step()
    return trainer, objective, objective.rebuilt(32)


def test_a_rebuild_intends_the_first_letters_again_and_the_policy_writes_the_last() -> None:
    trainer, objective, rebuilt = after_one_batch()
    before = objective.designs
    trainer.train_step()
    same = newest(trainer) == before
    assert bool(same[rebuilt, :4].all())  # of eight letters, four are at least 0.4 of them
    assert 0.1 < float(same[rebuilt, 4:].double().mean()) < 0.5
    assert 0.1 < float(same[~rebuilt].double().mean()) < 0.5


def test_what_came_is_intended_again_in_a_noisy_world() -> None:
    trainer, objective, rebuilt = after_one_batch(channel={"noise": 0.5})
    intended, came = newest(trainer), objective.designs
    assert not torch.equal(intended, came)
    trainer.train_step()
    assert torch.equal(newest(trainer)[rebuilt, :4], came[rebuilt, :4])


def test_the_better_design_stays_and_a_fresh_one_always_does() -> None:
    trainer, objective, rebuilt = after_one_batch()
    before, scores_before = objective.designs, objective.scores
    trainer.train_step()
    made = newest(trainer)
    scores = trainer.learner.memory.lookup(made)
    taken = (scores >= scores_before) | ~rebuilt
    assert 0 < int(taken[rebuilt].sum()) < int(rebuilt.sum())
    assert bool((scores < scores_before)[~rebuilt].any())
    assert torch.equal(objective.scores, torch.where(taken, scores, scores_before))
    assert torch.equal(objective.designs, torch.where(taken.unsqueeze(-1), made, before))


def test_rows_take_turns_with_fresh_designs_and_everything_is_paid_for() -> None:
    trainer, objective = make_trainer()
    fresh = []
    for _ in range(4):
        fresh.append((~objective.rebuilt(32)).nonzero().flatten().tolist())
        trainer.train_step()
    assert fresh == [list(range(32)), list(range(2, 32, 3)), list(range(1, 32, 3)), list(range(0, 32, 3))]
    assert trainer.trajectories == 4 * 32
    designs = trainer.learner.replay.sample(500, torch.Generator().manual_seed(0)).outcomes
    assert trainer.calls == len(trainer.learner.memory) == len(designs.unique(dim=0))


def test_without_rebuilds_it_is_trajectory_balance() -> None:
    searching, _ = make_trainer(search={"rounds": 0})
    plain = build(resolve_config([SMALL, {"method": "gfn-tb"}])).trainer
    for _ in range(2):
        assert searching.train_step()["loss"] == plain.train_step()["loss"]


@pytest.mark.parametrize("num", [20, 40])
def test_a_batch_of_another_size_can_be_rebuilt(num: int) -> None:
    _, objective, _ = after_one_batch()
    rebuilt = objective.rebuilt(num)
    allowed = objective.sampler(num).allowed()
    assert allowed is not None
    assert torch.equal(allowed.sum(dim=-1), torch.where(rebuilt, 1, 4))
    assert not bool(rebuilt[32:].any())
