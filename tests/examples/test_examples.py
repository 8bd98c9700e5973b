"""The examples run as they stand, with smaller budgets, and reach what they promise."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import stochflow
from stochflow.config.methods import METHODS

EXAMPLES = Path(__file__).parents[2] / "examples"
# lines that the house allows an example
MOST_LINES = {"train_from_parts": 55, "own_environment": 60, "own_objective": 40, "conditional": 40}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES[path.stem]


def test_training_from_parts_learns() -> None:
    assert example("train_from_parts").main(steps=400) < 0.45  # the untrained policy has 0.593


def test_an_environment_of_your_own_is_solved_almost_exactly() -> None:
    environment = stochflow.GraphEnvironment(stochflow.explore(example("own_environment").Bag()))
    experiment = stochflow.build(environment, method="sgfn-kl", trajectories=1_000, settings=["reward.beta=3"])
    assert experiment.train().evaluate()["regret"] < 0.05
    assert set(experiment.samples(5)) == {"object", "intended", "score", "log_reward", "log_prob"}


def test_an_objective_of_your_own_is_a_method_like_the_others(tmp_path: Path) -> None:
    example("own_objective")
    try:
        run = stochflow.train("tfbind8", method="robust-db", trajectories=512, out=tmp_path / "run")
        assert run.summary.method == "robust-db"
        assert run.summary.regret is not None
        grid = stochflow.train("hypergrid", method="robust-db", trajectories=512, out=tmp_path / "grid")
        assert grid.summary.regret is not None
    finally:
        del METHODS["robust-db"]
