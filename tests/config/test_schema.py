"""Settings are layered, checked and explained before anything starts."""

import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from stochflow import api
from stochflow.config.methods import METHODS
from stochflow.config.schema import Config, annotated_yaml, dump_yaml, parse_assignment, read_yaml, resolve
from stochflow.core.errors import ConfigError
from stochflow.experiments import launch

# ten lists, each of ten of the one before: a short text, and a value that no memory holds
LAUGHS = "[&a [x]" + "".join(f", &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in pairwise("abcdefghijk")) + "]"


class BuildReachedError(Exception):
    """Carries the config that training was about to start with."""


@pytest.fixture
def resolved_by_train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Config]:
    """`stochflow.train` up to the point where the parts are built: the config it arrived at."""

    def build(config: Config, **_: object) -> None:
        raise BuildReachedError(config)

    monkeypatch.setattr("stochflow.experiments.build.build", build)

    def resolved(**arguments: Any) -> Config:
        with pytest.raises(BuildReachedError) as caught:
            api.train(out=tmp_path / "run", **arguments)
        return caught.value.args[0]

    return resolved


def nested(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[return-value]


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from models(field.annotation)


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


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"'seed'.*and 1 more problem;"):
        resolve([{"seed": -1, "reward": {"beta": -1}}])


def test_restarts_are_refused_where_no_objective_can_use_them() -> None:
    bootstrapped = {"objective": {"values": "bootstrapped"}, "exploration": {"restarts": 0.5}}
    assert resolve([bootstrapped]).exploration.restarts == 0.5
    with pytest.raises(ConfigError, match="values to bootstrapped"):
        resolve([{"exploration": {"restarts": 0.5}}])
    with pytest.raises(ConfigError, match="state scope"):
        resolve([bootstrapped, {"objective": {"kind": "detailed-balance"}}])


def test_a_new_budget_replaces_the_old_one() -> None:
    assert resolve([]).budget.trajectories == 32_000
    budget = resolve([{"budget": {"steps": 3}}, {"budget": {"minutes": 2}}]).budget
    assert (budget.trajectories, budget.steps, budget.minutes) == (None, None, 2.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reward.beta=1e-3", {"reward": {"beta": 0.001}}),
        ("reward.beta=1E5", {"reward": {"beta": 1e5}}),
        ("seed=3", {"seed": 3}),
        ("task=tfbind8", {"task": "tfbind8"}),
        ("evaluation.reference=a=b.csv", {"evaluation": {"reference": "a=b.csv"}}),
        ("channel.noise=[0.1, 0.2]", {"channel": {"noise": [0.1, 0.2]}}),
        ("channel.file=null", {"channel": {"file": None}}),
        ("dynamics.off_policy=false", {"dynamics": {"off_policy": False}}),
        ("a.b.c={d: 1}", {"a": {"b": {"c": {"d": 1}}}}),
    ],
)
def test_an_assignment_is_read_as_a_nested_yaml_value(text: str, expected: dict[str, Any]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["", "=", "=3", "seed", "seed 3", ".=1", "a.=1", ".a=1", "a..b=1"])
def test_an_assignment_without_key_and_value_shows_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"for example --set reward\.beta=3"):
        parse_assignment(text)


