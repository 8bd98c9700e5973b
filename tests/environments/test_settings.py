"""Arguments become layers of settings, and what cannot be built is refused before anything is."""

from typing import Any

import pytest

from stochflow.config.options import EXACT, TRAIN
from stochflow.core.errors import ConfigError
from stochflow.environments.settings import check_settings, exact_layers, resolve_layers, training_layers


def training(**given: Any) -> dict[str, Any]:
    """Arguments of `stochflow.train`, all others as by default."""
    nothing: dict[str, Any] = {option.name: option.default for option in TRAIN}
    return nothing | {"constraints": None, "settings": ()} | given


def test_the_alphabet_belongs_to_the_table_where_there_is_one() -> None:
    assert training_layers(training(alphabet="dna"))[-1]["oracle"] == {"alphabet": "dna"}
    by_argument = training_layers(training(alphabet="dna", table="a.csv"))[-1]
    assert (by_argument["table"], by_argument["task"]) == ({"file": "a.csv", "alphabet": "dna"}, "table")
    by_file = training_layers(training(alphabet="dna", config={"table": {"file": "a.csv"}}))
    assert by_file[-1]["table"] == {"alphabet": "dna"}
    continued = training_layers(training(alphabet="dna", resume=True), {"table": {"file": "a.csv"}})
    assert continued[-1]["table"] == {"alphabet": "dna"}


def test_arguments_go_over_settings_and_settings_over_the_config() -> None:
    layers = training_layers(training(seed=3, settings=("seed=2", "reward.beta=4"), config={"seed": 1}))
    config = resolve_layers(layers)
    assert (config.seed, config.reward.beta) == (3, 4.0)
    assert [layer.get("seed") for layer in layers] == [1, 2, None, 3]


@pytest.mark.parametrize("own", [{"table": "a.csv"}, {"oracle": "lab:score"}])
@pytest.mark.parametrize(
    ("given", "kind", "noise"),
    [
        ({}, "none", 0.25),
        ({"noise": 0.1}, "uniform-slip", 0.1),
        ({"noise": "none"}, "none", 0.25),
        ({"settings": ("channel.noise=0.1",)}, "uniform-slip", 0.1),
        ({"config": {"channel": {"noise": 0.1}}}, "uniform-slip", 0.1),
        ({"config": {"channel": {"noise": 0.1}}, "noise": "none"}, "none", 0.1),
        ({"settings": ("channel.kind=uniform-slip",)}, "uniform-slip", 0.25),
        ({"config": {"channel": {"kind": "dna-synthesis", "noise": 0.1}}}, "dna-synthesis", 0.1),
        ({"settings": ("channel.deletion=0.1",)}, "none", 0.25),
    ],
)
def test_a_table_and_an_oracle_have_the_noise_that_is_given(
    own: dict[str, Any], given: dict[str, Any], kind: str, noise: float
) -> None:
    channel = resolve_layers(training_layers(training(**own, **given))).channel
    assert (channel.kind, channel.noise) == (kind, noise)


@pytest.mark.parametrize("task", [None, "tfbind8:ARX", "bits:120,8", "hypergrid"])
def test_tasks_that_come_with_the_package_keep_their_noise(task: str | None) -> None:
    channel = resolve_layers(training_layers(training(task=task))).channel
    assert (channel.kind, channel.noise) == ("uniform-slip", 0.25)


def test_an_oracle_takes_the_place_of_a_task() -> None:
    assert training_layers(training(oracle="lab:score"))[-1]["task"] == "oracle:lab:score"
    with pytest.raises(ConfigError, match="leave out 'tfbind8'"):
        training_layers(training(oracle="lab:score", task="tfbind8"))


def test_graphs_have_defaults_of_their_own() -> None:
    assert resolve_layers([{"task": "hypergrid:2,4"}]).reward.beta == 1.0
    gym = resolve_layers([{"task": "gym:FrozenLake-v1"}])
    assert (gym.reward.floor, gym.channel.kind) == (0.01, "none")
    assert resolve_layers([]).reward.beta == 3.0


def test_families_of_sequences_have_defaults_of_their_own() -> None:
    binding = resolve_layers([{"task": "rna-bind:RNA1,14"}])
    assert (binding.reward.beta, binding.reward.floor) == (8.0, 1e-24)
    assert resolve_layers([{"task": "rna-bind:RNA1,14", "reward": {"beta": 2.0}}]).reward.beta == 2.0


def test_the_optimum_is_asked_for_with_the_same_options() -> None:
    given: dict[str, Any] = {option.name: option.default for option in EXACT}
    given |= {"constraints": {"gc": [0.2, 0.8]}, "settings": (), "alphabet": "dna", "table": "a.csv", "beta": 2.0}
    *_, layer = exact_layers(given)
    assert layer == {
        "task": "table",
        "table": {"alphabet": "dna", "file": "a.csv"},
        "reward": {"beta": 2.0},
        "constraints": {"gc": [0.2, 0.8]},
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "tfbind9"}, "unknown task 'tfbind9'"),
        ({"task": "table"}, "needs a file"),
        ({"table": {"file": "a.csv"}}, "there is a table, but the task is 'tfbind8'"),
        ({"table": {"score_column": "a"}}, "but no table"),
        ({"oracle": {"length": 3}}, "the task is 'tfbind8'"),
        ({"channel": {"deletion": 0.1}}, "add --variable-length"),
        ({"lengths": {"variable": True}}, "'tfbind8' has designs of one length"),
        ({"task": "oracle:a:b", "reward_noise": "replicate"}, "leave out the reward noise"),
        ({"task": "hypergrid", "constraints": {"forbid": ["AA"]}}, "constraints cannot be had with hypergrid"),
        ({"task": "hypergrid", "model": {"body": "transformer"}}, "a transformer cannot be had"),
    ],
)
def test_what_cannot_be_built_is_refused_from_its_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(resolve_layers([settings]))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "task", ["tfbind8", "bits:24,2", "rna-fold:14", "rna-bind:RNA1,14", "oracle:a:b", "hypergrid:2,5"]
)
def test_what_is_there_passes(task: str) -> None:
    check_settings(resolve_layers([{"task": task}]))
