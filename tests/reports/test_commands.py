"""The command on the page makes the same config again: parsed by the command line itself."""

import shlex
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer

from stochflow.cli import app as cli
from stochflow.config.layers import resolve
from stochflow.config.methods import METHODS, method_settings
from stochflow.config.noise import parse_noise
from stochflow.config.schema import Config
from stochflow.core.errors import DataError
from stochflow.experiments import launch
from stochflow.experiments.sweep import compare
from stochflow.experiments.sweep.specification import PlannedRun
from stochflow.reports.commands import compare_command, noise_flag, peculiarities, train_command

MATRIX = [[0.7, 0.3, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1e-7, 0.0, 0.0, 0.9999999]]


def config_of(method: str = "sgfn-kl", *layers: dict[str, Any]) -> Config:
    return resolve([method_settings(method), {"method": method}, *layers])


def resolved_by_the_command_line(command: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config that `stochflow train …` builds, caught before anything is written."""
    caught: list[Config] = []

    def catch(config: Config, *_: object, **__: object) -> None:
        caught.append(config)
        raise DataError("enough")

    monkeypatch.setattr(launch, "build", catch)
    program, *words = shlex.split(command)
    assert program == "stochflow"
    with pytest.raises(DataError, match="enough"):
        typer.main.get_command(cli.app)(words, standalone_mode=False)
    return caught[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "noise", ["0.25", "0.5", "none", "dna-synthesis:0.02", "doped:0.79", "0.1,0.2,0.1,0.2,0.1,0.2,0.1,0.0"]
)
def test_the_command_of_a_run_resolves_to_its_config(
    method: str, noise: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_of(method, {"channel": parse_noise(noise), "seed": 3})
    command = train_command(config, "runs/x")
    assert "--set" not in command
    assert resolved_by_the_command_line(command, monkeypatch) == config


@pytest.mark.parametrize(
    "layer",
    [
        {"channel": {"kind": "confusion", "matrix": MATRIX}},
        {"channel": {"kind": "positional", "matrices": [MATRIX] * 8}},
        {"channel": {"kind": "none", "noise": 0.1}},
        {"reward": {"floor": 1e-12, "beta": 2.5}, "model": {"kmers": [1, 2]}, "device": "cpu", "threads": 2},
        {"budget": {"steps": 7}, "task": "tfbind8:PAX4"},
        {"budget": {"minutes": 0.125}, "evaluation": {"reference": "it's a file.csv", "mode_threshold": 0.8}},
        {"objective": {"lambda_ratio": 1e-5}, "optimiser": {"updates": 3}},
        {"budget": {"oracle_calls": 9}, "task": "oracle:lab:f", "oracle": {"length": 8, "alphabet": "ACGT"}},
        {"task": "oracle:lab:f", "oracle": {"length": 8, "alphabet": "ACGT"}, "channel": {"kind": "none"}},
        {
            "task": "oracle:lab:f",
            "oracle": {"length": 8, "alphabet": "ACGT"},
            "channel": {"kind": "none", "noise": 0.1},
        },
        {
            "task": "oracle:lab:f",
            "oracle": {"alphabet": "ACGT"},
            "channel": {"noise": 0.1, "deletion": 0.1},
            "lengths": {"max_length": 8},
        },
        {"task": "motifs:CTCF,50", "reward": {"beta": 3.0}},
        {"constraints": {"forbid": ["GAATTC"], "gc": [0.4, 0.6], "fixed": "....ATG.", "symmetric": False}},
    ],
)
def test_settings_that_no_option_names_are_set_one_by_one(
    layer: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_of("sgfn-db", layer)
    assert resolved_by_the_command_line(train_command(config, "runs/x"), monkeypatch) == config


def test_a_method_of_another_version_leads_to_the_config_file() -> None:
    config = resolve([{"method": "of tomorrow"}])
    assert train_command(config, "runs/a b") == (
        "stochflow train --config 'runs/a b/config.yaml' --out 'runs/a b-again'"
    )
    assert compare_command([config], "runs/x") is None


def planned_by_the_command_line(command: str, monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configs that `stochflow compare …` plans, caught before anything is written."""
    caught: list[Config] = []

    def catch(path: Path, runs: list[PlannedRun]) -> None:
        caught.extend(run.config for run in runs)
        raise DataError("enough")

    monkeypatch.setattr(compare, "check_existing", catch)
    program, *words = shlex.split(command)
    assert program == "stochflow"
    with pytest.raises(DataError, match="enough"):
        typer.main.get_command(cli.app)(words, standalone_mode=False)
    return caught


def cells(*layers: dict[str, Any], methods: Iterable[str] = ("sgfn-db", "sgfn-kl")) -> list[Config]:
    return [
        config_of(method, *layers, {"channel": parse_noise(noise), "seed": seed})
        for method, noise, seed in product(methods, ("0.25", "none", "dna-synthesis:0.02"), range(2))
    ]


@pytest.mark.parametrize(
    "layer", [{}, {"optimiser": {"batch_size": 256}}, {"device": "cpu"}, {"reward": {"beta": 2.0}}]
)
def test_the_command_of_a_sweep_plans_its_runs(layer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # a batch of 256 is what sgfn-db has anyway: common settings need not be told by every run
    configs = cells(layer)
    command = compare_command(configs, "runs/x")
    assert command is not None
    assert sorted(planned_by_the_command_line(command, monkeypatch), key=str) == sorted(configs, key=str)


def test_the_command_of_a_sweep_over_all_methods_plans_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = cells({"model": {"width": 8}, "reward": {"floor": 1e-7}}, methods=METHODS)
    command = compare_command(configs, "runs/it's mine")
    assert command is not None
    assert sorted(planned_by_the_command_line(command, monkeypatch), key=str) == sorted(configs, key=str)


def test_a_sweep_that_is_not_complete_has_the_command_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    command = compare_command(cells()[1:], "runs/x")
    assert command is not None
    assert sorted(planned_by_the_command_line(command, monkeypatch), key=str) == sorted(cells(), key=str)


@pytest.mark.parametrize(
    "odd",
    [
        {"reward": {"beta": 2.0}},
        {"budget": {"steps": 3}},
        {"budget": {"trajectories": 3}},
        {"channel": {"kind": "positional", "noise": [0.1] * 8}},
        {"seed": 1},
    ],
)
def test_runs_that_no_single_comparison_makes_have_no_common_command(odd: dict[str, Any]) -> None:
    last = config_of("sgfn-kl", {"channel": {"kind": "none"}, "seed": 2}, odd)
    assert compare_command([*cells(), last], "runs/x") is None


def test_what_sets_a_run_apart_is_its_budget_and_what_shapes_learning() -> None:
    config = config_of("sgfn-db", {"device": "cpu", "evaluation": {"every": 0.5}, "reward": {"beta": 2.0}, "seed": 5})
    assert peculiarities(config) == ("32000 trajectories", "reward.beta=2.0")


def test_a_single_slip_in_a_list_is_not_mistaken_for_a_slip_everywhere() -> None:
    config = config_of("sgfn-db", {"channel": {"kind": "positional", "noise": [0.2]}})
    noise = noise_flag(config.channel)
    assert noise is None or parse_noise(noise) == {"kind": "positional", "noise": [0.2]}


def test_the_command_of_pretraining_resolves_to_its_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"tasks": ["tfbind8", "tfbind8:ARX"], "support_size": 32}
    layer = {"task": "pretraining", "pretraining": settings, "channel": {"noise": 0.1}, "budget": {"steps": 7}}
    config = config_of("conditional-kl", layer)
    command = train_command(config, "runs/x")
    assert command.startswith("stochflow pretrain --tasks tfbind8,tfbind8:ARX --noise 0.1 --seed 0 --steps 7")
    assert command.count("--set") == 1
    assert resolved_by_the_command_line(command, monkeypatch) == config


def test_the_command_of_a_fine_tuned_run_names_its_sampler_and_support() -> None:
    settings = {"tasks": ["tfbind8"], "source": "runs/many", "support": 256, "context_width": 8}
    layer = {"task": "tfbind8:ARX", "pretraining": settings, "model": {"width": 16}, "context": {"reads": "support"}}
    config = config_of("sgfn-kl", layer)
    command = train_command(config, "runs/x")
    assert command.startswith(
        "stochflow train tfbind8:ARX --method sgfn-kl --from runs/many --support 256 --noise 0.25"
    )
    assert "--set" not in command
