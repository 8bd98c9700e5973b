"""Every setting is checked and explained before anything starts."""

from typing import Any

import pytest

from stochflow.config.layers import resolve
from stochflow.core.errors import ConfigError


def nested(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("key", "value", "named", "remedy"),
    [
        ("reward.betta", 3, "'reward.betta'", "beta, floor, ramp"),
        ("rewards", {}, "'rewards'", "known are: task, method"),
        ("seed", "five", "'seed'", "correct it or remove it"),
        ("seed", 1.5, "'seed'", "correct it or remove it"),
        ("seed", -1, "'seed'", "greater than or equal to 0"),
        ("seed", 2**31, "'seed'", "less than"),
        ("task", 3, "'task'", "string"),
        ("reward", [1], "'reward'", "dictionary"),
        ("reward.beta", 0, "'reward.beta'", "greater than 0"),
        ("reward.beta", float("nan"), "'reward.beta'", "finite"),
        ("reward.floor", float("inf"), "'reward.floor'", "finite"),
        ("model.kmers", [], "'model.kmers'", "at least 1 item"),
        ("model.kmers", [2, 3], "'model'", "must contain 1"),
        ("objective.kind", "tb", "'objective.kind'", "'detailed-balance', "),
        ("objective.gammas", [0.5, 1.0], "'objective'", "strictly between 0 and 1"),
        ("objective.quantile", 0.5, "'objective.quantile'", "greater than 0.5"),
        ("exploration.epsilon", 1.01, "'exploration.epsilon'", "less than or equal to 1"),
        ("exploration.restarts", 0.5, "'config'", "set exploration.restarts to 0"),
        ("optimiser.batch_size", 1, "'optimiser.batch_size'", "greater than or equal to 2"),
        ("budget", {}, "'budget'", "exactly one of trajectories, steps, minutes and oracle_calls"),
        (
            "budget",
            {"steps": 1, "minutes": 1},
            "'budget'",
            "exactly one of trajectories, steps, minutes and oracle_calls",
        ),
        ("budget.steps", 0, "'budget.steps'", "greater than or equal to 1"),
        ("checkpoint_every", 0, "'checkpoint_every'", "greater than or equal to 0.000001"),
        ("channel.kind", "gaussian", "'channel.kind'", "'uniform-slip'"),
        ("channel.noise", float("nan"), "'channel.noise'", "finite"),
        ("channel.noise", "much", "'channel.noise'", "number"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_remedy(key: str, value: Any, named: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve([nested(key, value)])
    message = str(caught.value)
    assert named in message
    assert remedy in message
    assert "\n" not in message
    assert "more problem" not in message  # one mistake was made


@pytest.mark.parametrize(("key", "text"), [("seed", "5"), ("reward.beta", "3"), ("dynamics.off_policy", "yes")])
def test_text_where_a_number_or_a_switch_belongs_is_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=key):
        resolve([nested(key, text)])


@pytest.mark.parametrize(
    ("objective", "remedy"),
    [
        ({"loss": "linex"}, "set loss to squared"),
        ({"path": "realised"}, "set path to intended"),
        ({"kind": "expected-balance", "path": "realised"}, "set path to intended"),
        ({"backward": "posterior"}, "set backward to learned"),
        ({"kind": "expected-balance", "backward": "uniform"}, "set backward to learned"),
        ({"kind": "detailed-balance", "path": "realised", "backward": "uniform"}, "set backward to learned"),
        ({"kind": "trajectory-balance", "decay": 0.5}, "leave it out"),
        ({"kind": "subtrajectory-balance", "decay": 0.0}, "greater than 0"),
        ({"kind": "detailed-balance", "loss": "cubed"}, "'shifted-cosh'"),
    ],
)
def test_options_of_balance_that_do_not_fit_together_are_refused(objective: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError, match="'objective") as caught:
        resolve([{"objective": objective}])
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_balance_that_do_fit_are_taken() -> None:
    for kind in ("detailed-balance", "trajectory-balance", "subtrajectory-balance"):
        for backward in ("uniform", "posterior"):
            resolve([{"objective": {"kind": kind, "backward": backward, "loss": "shifted-cosh"}}])
        resolve([{"objective": {"kind": kind, "path": "realised", "loss": "linex"}}])
    resolve([{"objective": {"kind": "expected-balance", "loss": "linex-reversed"}}])


def test_restarts_are_refused_where_no_objective_can_use_them() -> None:
    bootstrapped = {"objective": {"values": "bootstrapped"}, "exploration": {"restarts": 0.5}}
    assert resolve([bootstrapped]).exploration.restarts == 0.5
    with pytest.raises(ConfigError, match="values to bootstrapped"):
        resolve([{"exploration": {"restarts": 0.5}}])
    with pytest.raises(ConfigError, match="state scope"):
        resolve([bootstrapped, {"objective": {"kind": "detailed-balance"}}])
