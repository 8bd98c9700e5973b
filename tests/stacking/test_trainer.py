"""Runs advanced together end where they end alone."""

from typing import Any

import pytest
import torch

from stochflow.api import resolve_config
from stochflow.descent import Record
from stochflow.errors import NumericsError
from stochflow.experiment import build
from stochflow.stacking.trainer import StackedTrainer
from stochflow.trainer import Trainer

SEEDS = (0, 1, 2)
STEPS = 10
WIDE = {"task": "bits:8,4", "optimiser": {"batch_size": 16}}
BALANCES = ("gfn-tb", "gfn-db", "gfn-subtb", "sgfn-tb", "sgfn-db")


def make(method: str, seed: int, **settings: Any) -> Trainer:
    """A small run in float64, so that only a real difference shows."""
    optimiser = {"batch_size": 8, "updates": 1 if method == "sgfn-kl-trajectory" else 3, "clip": 1.0}
    common = {
        "task": "bits:8,2",
        "model": {"width": 16},
        "dynamics": {"rounds": 2, "sample_size": 16},
        "budget": {"trajectories": 300},
    }
    config = resolve_config([{"method": method, "seed": seed, "optimiser": optimiser}, common, settings])
    trainer = build(config).trainer
    trainer.learner.network.double()
    trainer.learner.dynamics.double()
    return trainer


def pairs(method: str, **settings: Any) -> tuple[list[Trainer], StackedTrainer]:
    alone = [make(method, seed, **settings) for seed in SEEDS]
    return alone, StackedTrainer([make(method, seed, **settings) for seed in SEEDS])


def assert_equal_runs(alone: Trainer, part: Trainer, atol: float = 1e-9) -> None:
    """The same letters drawn, the same generators, and weights within rounding."""
    assert torch.equal(alone.learner.memory.sequences, part.learner.memory.sequences)
    expected, found = alone.state_dict(), part.state_dict()
    assert set(expected) == set(found)
    for name in expected:
        if name == "counters":  # one of them is the time
            continue
        torch.testing.assert_close(
            found[name], expected[name], rtol=1e-8, atol=atol, msg=lambda text, at=name: f"{at}: {text}"
        )


def assert_equal_records(expected: Record, found: Record) -> None:
    assert list(expected) == list(found)
    for name in expected:
        if name != "seconds":
            assert found[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((method, {}) for method in (*BALANCES, "sgfn-kl-trajectory")),
        ("sgfn-db", {"objective": {"backward": "posterior"}, "exploration": {"epsilon": 0.2, "temperature": 1.5}}),
        ("sgfn-tb", {"objective": {"backward": "uniform", "loss": "linex"}, "dynamics": {"depends_on": "intention"}}),
        ("sgfn-db", {"dynamics": {"depends_on": "state"}}),
        ("sgfn-db", {"dynamics": {"off_policy": False}}),
        ("sgfn-db", {"model": {"kmers": [3, 1], "width": 16}}),
        ("sgfn-kl-trajectory", {"dynamics": {"depends_on": "state"}}),
        ("sgfn-kl-trajectory", {"dynamics": {"kind": "known"}, "objective": {"lambda_ratio": 0.1}}),
        ("sgfn-kl-trajectory", {"exploration": {"epsilon": 0.2}, "model": {"kmers": [2, 1], "width": 16}}),
        ("gfn-tb", {"task": "tfbind8", "constraints": {"forbid": ["AA"]}}),
        ("sgfn-tb", {"reward_noise": "gaussian:0.1"}),
        # few positions and more rows than tokens: all prefixes are evaluated at once
        *((method, WIDE) for method in ("gfn-tb", "sgfn-db", "sgfn-kl-trajectory")),
    ],
    ids=str,
)
def test_stacked_runs_equal_separate_runs(method: str, settings: dict[str, Any]) -> None:
    alone, stack = pairs(method, **settings)
    for _ in range(STEPS):
        expected = [trainer.train_step() for trainer in alone]
        found = stack.train_step()
        for one, other in zip(expected, found, strict=True):
            assert_equal_records(one, other)
    stack.settle()
    for trainer, part in zip(alone, stack.trainers, strict=True):
        assert_equal_runs(trainer, part)
    assert len({trainer.learner.memory.sequences.numpy().tobytes() for trainer in alone}) == len(SEEDS)


