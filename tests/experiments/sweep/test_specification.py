"""From a specification to runs: what is accepted, what is refused, and how a comparison may grow."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stochflow.config.methods import METHODS
from stochflow.core.errors import ConfigError, StochflowError
from stochflow.environments.registry import TASKS
from stochflow.experiments.sweep.config import SweepConfig, specify, store
from stochflow.experiments.sweep.specification import plan

GRID: dict[str, Any] = {
    "tasks": ["tfbind8", "tfbind8:PAX4"],
    "methods": ["sgfn-kl", "sgfn-db"],
    "noise": [0.1, "dna-synthesis:0.02"],
    "seeds": 3,
    "trajectories": 1000,
}
MATRIX = "0.7,0.1,0.1,0.1\n0.1,0.7,0.1,0.1\n0.1,0.1,0.7,0.1\n0.1,0.1,0.1,0.7\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds the grid."""
    path = tmp_path / "sweep"
    path.mkdir()
    store(path, specify(path, GRID))
    return path


def test_a_plan_is_the_whole_grid_with_one_budget(tmp_path: Path) -> None:
    runs = plan(specify(tmp_path / "sweep", GRID))
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 2 * 3
    assert runs[0].name == "tfbind8-sgfn-kl-0.1-seed0"
    assert {run.config.budget.trajectories for run in runs} == {1000}
    for run in runs:
        assert (run.config.task, run.config.method, run.config.seed) == (run.task, run.method, run.seed)
    assert {run.config.channel.kind for run in runs if run.noise != 0.1} == {"dna-synthesis"}


def test_feedback_is_varied_where_there_is_noise(tmp_path: Path) -> None:
    grid = GRID | {
        "methods": ["sgfn-kl", "gfn-tb"],
        "noise": ["none", 0.0, 0.1],
        "feedback": ["step", "none"],
        "seeds": 1,
    }
    runs = plan(specify(tmp_path / "sweep", grid | {"tasks": ["tfbind8"]}))
    assert len(runs) == len({run.name for run in runs}) == 2 * 4
    assert [run.name for run in runs if run.feedback == "none"] == [
        "tfbind8-sgfn-kl-0.1-orders-seed0",
        "tfbind8-gfn-tb-0.1-orders-seed0",
    ]
    assert {run.feedback for run in plan(specify(tmp_path / "sweep", GRID))} == {"step"}  # as the tasks have it


def test_settings_go_over_those_of_every_method(tmp_path: Path) -> None:
    spec = specify(tmp_path / "sweep", GRID | {"settings": {"optimiser": {"updates": 3}}})
    assert {run.config.optimiser.updates for run in plan(spec)} == {3}
    assert len({run.config.optimiser.batch_size for run in plan(spec)}) == 2  # each keeps what is its own


@pytest.mark.parametrize(("tasks", "noise"), [(["oracle:lab:a", "table"], "none"), (["bits:120,8"], 0.25)])
def test_a_comparison_that_names_no_noise_has_that_of_its_tasks(tasks: list[str], noise: Any, tmp_path: Path) -> None:
    assert specify(tmp_path / "sweep", {"tasks": tasks}).noise == [noise]
    assert specify(tmp_path / "sweep", {"tasks": tasks, "noise": [0.1]}).noise == [0.1]


def test_tasks_of_different_default_noise_need_one_that_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose one with --noise"):
        specify(tmp_path / "sweep", {"tasks": ["tfbind8", "oracle:lab:a"]})
    assert specify(tmp_path / "sweep", {"tasks": ["tfbind8", "oracle:lab:a"], "noise": ["none"]}).noise == ["none"]


def test_deletions_and_duplications_are_settings_of_every_run(tmp_path: Path) -> None:
    table = tmp_path / "mixed.csv"
    table.write_text("sequence,score\nA,0.1\nAC,0.9\nACG,0.5\n", encoding="utf-8")
    settings = {
        "table": {"file": str(table), "gap_score": 0.0},
        "lengths": {"variable": True},
        "channel": {"deletion": 0.1},
    }
    given: dict[str, Any] = {"tasks": ["table"], "noise": [0.1, "none"], "seeds": 1, "settings": settings}
    runs = plan(specify(tmp_path / "sweep", given))
    assert {run.config.channel.deletion for run in runs} == {0.1}
    assert runs[0].name == "mixed-sgfn-kl-0.1-deletion-0.1-seed0"
    settings["channel"] = {"deletion": 0.1, "noise": 0.3}
    with pytest.raises(ConfigError, match="'channel' is what the comparison varies; give it with --noise"):
        specify(tmp_path / "sweep", given)


