"""The one loop: what a step does, what stops it, and what it leaves behind."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow import api
from stochflow.core.errors import NumericsError, OracleError
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.experiments import build as experiment
from stochflow.experiments import launch
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import run
from stochflow.objectives.base import Terms
from stochflow.runs.directory import RunDirectory
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.optimizer import Record, learning_rate_factor

TINY = {
    "method": "sgfn-db",
    "model": {"width": 16},
    "optimiser": {"batch_size": 16, "updates": 2},
    "evaluation": {"num_samples": 20, "every": 1},
    "checkpoint_every": 0.01,
    "budget": {"steps": 4},
}


def build(**overrides: Any) -> Experiment:
    return experiment.build(launch.resolve_config([TINY, overrides]))


def train(trained: Experiment) -> list[Record]:
    records = []
    while not trained.trainer.finished:
        records.append(trained.trainer.train_step())
    return records


def without_seconds(records: list[Record]) -> list[Record]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def run_until_it_fails(trained: Experiment, path: Path) -> RunDirectory:
    """Train into a directory and let the error out; the directory comes back with it."""
    directory = RunDirectory.create(path, trained.config, overwrite=False)
    run(trained, directory, lambda record, progress: None, lambda: False)
    return directory


def assert_loadable_and_finite(path: Path, step: int) -> None:
    state = RunDirectory.open(path).load_checkpoint()
    assert int(state["counters"][0]) == step
    for name, tensor in state.items():
        assert not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), name
    restored = api.load(path).experiment()
    assert restored.trainer.step == step
    assert math.isfinite(restored.trainer.train_step()["loss"])


def test_the_first_step_already_learns_and_the_learning_rate_is_the_one_logged() -> None:
    trained = build(budget={"steps": 4}, optimiser={"learning_rate": 0.1, "warmup": 0.5})
    rates = [record["learning_rate"] for record in train(trained)]
    # taken at the middle of each quarter of the budget
    expected = [0.1 * learning_rate_factor(progress, 0.5) for progress in (0.125, 0.375, 0.625, 0.875)]
    assert rates == pytest.approx(expected)
    assert rates[0] > 0


@pytest.mark.parametrize(
    ("budget", "batch_size", "expected"),
    [
        ({"trajectories": 40}, 16, [16, 32, 40]),
        ({"trajectories": 32}, 16, [16, 32]),
        ({"trajectories": 1}, 16, [1]),
        ({"steps": 3}, 5, [5, 10, 15]),
        ({"minutes": 1e-9}, 4, [4]),
    ],
)
def test_a_budget_is_met_exactly(budget: dict[str, float], batch_size: int, expected: list[int]) -> None:
    trained = build(budget=budget, optimiser={"batch_size": batch_size})
    assert [record["trajectories"] for record in train(trained)] == expected
    assert trained.trainer.progress == 1.0
    assert trained.trainer.learner.replay.num_added == expected[-1]


def test_every_score_is_paid_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    paid: list[tuple[int, ...]] = []
    score = TFBind8.score

    def counted(self: TFBind8, tokens: Tensor) -> Tensor:
        paid.extend(map(tuple, tokens.tolist()))
        return score(self, tokens)

    monkeypatch.setattr(TFBind8, "score", counted)
    # a single letter is intended without noise: the same sequence again and again
    trained = build(channel={"kind": "none"}, exploration={"epsilon": 0.0})
    with torch.no_grad():
        trained.network.policy_head.bias += torch.tensor([20.0, 0.0, 0.0, 0.0])
    records = train(trained)
    assert len(paid) == len(set(paid)) == records[-1]["oracle_calls"] < records[-1]["trajectories"]


def test_a_record_holds_the_mean_of_every_term_over_the_updates() -> None:
    trained = build(budget={"steps": 1}, optimiser={"updates": 3})
    losses: list[float] = []
    updates = trained.trainer.objective.updates

    def recorded(fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for terms in updates(fresh, step, progress):
            losses.append(float(terms["loss"]))
            yield terms

    trained.trainer.objective.updates = recorded  # type: ignore[method-assign]
    record = trained.trainer.train_step()
    assert len(losses) == 3
    assert record["loss"] == pytest.approx(sum(losses) / 3)
    assert losses[0] != losses[1] != losses[2]


def test_the_first_batch_says_how_often_intentions_come() -> None:
    trained = build(budget={"steps": 1}, channel={"noise": 0.1}, dynamics={"learning_rate": 1e-9, "rounds": 1})
    record = trained.trainer.train_step()
    floor = float(trained.environment.channel.entropies().mean())
    assert record["forward_dynamics_loss"] == pytest.approx(floor, abs=0.1)
    assert floor < 0.5 < math.log(4)


def test_the_dynamics_optimiser_really_steps_towards_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.models.dynamics.tabular.DynamicsModel.untouched", False)
    trained = build(budget={"steps": 20}, channel={"noise": 0.1}, dynamics={"learning_rate": 0.2, "rounds": 1})
    before = [parameter.clone() for parameter in trained.trainer.learner.dynamics.parameters()]
    losses = [record["forward_dynamics_loss"] for record in train(trained)]
    after = list(trained.trainer.learner.dynamics.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    floor = float(trained.environment.channel.entropies().mean())
    # from the uniform P̂ most of the way down to the entropy of the channel
    assert losses[0] == pytest.approx(math.log(4), abs=1e-6)
    assert losses[-1] < floor + 0.3 * (math.log(4) - floor)


def test_counting_in_smaller_blocks_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def learned(limit: int) -> tuple[list[Record], list[Tensor]]:
        monkeypatch.setattr("stochflow.training.dynamics_fitter._MAX_COUNTS", limit)
        trained = build(dynamics={"rounds": 5, "sample_size": 32})
        return without_seconds(train(trained)), list(trained.trainer.learner.dynamics.parameters())

    records, tables = learned(2**22)
    for limit in (1, 2 * 8 * 32):
        other_records, other_tables = learned(limit)
        assert other_records == records
        assert all(map(torch.equal, tables, other_tables))


def test_known_dynamics_are_not_trained() -> None:
    trained = build(dynamics={"kind": "known"})
    assert all("forward_dynamics_loss" not in record for record in train(trained))
    assert torch.equal(
        trained.trainer.learner.dynamics.log_matrices(torch.zeros(1, 8))[0],
        trained.environment.channel.log_matrices(8).float(),
    )


def test_dynamics_fitted_to_replay_differ_from_those_fitted_to_fresh_batches() -> None:
    def fitted(**dynamics: Any) -> list[Tensor]:
        trained = build(dynamics=dynamics)
        train(trained)
        return [parameter.detach() for parameter in trained.trainer.learner.dynamics.parameters()]

    on_policy = fitted(off_policy=False)
    for other in (fitted(off_policy=True), fitted(off_policy=True, rounds=1, sample_size=16)):
        assert all(not torch.equal(left, right) for left, right in zip(on_policy, other, strict=True))
    # without replay there is one update per step, whatever the number of rounds
    assert all(map(torch.equal, on_policy, fitted(off_policy=False, rounds=3, sample_size=7)))


def test_the_same_seed_gives_the_same_metrics_whatever_the_global_state() -> None:
    torch.manual_seed(1)
    first = without_seconds(train(build()))
    torch.manual_seed(2)
    assert without_seconds(train(build())) == first
    other = without_seconds(train(build(seed=1)))
    assert other[0]["batch_score"] != first[0]["batch_score"]


def test_looking_more_often_changes_no_weight(tmp_path: Path) -> None:
    def weights(name: str, every: float) -> Tensor:
        trained = build(evaluation={"every": every})
        run_until_it_fails(trained, tmp_path / name)
        return torch.cat([weight.flatten() for weight in trained.network.parameters()])

    assert torch.equal(weights("seldom", 1.0), weights("often", 0.01))


def test_a_loss_that_stops_being_finite_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    trained = build()
    updates = trained.trainer.objective.updates

    def broken(fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for terms in updates(fresh, step, progress):
            yield terms | ({"log_flow_mean": torch.tensor(math.nan)} if step == 2 else {})

    trained.trainer.objective.updates = broken  # type: ignore[method-assign]
    with pytest.raises(NumericsError, match=r"'log_flow_mean' became nan; the last good checkpoint is kept"):
        run_until_it_fails(trained, tmp_path / "run")
    assert RunDirectory.open(tmp_path / "run").metrics()["step"].tolist() == [1, 2]
    assert_loadable_and_finite(tmp_path / "run", step=2)


@pytest.mark.parametrize(("updates", "checkpoint_every"), [(1, 0.01), (2, 0.01), (1, 1.0)])
def test_weights_that_blow_up_never_reach_a_checkpoint(updates: int, checkpoint_every: float, tmp_path: Path) -> None:
    # one Adam step at this rate leaves the range of float32
    optimiser = {"learning_rate": 1e39, "updates": updates, "warmup": 0.0}
    trained = build(optimiser=optimiser, checkpoint_every=checkpoint_every)
    with pytest.raises(NumericsError):
        run_until_it_fails(trained, tmp_path / "run")
    state = RunDirectory.open(tmp_path / "run").load_checkpoint()
    assert int(state["counters"][0]) == 0
    for name, tensor in state.items():
        assert not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), name


def test_a_numerics_error_names_a_remedy_and_leaves_a_sampler_behind(tmp_path: Path) -> None:
    trained = build(optimiser={"learning_rate": 1e39, "warmup": 0.0})
    with pytest.raises(NumericsError, match=r"train again with a lower optimiser\.learning_rate"):
        run_until_it_fails(trained, tmp_path / "run")
    assert len(api.sample(tmp_path / "run", 5)) == 5


ANSWERS: dict[str, Callable[[Tensor], object]] = {
    "nan": lambda scores: torch.full_like(scores, math.nan),
    "infinite": lambda scores: torch.full_like(scores, math.inf),
    "negative": lambda scores: scores - 2.0,
    "too few": lambda scores: scores[1:],
    "too many": lambda scores: scores.repeat(2),
    "a column": lambda scores: scores.unsqueeze(-1),
    "one number": lambda scores: scores.mean(),
    "text": lambda scores: "high",
    "nothing": lambda scores: None,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_oracle_that_fails_is_reported_and_nothing_is_lost(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = TFBind8.score
    calls = iter(range(3))

    def failing(self: TFBind8, tokens: Tensor) -> object:
        scores = score(self, tokens)
        return scores if next(calls, None) is not None else ANSWERS[answer](scores)

    trained = build()
    monkeypatch.setattr(trained.trainer, "measure", failing.__get__(trained.environment.task))
    with pytest.raises(OracleError, match=r"the oracle (returned|must return) .*(score|repair)"):
        run_until_it_fails(trained, tmp_path / "run")
    trainer = trained.trainer
    assert (trainer.step, trainer.trajectories, trainer.learner.replay.num_added) == (3, 48, 48)
    assert len(trainer.learner.memory) == len(trainer.learner.memory.trie) <= 48
    assert bool(torch.isfinite(trainer.learner.memory.scores).all())
    assert RunDirectory.open(tmp_path / "run").metrics()["step"].tolist() == [1, 2, 3]
    assert_loadable_and_finite(tmp_path / "run", step=3)


def test_the_task_is_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TFBind8, "score", lambda self, tokens: torch.full((len(tokens),), math.nan))
    with pytest.raises(OracleError, match="returned nan for 16 of 16 sequences; scores must be neither"):
        build(seed=3).trainer.train_step()
