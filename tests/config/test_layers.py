"""Each layer of settings goes over the one before it, and one sentence says what is wrong with the whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stochflow import api
from stochflow.config.layers import resolve
from stochflow.config.methods import METHODS
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError


class BuildReachedError(Exception):
    """Carries the config that training was about to start with."""


@pytest.fixture
def resolved_by_train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Config]:
    """`stochflow.train` up to the point where the parts are built: the config it arrived at."""

    def build(config: Config, *_: object, **__: object) -> None:
        raise BuildReachedError(config)

    monkeypatch.setattr("stochflow.experiments.launch.build", build)

    def resolved(**arguments: Any) -> Config:
        with pytest.raises(BuildReachedError) as caught:
            api.train(out=tmp_path / "run", **arguments)
        return caught.value.args[0]

    return resolved


def nested(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[return-value]


def test_each_layer_goes_over_the_one_before_it(resolved_by_train: Callable[..., Config]) -> None:
    preset = METHODS["sgfn-db"].settings["optimiser"]["updates"]
    file = {"optimiser": {"updates": preset + 1}}
    assert resolved_by_train(method="sgfn-kl").optimiser.updates == Config().optimiser.updates != preset
    assert resolved_by_train(method="sgfn-db").optimiser.updates == preset
    assert resolved_by_train(method="sgfn-db", config=file).optimiser.updates == preset + 1
    settings = [f"optimiser.updates={preset + 2}"]
    assert resolved_by_train(method="sgfn-db", config=file, settings=settings).optimiser.updates == preset + 2


@pytest.mark.parametrize(
    ("argument", "key", "low", "middle", "high"),
    [
        ("seed", "seed", 1, 2, 3),
        ("steps", "budget.steps", 1, 2, 3),
        ("device", "device", "a", "b", "c"),
        ("method", "method", "sgfn-kl-gamma", "sgfn-kl-bootstrap", "sgfn-db"),
        ("noise", "channel.noise", 0.1, 0.2, 0.3),
    ],
)
def test_an_argument_goes_over_settings_and_settings_over_the_config_file(
    resolved_by_train: Callable[..., Config], argument: str, key: str, low: Any, middle: Any, high: Any
) -> None:
    def value(**arguments: Any) -> Any:
        found: Any = resolved_by_train(config=nested(key, low), **arguments)
        for part in key.split("."):
            found = getattr(found, part)
        return found

    assert value() == low
    assert value(settings=[f"{key}={middle}"]) == middle
    assert value(settings=[f"{key}={middle}"], **{argument: high}) == high


def test_the_method_preset_follows_the_topmost_method(resolved_by_train: Callable[..., Config]) -> None:
    config = resolved_by_train(config={"method": "sgfn-db"}, settings=["method=sgfn-kl-trajectory"])
    assert config.objective.scope == "trajectory"
    assert config.objective.kind == "kl"


def test_noise_as_an_argument_leaves_nothing_of_a_channel_in_the_file(
    resolved_by_train: Callable[..., Config],
) -> None:
    file = {"channel": {"kind": "confusion", "matrix": [[1.0]], "file": "old.csv"}}
    channel = resolved_by_train(config=file, noise=0.4).channel
    assert (channel.kind, channel.noise, channel.matrix, channel.file) == ("uniform-slip", 0.4, None, None)


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"'seed'.*and 1 more problem;"):
        resolve([{"seed": -1, "reward": {"beta": -1}}])


def test_a_new_budget_replaces_the_old_one() -> None:
    assert resolve([]).budget.trajectories == 32_000
    budget = resolve([{"budget": {"steps": 3}}, {"budget": {"minutes": 2}}]).budget
    assert (budget.trajectories, budget.steps, budget.minutes) == (None, None, 2.0)


def test_a_long_list_in_the_wrong_place_is_not_repeated_in_full() -> None:
    with pytest.raises(ConfigError, match="'seed'") as caught:
        resolve([{"seed": list(range(10**5))}])
    assert len(str(caught.value)) < 200