@pytest.mark.parametrize(
    "value",
    [
        "[1, 2",
        "{a: ",
        "!!python/object/apply:os.getcwd []",
        "!!python/name:os.system",
        "!unknown 3",
        "2020-13-45",  # a date that no calendar has
        "!!int x",
        "!!bool x",
        "!!timestamp x",
        "9" * 5000,
        "[" * 3000,
        "&a [*a]",  # endless
        "&a {b: {c: *a}}",
        LAUGHS,
    ],
    ids=lambda value: value[:24],
)
def test_what_yaml_cannot_read_is_refused_in_an_assignment_and_in_a_file(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed"):
        parse_assignment(f"seed={value}")
    path = tmp_path / "config.yaml"
    path.write_text(f"seed: {value}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML"):
        read_yaml(path)


def test_aliases_within_reason_are_read(tmp_path: Path) -> None:
    assert parse_assignment("model=&a {kmers: [1, 3]}") == {"model": {"kmers": [1, 3]}}
    path = tmp_path / "config.yaml"
    path.write_text("model: &same {width: 8}\nplan: *same\n", encoding="utf-8")
    assert read_yaml(path) == {"model": {"width": 8}, "plan": {"width": 8}}


def test_a_long_list_in_the_wrong_place_is_not_repeated_in_full() -> None:
    with pytest.raises(ConfigError, match="'seed'") as caught:
        resolve([{"seed": list(range(10**5))}])
    assert len(str(caught.value)) < 200


def test_a_config_file_executes_nothing(tmp_path: Path) -> None:
    path, trace = tmp_path / "config.yaml", tmp_path / "trace"
    path.write_text(f"seed: !!python/object/apply:os.mkdir ['{trace}']\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        read_yaml(path)
    assert os.listdir(tmp_path) == ["config.yaml"]


@pytest.mark.parametrize("content", [b"- 1\n- 2\n", b"text", b"3", b"1: 2\n", b"null: 1\n"])
def test_a_config_file_must_hold_a_mapping_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.yaml must hold a mapping.*stochflow config"):
        read_yaml(path)


@pytest.mark.parametrize("content", [b"", b"# nothing yet\n", b"---\n"])
def test_an_empty_config_file_changes_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    assert read_yaml(path) == {}


def test_a_config_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(128, 256)))
    for path in (binary, tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ConfigError, match=f"{path.name} cannot be read .*; check the path"):
            read_yaml(path)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    positive = st.floats(1e-300, 1e300)
    share = st.floats(1e-6, 1.0)
    text = st.text(max_size=20)
    values = {
        "task": draw(text),
        "seed": draw(st.integers(0, 2**31 - 1)),
        "device": draw(text),
        "channel": {
            "noise": draw(st.one_of(st.floats(0, 1), st.lists(st.floats(0, 1), max_size=8))),
            "matrix": draw(st.none() | st.lists(st.lists(st.floats(0, 1), max_size=4), max_size=4)),
            "file": draw(st.none() | text),
        },
        "reward": {
            "beta": draw(st.floats(1e-300, 1e3)),
            "floor": draw(positive),
            "ramp": draw(st.just(0.0) | positive),
        },
        "model": {"kmers": [1, *draw(st.lists(st.integers(1, 12), max_size=4))]},
        "dynamics": {"off_policy": draw(st.booleans()), "learning_rate": draw(positive)},
        "objective": {"gammas": draw(st.lists(st.floats(1e-9, 0.999), min_size=1, max_size=3))},
        "budget": draw(
            st.one_of(
                st.fixed_dictionaries({"trajectories": st.integers(1, 10**30)}),
                st.fixed_dictionaries({"steps": st.integers(1, 10**12)}),
                st.fixed_dictionaries({"minutes": positive}),
            )
        ),
        "evaluation": {"every": draw(share), "mode_threshold": draw(st.none() | st.floats(-1e300, 1e300))},
    }
    return Config.model_validate(values)


@given(config=configs())
def test_a_config_written_as_yaml_reads_back_as_itself(config: Config) -> None:
    assert resolve([yaml.safe_load(dump_yaml(config))]) == config
    assert resolve([yaml.safe_load(annotated_yaml(config))]) == config


def test_every_setting_is_described_and_the_annotated_yaml_shows_it() -> None:
    text = annotated_yaml(Config())
    for model in models(Config):
        assert model.__doc__
        for name, field in model.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                assert f"{name}:  # {field.annotation.__doc__}" in text
            else:
                assert field.description, name
                assert f"# {field.description}\n" in text


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_holds_known_settings_only(method: str) -> None:
    assert launch.resolve_config([{"method": method}]).method == method


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_it_is_what_it_uses_and_where_it_comes_from(method: str) -> None:
    found = METHODS[method]
    assert found.description.endswith(".")
    assert found.uses
    assert re.search(r"docs/method\.md|\b(19|20)\d\d\b", found.reference)  # our own page, or a year


def test_balance_conditions_differ_in_the_condition_alone() -> None:
    shared = [
        {key: value for key, value in method.settings.items() if key != "objective"}
        for method in METHODS.values()
        if "balance" in method.settings.get("objective", {}).get("kind", "kl")
    ]
    assert len(shared) == 6
    assert all(settings == shared[0] for settings in shared)


def test_an_unknown_method_or_task_lists_the_ones_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'ppo2'; choose one of: sgfn-kl, .*sgfn-db"):
        launch.resolve_config([{"method": "ppo2"}])
    with pytest.raises(ConfigError, match="'tfbind9'; choose one of: tfbind8"):
        launch.resolve_config([{"task": "tfbind9"}])
