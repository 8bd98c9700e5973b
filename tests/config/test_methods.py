"""Methods by name."""

import re
import sys
import warnings
from pathlib import Path

import pytest
from torch import Tensor

import stochflow
from stochflow.cli import app as cli
from stochflow.config.layers import resolve
from stochflow.config.methods import GROUP, METHODS, Method, method_settings, other_methods, register_method
from stochflow.config.objectives import ObjectiveRecord, load_class
from stochflow.config.schema import ObjectiveConfig
from stochflow.core.errors import ConfigError
from stochflow.experiments import launch
from stochflow.objectives.path_terms import PathBalance, Steps

TINY = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=20")
MODULE = """
from stochflow.config.methods import Method
from stochflow.config.objectives import ObjectiveRecord
from stochflow.objectives.path_terms import PathBalance

class Ends(PathBalance):
    def loss(self, steps, config):
        return (steps.log_flow[:, 0] + steps.log_ratio.sum(-1) - steps.log_next_flow[:, -1]).abs().mean()

ENDS = Method(
    "Absolute residual of a whole path.", "replay",
    ObjectiveRecord("ends", "tiny_methods:Ends", along_path=True, has_residuals=True),
    {"optimiser": {"updates": 3}}, "nobody 2026",
)
NUMBER = 3
"""
POINTS = f"""[{GROUP}]
ends = tiny_methods:ENDS
number = tiny_methods:NUMBER
absent = tiny_methods:nothing
sgfn-kl = tiny_methods:ENDS
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with methods as pip leaves it: a module and its dist-info."""
    site = tmp_path / "site"
    info = site / "tiny_methods-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "tiny_methods.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-methods\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "tiny_methods", raising=False)
    return site


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What the command line writes to its two streams, each on one line."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["stochflow", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main()
    out, err = capsys.readouterr()
    return " ".join(out.split()), err


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_holds_known_settings_only(method: str) -> None:
    assert launch.resolve_config([{"method": method}]).method == method


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_it_is_what_it_uses_and_where_it_comes_from(method: str) -> None:
    found = METHODS[method]
    assert found.description.endswith(".")
    assert found.uses
    assert re.search(r"docs/explanation/method\.md|\b(19|20)\d\d\b", found.reference)  # our own page, or a year


def test_balance_conditions_differ_in_the_condition_alone() -> None:
    shared = [
        {key: value for key, value in method.settings.items() if key != "objective"}
        for method in METHODS.values()
        if method.objective.has_residuals and method.objective.shareable
    ]
    assert len(shared) == 6
    assert all(settings == shared[0] for settings in shared)


def test_an_unknown_method_or_task_lists_the_ones_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'ppo2'; choose one of: sgfn-kl, .*sgfn-db"):
        launch.resolve_config([{"method": "ppo2"}])
    with pytest.raises(ConfigError, match="'tfbind9'; choose one of: tfbind8"):
        launch.resolve_config([{"task": "tfbind9"}])


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_a_method_choose_the_objective_of_its_record(method: str) -> None:
    record = METHODS[method].objective
    assert ObjectiveConfig.model_validate(method_settings(method)["objective"]).record is record
    assert isinstance(load_class(record.sequences), type)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "PlannedKL"),
        ({"values": "bootstrapped"}, "BootstrappedKL"),
        ({"scope": "trajectory"}, "TrajectoryKL"),
        ({"scope": "trajectory", "values": "bootstrapped"}, "TrajectoryKL"),
        ({"kind": "subtrajectory-balance"}, "SubtrajectoryBalance"),
    ],
)
def test_any_settings_of_an_objective_choose_a_class(settings: dict[str, str], name: str) -> None:
    assert str(ObjectiveConfig.model_validate(settings).record.sequences).endswith(f":{name}")


class HalfBalance(PathBalance):
    """Half of the squared residual of a whole path."""

    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        return (steps.log_flow[:, 0] + steps.log_ratio.sum(dim=-1) - steps.log_next_flow[:, -1]).square().mean() / 2


def test_a_balance_from_outside_is_one_class_and_one_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("stochflow.config.methods.METHODS", dict(METHODS))
    monkeypatch.setattr("stochflow.cli.inspect.METHODS", sys.modules["stochflow.config.methods"].METHODS)
    record = ObjectiveRecord("half-balance", HalfBalance, along_path=True, has_residuals=True, log_z="target")
    settings = {"optimiser": {"updates": 3}, "objective": {"path": "realised"}}
    register_method("half", Method("Half of [it].", "replay", record, settings, "this test, 2026"))
    with pytest.raises(ConfigError, match="there is a method 'half' already"):
        register_method("half", METHODS["sgfn-db"])
    run = stochflow.train(method="half", steps=2, settings=TINY, out=tmp_path / "run")
    assert (run.config.objective.kind, run.config.objective.path) == ("half-balance", "realised")
    assert isinstance(run.experiment().trainer.objective, HalfBalance)
    assert run.summary.regret is not None
    assert stochflow.doctor(run)[0].title.startswith("tfbind8, half,")
    out, _ = printed(monkeypatch, capsys, "methods")
    assert "half" in out
    assert "Half of [it]." in out
    with pytest.raises(ConfigError, match="half cannot be trained on hypergrid"):
        launch.resolve_config([{"method": "half", "task": "hypergrid"}])


def test_a_method_of_another_package_is_trained_by_its_name(package: Path, tmp_path: Path) -> None:
    run = stochflow.train(method="ends", steps=2, settings=TINY[:1], out=tmp_path / "run")
    assert (run.config.objective.kind, run.config.optimiser.updates) == ("ends", 3)
    assert stochflow.load(run.path).sample(3)["sequence"].str.len().eq(8).all()


def test_methods_of_other_packages_are_listed_and_broken_ones_named(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("warnings.filters", [])
    out, err = printed(monkeypatch, capsys, "methods")
    assert "Absolute residual" in out
    assert "nobody 2026" in out
    assert [line[:60] for line in err.splitlines()] == [
        "Warning: the method 'absent' of the package tiny-methods can",
        "Warning: the method 'number' of the package tiny-methods can",
    ]


def test_a_broken_method_is_one_sentence_that_names_the_package(package: Path) -> None:
    with pytest.raises(ConfigError, match=r"'absent' of the package tiny-methods .*; update or uninstall that package"):
        launch.resolve_config([{"method": "absent"}])
    with pytest.raises(ConfigError, match=r"tiny_methods:NUMBER is int, which is no stochflow Method; update"):
        launch.resolve_config([{"method": "number"}])
    with pytest.raises(ConfigError, match=r"'absent' of the package tiny-methods"):
        resolve([{"objective": {"kind": "nothing-known"}}])
    with pytest.raises(ConfigError, match=r"random, absent, ends, number$"):
        launch.resolve_config([{"method": "ppo2"}])


def test_names_of_our_own_cannot_be_taken_and_nothing_is_imported_for_them(package: Path) -> None:
    assert launch.resolve_config([{"method": "sgfn-kl"}]).objective.kind == "kl"
    assert "tiny_methods" not in sys.modules
    assert [name for name, _ in other_methods()] == ["absent", "ends", "number"]
