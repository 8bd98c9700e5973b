"""Every setting that claims to matter changes what is learned, and nothing else does."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.config.methods import METHODS, method_settings
from stochflow.experiments.build import build
from stochflow.training.trainer import Trainer

# the entropy terms are on and do not fade, so that γ, q and λ_d have something to change
SETTINGS: dict[str, Any] = {
    "task": "bits:8,2",  # 256 designs
    "device": "cpu",
    "channel": {"kind": "uniform-slip", "noise": 0.25},
    "model": {"width": 16, "num_layers": 1},
    "dynamics": {"rounds": 2, "sample_size": 32},
    "objective": {"gammas": [0.5], "lambda_ratio": 0.1, "lambda_dynamics": 0.1, "lambda_schedule": "constant"},
    "exploration": {"epsilon": 0.1},
    "plan": {"rows_per_level": 32},
    # a large step: two of them must lead away from the uniform policy, where neither ε nor γ can be seen
    "optimiser": {"batch_size": 64, "updates": 2, "learning_rate": 0.05},
    "budget": {"steps": 2},
}
CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "noise": {"channel": {"noise": 0.5}},
    "dynamics learning rate": {"dynamics": {"learning_rate": 0.002}},
    "epsilon": {"exploration": {"epsilon": 0.9}},
    "beta": {"reward": {"beta": 1.0}},
    "gamma": {"objective": {"gammas": [0.2]}},
    "quantile": {"objective": {"quantile": 0.95}},
    "lambda_dynamics": {"objective": {"lambda_dynamics": 0.2}},
}
# what only a divergence has a place for
ENTROPY_ONLY = {"gamma", "quantile", "lambda_dynamics"}
# what cannot matter: model-free methods never look at P̂, populations compare scores, uniform intentions stay uniform
NO_MATTER = {
    "sac": {"dynamics learning rate"},
    "ppo": {"dynamics learning rate"},
    "mcmc": {"dynamics learning rate"},
    "genetic": {"dynamics learning rate", "beta"},
    "adalead": {"dynamics learning rate", "beta"},
    "random": {"epsilon"},
}
TABLES = ("intention", "position")  # of P̂
Weights = dict[str, Tensor]


def make_trainer(method: str, change: dict[str, Any]) -> Trainer:
    own = method_settings(method)
    layers = [own, {"method": method}, SETTINGS, {"objective": own.get("objective", {})}, change]
    return build(resolve(layers)).trainer


def weights_of(trainer: Trainer) -> tuple[Weights, Weights]:
    """Copies of what was learned: the network with what the objective keeps, or else the memory, and the dynamics."""
    learner = trainer.learner
    network, objective, memory, dynamics = (
        {name: weight.detach().clone() for name, weight in part.state_dict().items()}
        for part in (learner.network, trainer.objective, learner.memory, learner.dynamics)
    )
    record = learner.config.objective.record
    own = {} if record.shareable else objective if record.trains_policy else objective or memory
    return network | {f"objective.{name}": weight for name, weight in own.items()}, dynamics


def method_of(trainer: Trainer) -> str:
    return trainer.learner.config.objective.kind


def trained(method: str, change: dict[str, Any]) -> tuple[Weights, Weights]:
    """Weights after two training steps."""
    trainer = make_trainer(method, change)
    while not trainer.finished:
        trainer.train_step()
    return weights_of(trainer)


@cache
def unchanged(method: str) -> tuple[Weights, Weights]:
    return trained(method, {})


def identical(first: Weights, second: Weights) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def uses_entropy(method: str) -> bool:
    return method_settings(method).get("objective", {}).get("kind", "kl") == "kl"


def is_blind(method: str) -> bool:
    """True for a method that takes what came for what was meant, and never asks P̂."""
    return method_settings(method).get("objective", {}).get("path") == "realised"


def asks_dynamics(method: str) -> bool:
    return not is_blind(method) and "dynamics learning rate" not in NO_MATTER.get(method, ())


APPLICABLE = [
    pytest.param(method, name, id=f"{method}-{name}")
    for method in METHODS
    for name in CHANGES
    if (uses_entropy(method) or name not in ENTROPY_ONLY)
    and not (is_blind(method) and name == "dynamics learning rate")
    and name not in NO_MATTER.get(method, ())
]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_config_gives_the_same_weights_to_the_last_bit(method: str) -> None:
    network, dynamics = trained(method, {})
    assert identical(network, unchanged(method)[0])
    assert identical(dynamics, unchanged(method)[1])


@pytest.mark.parametrize(("method", "name"), APPLICABLE)
def test_a_changed_setting_changes_what_is_learned(method: str, name: str) -> None:
    network, dynamics = trained(method, CHANGES[name])
    assert not identical(network, unchanged(method)[0])
    if name in ("seed", "noise", "dynamics learning rate") and asks_dynamics(method):
        assert not identical(dynamics, unchanged(method)[1])


@pytest.mark.parametrize(
    ("method", "name"),
    [pytest.param(method, name, id=f"{method}-{name}") for method in NO_MATTER for name in sorted(NO_MATTER[method])],
)
def test_a_setting_that_cannot_matter_does_not(method: str, name: str) -> None:
    assert identical(trained(method, CHANGES[name])[0], unchanged(method)[0])


@pytest.mark.parametrize(
    ("method", "unused"),
    [
        ("sgfn-kl", ("backward_head",)),
        ("sgfn-kl-trajectory", ("backward_head", "flow_head")),
        ("sgfn-db", ()),
        ("sgfn-tb", ()),
        ("edb", ("backward_head",)),
        ("gfn-db", ("backward_head", *TABLES)),
        ("gfn-tb", ("backward_head", *TABLES)),
        ("gfn-subtb", ("backward_head", *TABLES)),
        ("gfn-ls", ("backward_head", *TABLES)),
        ("ppo", ("backward_head", *TABLES)),
        ("sac", ("backward_head", "flow_head", "objective.temperature", *TABLES)),
    ],
)
def test_two_steps_move_every_weight_that_the_objective_uses(method: str, unused: tuple[str, ...]) -> None:
    for before, after in zip(weights_of(make_trainer(method, {})), unchanged(method), strict=True):
        for name, weight in before.items():
            assert torch.equal(weight, after[name]) == name.startswith(unused), name


def test_gamma_changes_nothing_where_its_weights_are_zero() -> None:
    first, second = (
        trained("sgfn-kl-bootstrap", {"objective": {"lambda_ratio": 0.0, "lambda_dynamics": 0.0, "gammas": [gamma]}})
        for gamma in (0.2, 0.8)
    )
    assert identical(first[0], second[0])


def test_a_known_channel_has_nothing_to_learn() -> None:
    known = [
        trained("sgfn-db", {"dynamics": {"kind": "known", "learning_rate": learning_rate}})
        for learning_rate in (0.02, 0.002)
    ]
    assert identical(known[0][0], known[1][0])
    assert not known[0][1]
    assert not identical(known[0][0], unchanged("sgfn-db")[0])


@pytest.mark.parametrize("method", METHODS)
def test_dynamics_are_learned_by_those_who_ask_for_them(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(method, {})
    asked: list[str] = []
    for name in ("log_matrices", "log_matrices_at"):
        answer = getattr(trainer.learner.dynamics, name)

        def recorded(*given: Any, name: str = name, answer: Any = answer) -> Tensor:
            asked.append(name)
            return answer(*given)

        monkeypatch.setattr(trainer.learner.dynamics, name, recorded)
    untouched = weights_of(trainer)[1]
    records = [trainer.train_step() for _ in range(3)]
    assert bool(asked) == asks_dynamics(method) == trainer.objective.reads_dynamics
    assert identical(weights_of(trainer)[1], untouched) != asks_dynamics(method)
    assert all(("forward_dynamics_loss" in record) == asks_dynamics(method) for record in records)


@pytest.mark.parametrize("method", [name for name in METHODS if is_blind(name)])
def test_how_dynamics_are_learned_means_nothing_to_a_blind_method(method: str) -> None:
    network, dynamics = trained(method, CHANGES["dynamics learning rate"])
    assert identical(network, unchanged(method)[0])
    assert identical(dynamics, unchanged(method)[1])


BALANCE_CHANGES = {
    "backward uniform": ("sgfn-db", {"backward": "uniform"}),
    "backward posterior": ("sgfn-tb", {"backward": "posterior"}),
    "the realised path": ("sgfn-tb", {"path": "realised"}),
    "linex": ("gfn-tb", {"loss": "linex"}),
    "linex-half": ("sgfn-db", {"loss": "linex-half"}),
    "linex-reversed": ("edb", {"loss": "linex-reversed"}),
    "shifted-cosh": ("gfn-subtb", {"loss": "shifted-cosh"}),
    "decay": ("gfn-subtb", {"decay": 0.5}),
}


@pytest.mark.parametrize("name", BALANCE_CHANGES)
def test_every_option_of_a_balance_condition_changes_the_network(name: str) -> None:
    method, objective = BALANCE_CHANGES[name]
    network, _ = trained(method, {"objective": objective})
    assert not identical(network, unchanged(method)[0])