@pytest.mark.parametrize(
    ("method", "num_updates"), [("gfn-tb", 5), ("gfn-tb", 40), ("sgfn-db", 5), ("sgfn-kl-trajectory", 1)]
)
def test_rows_that_wait_for_their_moves_change_nothing(method: str, num_updates: int) -> None:
    model = {"kmers": [7, 1], "width": 16}
    alone, stack = pairs(method, task="bits:16,1", optimiser={"updates": num_updates}, model=model)
    table = stack._network.weights.table
    settled = []
    for _ in range(20):
        expected = [trainer.train_step() for trainer in alone]
        for one, other in zip(expected, stack.train_step(), strict=True):
            assert_equal_records(one, other)
        settled.append(stack.settled)
        assert len(table.rows_in_use) < len(table) / 2
    assert any(settled)
    assert all(settled) == (num_updates == 40)
    stack.settle()
    for trainer, part in zip(alone, stack.trainers, strict=True):
        assert_equal_runs(trainer, part, atol=1e-8)


def test_the_last_step_takes_what_is_left_of_the_budget() -> None:
    stack = StackedTrainer([make("gfn-tb", seed, budget={"trajectories": 12}) for seed in SEEDS])
    sizes = []
    while not stack.finished:
        sizes.append(stack.train_step()[0]["trajectories"])
    assert sizes == [8, 12]


def test_the_weights_of_the_networks_are_those_of_the_stack() -> None:
    stack = StackedTrainer([make("gfn-tb", seed) for seed in SEEDS])
    network = stack.trainers[1].learner.network
    before = network.policy_head.weight.clone()
    stack.train_step()
    stack.train_step()
    assert not torch.equal(network.policy_head.weight, before)
    assert not torch.equal(network.policy_head.weight, stack.trainers[2].learner.network.policy_head.weight)


def test_a_huge_gradient_of_one_run_leaves_the_others_alone() -> None:
    alone = make("gfn-tb", 1)
    trainers = [make("gfn-tb", seed) for seed in SEEDS]
    with torch.no_grad():
        trainers[0].learner.network.flow_head.bias += 1e6
    stack = StackedTrainer(trainers)
    for _ in range(3):
        alone.train_step()
        stack.train_step()
    stack.settle()
    assert_equal_runs(alone, stack.trainers[1])


def test_a_stack_goes_on_where_separate_runs_stopped_and_the_other_way_round() -> None:
    alone = [make("sgfn-db", seed) for seed in SEEDS]
    for trainer in alone:
        trainer.train_step()
    resumed = [make("sgfn-db", seed) for seed in SEEDS]
    for trainer, part in zip(alone, resumed, strict=True):
        part.load_state_dict(trainer.state_dict())
    stack = StackedTrainer(resumed)
    stack.train_step()
    stack.settle()
    for trainer, part in zip(alone, resumed, strict=True):
        trainer.train_step()
        assert_equal_runs(trainer, part)
    single = make("sgfn-db", SEEDS[1])
    single.load_state_dict({name: tensor.clone() for name, tensor in resumed[1].state_dict().items()})
    single.train_step()
    alone[1].train_step()
    assert_equal_runs(alone[1], single)


def test_a_term_that_is_not_finite_names_its_seed() -> None:
    trainers = [make("gfn-tb", seed) for seed in SEEDS]
    with torch.no_grad():
        trainers[2].learner.network.flow_head.bias += torch.inf
    stack = StackedTrainer(trainers)
    with pytest.raises(NumericsError, match="seed 2: the term"):
        stack.train_step()
