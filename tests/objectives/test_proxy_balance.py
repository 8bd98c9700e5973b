"""Trajectory balance on a proxy: which letters are drawn anew, which designs are paid for, and what is learned from."""

from typing import Any

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.objectives.proxy_balance import ProxyBalance, rank_weights
from stochflow.training.trainer import Trainer

SMALL: dict[str, Any] = {
    "method": "gfn-delta-cs",
    "task": "tfbind8",
    "channel": {"noise": 0.0},
    "model": {"width": 16},
    "optimiser": {"batch_size": 32, "updates": 4},
    "exploration": {"epsilon": 0.0},
    "search": {"candidates": 4},
    "budget": {"steps": 4},
}


def after_one_round(**overrides: Any) -> tuple[Trainer, ProxyBalance]:
    trainer = build(resolve_config([SMALL, overrides])).trainer
    assert isinstance(trainer.objective, ProxyBalance)
    trainer.train_step()
    return trainer, trainer.objective


def test_weights_fall_with_the_rank_and_not_with_the_score() -> None:
    scores = torch.tensor([5.0, 1e9, 0.0])
    expected = torch.tensor([1 / 1.03, 1 / 0.03, 1 / 2.03], dtype=torch.float64)
    torch.testing.assert_close(rank_weights(scores), expected)


def test_a_masked_share_of_the_letters_is_drawn_anew_from_paid_designs() -> None:
    trainer, objective = after_one_round(search={"delta": 0.25})
    walk = objective.walk(400)
    paid = trainer.learner.memory.sequences
    differences = (walk.outcomes[:, None] != paid).sum(dim=-1).amin(dim=1)
    # of 8 letters 2 are masked on average, and 3 of 4 draws are another letter
    assert float(differences.double().mean()) == pytest.approx(1.5, abs=0.3)
    assert trainer.calls <= 32  # walks cost nothing


def test_the_best_designs_are_masked_most_often() -> None:
    trainer, objective = after_one_round(search={"delta": 1e-9})
    memory = trainer.learner.memory
    drawn = memory.lookup(objective.walk(400).outcomes)
    assert not bool(drawn.isnan().any())
    assert float(drawn.mean()) > float(memory.scores.mean())


def test_active_learning_masks_everything() -> None:
    _, objective = after_one_round(method="gfn-al")
    assert objective.delta == 1.0
    _, conservative = after_one_round()
    assert conservative.delta == 0.5


def test_calls_are_new_designs_that_the_proxy_prefers() -> None:
    trainer, objective = after_one_round(search={"delta": 0.1})  # so that paid designs come up again
    memory, state = trainer.learner.memory, objective._generator.get_state()
    calls = objective.next_calls(16)
    assert len(calls.unique(dim=0)) == 16
    assert bool(memory.lookup(calls).isnan().all())
    objective._generator.set_state(state)
    walked = torch.cat([objective.walk(16).outcomes for _ in range(4)])
    unpaid = walked[memory.lookup(walked).isnan()].unique(dim=0)
    best = objective.predicted(unpaid).sort(descending=True).values[:16]
    torch.testing.assert_close(objective.predicted(calls), best)


def test_chosen_designs_are_intended_and_counted() -> None:
    trainer, objective = after_one_round(channel={"noise": 0.5}, exploration={"epsilon": 0.9})
    generator = objective._generator
    state, before = generator.get_state(), trainer.calls
    calls = objective.next_calls(32)
    generator.set_state(state)
    trainer.collect()
    assert torch.equal(trainer.learner.replay.newest(32).long(), calls)
    assert before < trainer.calls <= before + 32


def test_a_free_design_scores_the_bound_of_the_proxy() -> None:
    _, objective = after_one_round(search={"kappa": 2.0})
    walk = objective.walk(8)
    prediction = objective.surrogate.predict(walk.outcomes)
    torch.testing.assert_close(objective.predicted(walk.outcomes), prediction.at(2.0))
    assert bool((objective.predicted(walk.outcomes) > prediction.mean).all())


def test_what_breaks_a_constraint_is_predicted_to_score_nothing() -> None:
    _, objective = after_one_round(constraints={"forbid": ["AA"]})
    designs = torch.tensor([[0, 0, 1, 2, 3, 1, 2, 3], [0, 1, 0, 2, 3, 1, 2, 3]])
    assert (objective.predicted(designs) > 0).tolist() == [False, True]


def test_free_walks_go_through_the_learned_channel_where_the_intended_path_is_balanced() -> None:
    settings = {"channel": {"noise": 0.5}, "dynamics": {"kind": "known"}}
    _, blind = after_one_round(**settings)
    _, seeing = after_one_round(**settings, objective={"path": "intended"})
    slips = [float((walk.intentions != walk.outcomes).double().mean()) for walk in (blind.walk(200), seeing.walk(200))]
    assert slips[0] == 0.0
    assert slips[1] == pytest.approx(0.5 * 3 / 4, abs=0.06)


def test_a_channel_that_sees_the_prefix_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set dynamics\.depends_on to position"):
        after_one_round(objective={"path": "intended"}, dynamics={"depends_on": "state"})
