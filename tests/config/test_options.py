"""One table of options serves the command line, the Python functions and the settings."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow.config.options import (
    COMPARE,
    CONSTRAINTS,
    EVALUATE,
    EXACT,
    PRETRAIN,
    SAMPLE,
    TRAIN,
    Option,
    arguments_of,
    settings_of,
    task_names_in,
)
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.experiments.sweep.config import SweepConfig

OF_LOADING = ("run", "oracle", "oracle_engine", "address")
RULES = {option.name for option in CONSTRAINTS}


def names(options: tuple[Option, ...]) -> set[str]:
    return {option.name for option in options}


@pytest.mark.parametrize(
    ("function", "options", "beyond"),
    [
        (stochflow.train, TRAIN, {"constraints", "listen", "stop"}),
        (stochflow.pretrain, PRETRAIN, {"listen", "stop"}),
        (stochflow.exact, EXACT, {"constraints"}),
        (stochflow.compare, COMPARE, {"listen"}),
        (stochflow.evaluate, EVALUATE, set()),
        (stochflow.load, tuple(option for option in SAMPLE if option.name in OF_LOADING), set()),
        (stochflow.Run.sample, tuple(option for option in SAMPLE if option.name not in OF_LOADING), {"self"}),
    ],
)
def test_every_option_is_an_argument_with_the_same_default(
    function: Callable[..., Any], options: tuple[Option, ...], beyond: set[str]
) -> None:
    parameters = inspect.signature(function).parameters
    cli_alone = {"style", "out"} if function is stochflow.Run.sample else set()
    assert set(parameters) - beyond == names(options) - RULES - cli_alone
    for option in options:
        if option.name in parameters and option.default is not ...:
            default = () if option.kind == list[str] else option.default
            assert parameters[option.name].default == default, option.name


@pytest.mark.parametrize(
    "option", {option.name: option for option in (*TRAIN, *PRETRAIN, *EXACT)}.values(), ids=lambda o: o.name
)
def test_an_option_that_sets_something_names_a_setting_there_is(option: Option) -> None:
    model: Any = Config
    for part in (option.setting or "").split(".") if option.setting else ():
        model = model.model_fields[part].annotation


def test_options_of_a_comparison_are_fields_of_its_specification() -> None:
    others = {"oracle", "config", "settings", "deterministic", "out", "world", "gap_score"}
    assert names(COMPARE) - others == set(SweepConfig.model_fields) - {"settings", "retries"}


def test_arguments_become_a_layer_of_settings() -> None:
    given = {"seed": 0, "steps": 3, "noise": 0.1, "deletion": 0.2, "table": Path("a.csv"), "deterministic": False}
    assert settings_of(TRAIN, given) == {
        "channel": {
            "matrix": None,
            "matrices": None,
            "letters": None,
            "file": None,
            "intact": 1.0,
            "kept": None,
            "kind": "uniform-slip",
            "noise": 0.1,
            "deletion": 0.2,
        },
        "seed": 0,
        "budget": {"steps": 3},
        "table": {"file": "a.csv"},
    }


def test_rules_become_one_argument() -> None:
    given: dict[str, Any] = dict.fromkeys(names(EXACT)) | {"forbid": "AA, CC", "gc": "0.4:0.6", "symmetric": False}
    arguments = arguments_of(EXACT, given)
    assert arguments["constraints"] == {"forbid": ["AA", "CC"], "gc": [0.4, 0.6]}
    assert not RULES & set(arguments)
    assert arguments["settings"] == ()
    with pytest.raises(ConfigError, match=r"--gc takes LOW:HIGH, not '0\.4'"):
        arguments_of(EXACT, given | {"gc": "0.4"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bits:120,8,tfbind8", ["bits:120,8", "tfbind8"]),
        ("tfbind8, ehrlich:32,32,4,4 ,rna-fold:14,", ["tfbind8", "ehrlich:32,32,4,4", "rna-fold:14"]),
        ("rna-bind:RNA1+RNA2,50,rna-bind:RNA3,14", ["rna-bind:RNA1+RNA2,50", "rna-bind:RNA3,14"]),
    ],
)
def test_a_list_of_tasks_keeps_the_numbers_of_a_name_together(text: str, expected: list[str]) -> None:
    assert task_names_in(text) == expected