def test_the_stored_specification_is_read_back(folder: Path) -> None:
    assert specify(folder, {}) == specify(folder, GRID)
    assert SweepConfig.model_validate(yaml.safe_load((folder / "sweep.yaml").read_text(encoding="utf-8"))).seeds == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"methods": ["sgfn-kl-bootstrap"]}, {"methods": ["sgfn-kl", "sgfn-db", "sgfn-kl-bootstrap"]}),
        ({"noise": [0.5, 0.1]}, {"noise": [0.1, "dna-synthesis:0.02", 0.5]}),
        ({"tasks": ["tfbind8:ARX"]}, {"tasks": ["tfbind8", "tfbind8:PAX4", "tfbind8:ARX"]}),
        ({"seeds": 5}, {"seeds": 5}),
        ({"seeds": 1}, {"seeds": 3}),
        ({"jobs": 7, "track": ["wandb"]}, {"jobs": 7, "track": ["wandb"]}),
    ],
)
def test_a_comparison_grows(given: dict[str, Any], expected: dict[str, Any], folder: Path) -> None:
    before = specify(folder, {})
    assert specify(folder, given) == before.model_copy(update=expected)


@pytest.mark.parametrize("name", ["tasks", "methods"])
def test_all_means_every_name_there_is(name: str, tmp_path: Path) -> None:
    found = specify(tmp_path / "sweep", {name: ["all"]})
    assert getattr(found, name) == list({"tasks": TASKS, "methods": METHODS}[name])


def test_a_matrix_file_is_read_now_and_named_after_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.csv").write_text(MATRIX, encoding="utf-8")
    spec = specify(tmp_path / "sweep", {"noise": ["lab.csv"], "seeds": 1})
    run = plan(spec)[0]
    assert (run.name, run.noise) == ("tfbind8-sgfn-kl-lab-seed0", "lab")
    assert run.config.channel.matrix is not None
    assert run.config.channel.matrix[0] == [0.7, 0.1, 0.1, 0.1]
    assert spec.noise == [str(tmp_path / "lab.csv")]  # found again from any other folder


def test_two_matrix_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lab.csv").write_text(MATRIX, encoding="utf-8")
    noise = [str(tmp_path / name / "lab.csv") for name in ("a", "b")]
    with pytest.raises(ConfigError, match="two runs would be called tfbind8-sgfn-kl-lab-seed0"):
        plan(specify(tmp_path / "sweep", {"noise": noise}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"methods": []}, "'methods'"),
        ({"methods": "sgfn-kl"}, "'methods'"),
        ({"methods": ["sgfn-kl", "sgfn-kl"]}, "'sgfn-kl' is listed twice"),
        ({"noise": [0.1, "0.10"]}, "'0.1' is listed twice"),
        ({"noise": [None]}, "'noise.0'"),
        ({"noise": 0.25}, "'noise'"),
        ({"seeds": "five"}, "'seeds'"),
        ({"seeds": 0}, "'seeds'"),
        ({"trajectories": 10**400}, "'trajectories'"),
        ({"jobs": 0}, "'jobs'"),
        ({"engine": "slurm"}, "'engine'"),
        ({"settings": ["model.width=8"]}, "'settings'"),
        ({"settings": {"seed": 3}}, "give it with --seeds"),
        ({"settings": {"budget": {"steps": 3}}}, "give it with --trajectories"),
        ({"method": ["sgfn-kl"]}, "unknown setting 'method'; known are: tasks, methods"),
    ],
)
def test_what_is_no_specification_is_one_sentence(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        specify(tmp_path / "sweep", given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"methods": ["ppo2"]}, "unknown method 'ppo2'"),
        ({"tasks": ["tfbind9"]}, "unknown task 'tfbind9'"),
        ({"noise": [0.1, 1.5]}, "noise is 1.5"),
        ({"noise": ["loud"]}, "'loud'"),
        ({"settings": {"model": {"widht": 8}}}, "unknown setting 'model.widht'"),
        ({"settings": {"device": "abacus"}}, "device 'abacus' is not available here"),
        ({"settings": {"evaluation": {"reference": "nowhere.csv"}}}, "nowhere.csv"),
        ({"noise": ["dna-synthesis", "dna-synthesis:0.01"]}, "leave one of the channels away"),
    ],
)
def test_a_run_that_cannot_be_is_found_before_any_starts(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(StochflowError) as caught:
        plan(specify(tmp_path / "sweep", given))
    assert words in str(caught.value)


def test_a_damaged_specification_is_refused(folder: Path) -> None:
    (folder / "sweep.yaml").write_text("tasks: [", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"sweep\.yaml is not valid YAML"):
        specify(folder, {})
