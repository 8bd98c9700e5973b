"""Settings as text: what is read, what is refused, and that what is written reads back."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from stochflow.config.layers import resolve
from stochflow.config.schema import Config
from stochflow.config.yaml import annotated_yaml, dump_yaml, parse_assignment, read_yaml
from stochflow.core.errors import ConfigError

# ten lists, each of ten of the one before: a short text, and a value that no memory holds
LAUGHS = "[&a [x]" + "".join(f", &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in pairwise("abcdefghijk")) + "]"


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from models(field.annotation)


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
