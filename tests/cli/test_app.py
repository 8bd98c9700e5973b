"""The command line: what it prints, what it writes, and how it refuses."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
import yaml
from rich.cells import cell_len

import stochflow
from stochflow import api
from stochflow.cli import app as cli
from stochflow.cli import render
from stochflow.config.methods import METHODS
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences import packed
from stochflow.environments.sequences.fasta import read_sequences
from stochflow.experiments import launch
from stochflow.forecasting import StochflowForecaster
from tests.cli.conftest import Stochflow

TINY = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=50")
SET = [part for text in TINY for part in ("--set", text)]
COMMANDS = sorted(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
IDENTITY = "1,0,0,0\n0,1,0,0\n0,0,1,0\n0,0,0,1\n"


def run_process(*arguments: object, cwd: Path, shell: str | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m stochflow …` in a process of its own; `shell` may redirect its streams."""
    command = [sys.executable, "-m", "stochflow", *map(str, arguments)]
    if shell is not None:
        command = ["bash", "-c", f'"$@" {shell}', "bash", *command]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps; to be read, not changed."""
    path = tmp_path_factory.mktemp("finished") / "run"
    return stochflow.train(method="sgfn-db", steps=2, settings=TINY, out=path).path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run in the directory where the commands are called."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below a folder with its kind, permissions and content."""
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    process = run_process("--version", cwd=tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (0, f"stochflow {stochflow.__version__}\n", "")


def test_asking_for_the_version_runs_nothing(run_cli: Stochflow) -> None:
    assert run_cli("--version", "tasks").out == f"stochflow {stochflow.__version__}\n"


def test_help_lists_every_command(run_cli: Stochflow) -> None:
    for arguments in ([], ["--help"]):
        result = run_cli(*arguments)
        assert (result.code, result.err) == (0, "")
        assert all(command in result.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_each_of_its_options(command: str, run_cli: Stochflow) -> None:
    result = run_cli(command, "--help")
    assert (result.code, result.err) == (0, "")
    parameters = typer.main.get_command(cli.app).commands[command].params  # type: ignore[attr-defined]
    for parameter in parameters:
        assert parameter.help, parameter.name
        if parameter.param_type_name == "option":
            assert any(option in result.out for option in parameter.opts), parameter.name


def options_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every option of a command and of the commands below it."""
    for part, below in getattr(command, "commands", {}).items():
        yield from options_of(below, f"{name} {part}")
    yield from ((f"{name} {option.name}", option) for option in command.params if option.param_type_name == "option")


def test_every_option_with_a_value_says_its_default() -> None:
    silent = {"install_completion", "show_completion"}
    options = [(name, option) for name, option in options_of(typer.main.get_command(cli.app), "") if not option.is_flag]
    assert len(options) > 150
    for name, option in options:
        if option.required or option.name in silent:
            continue
        assert option.default not in (None, "", ()) or "[default: " in option.help, name


@pytest.mark.parametrize("words", ["tasks", "methods", "series", "exact tfbind8", "channel show nnk:0.1"])
def test_tables_fit_eighty_columns_with_whole_headings(
    words: str, run_cli: Stochflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_cli(*words.split()).out.splitlines()
    assert max(map(cell_len, lines)) <= 80  # the accent of P̂ takes no column
    assert not [line for line in lines[:4] if "…" in line]


def test_a_task_whose_package_is_missing_is_listed_with_the_remedy(
    run_cli: Stochflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("stochflow.core.extras.import_module", missing)
    result = run_cli("tasks")
    assert result.code == 0
    assert "rna-fold:14" in result.out
    assert "rna-bind:RNA1,14" in result.out
    assert "RNA is not installed" in " ".join(result.out.split())


def test_tasks_and_methods_are_listed_by_name(run_cli: Stochflow) -> None:
    result = run_cli("tasks")
    assert result.code == 0
    assert all(name in result.out for name in TASKS)
    result = run_cli("methods")
    assert result.code == 0
    assert all(name in result.out for name in METHODS)
    # every row of the table has what it is, what it may use, and where it comes from
    assert all(heading in result.out for heading in ("what it minimises", "what it may use", "where it is from"))
    assert result.out.count("arXiv") >= len([found for found in METHODS.values() if "arXiv" in found.reference])


def test_the_printed_config_loads_back(run_cli: Stochflow, tmp_path: Path) -> None:
    result = run_cli("config", "--method", "sgfn-kl-gamma", "--set", "reward.beta=1e1", "--set", "seed=7")
    assert (result.code, result.err) == (0, "")
    expected = launch.resolve_config([{"method": "sgfn-kl-gamma", "reward": {"beta": 10.0}, "seed": 7}])
    assert launch.resolve_config([yaml.safe_load(result.out)]) == expected
    (tmp_path / "mine.yaml").write_text(result.out, encoding="utf-8")
    assert run_cli("config", "--config", "mine.yaml").out == result.out


def test_a_dry_run_builds_everything_and_writes_nothing(run_cli: Stochflow, tmp_path: Path) -> None:
    result = run_cli("config", "tfbind8", "--set", "model.width=16", "--dry-run")
    assert result.code == 0
    assert "nothing was written" in " ".join(result.err.split())
    assert "parameters" in result.err
    assert yaml.safe_load(result.out)["model"]["width"] == 16  # the YAML alone is on standard output
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("noise", "min_kl", "min_tv", "score"),
    [
        (0.10, 0.00026, 0.0006, 0.6471),
        (0.25, 0.00302, 0.0075, 0.6457),
        (0.50, 0.02455, 0.0515, 0.6339),
        (0.75, 0.12418, 0.1640, 0.5860),
    ],
)
def test_exact_gives_the_check_values_of_the_method(
    noise: float, min_kl: float, min_tv: float, score: float, run_cli: Stochflow
) -> None:
    result = run_cli("exact", "--noise", noise, "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert (found["task"], found["noise"], found["beta"]) == ("tfbind8", noise, 3.0)
    assert round(found["min_kl"], 5) == min_kl
    assert round(found["min_tv"], 4) == min_tv
    assert round(found["attainable_score"], 4) == score
    if noise == 0.5:  # more than half of the prefixes cannot be balanced
        assert found["infeasible_share"][-1] > 0.5


def test_exact_prints_a_table_with_the_same_numbers(run_cli: Stochflow) -> None:
    result = run_cli("exact")
    assert result.code == 0
    assert all(number in result.out for number in ("0.25", "0.00302", "0.0075", "0.6457"))


def test_train_sample_and_evaluate_work_together(tmp_path: Path, run_cli: Stochflow) -> None:
    process = run_process(
        *("train", "tfbind8", "--method", "sgfn-kl-trajectory", "--noise", "0.1", "--trajectories", "40", *SET),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    path = Path("runs") / "tfbind8-sgfn-kl-trajectory-0.1-seed0"
    assert f"Run directory: {path}" in process.stdout
    assert "regret" in process.stdout
    assert sorted(os.listdir(tmp_path / path)) == [
        *(".lock", "checkpoint", "config.yaml", "metrics.jsonl", "samples.csv", "samples.fasta", "summary.json"),
        "versions.json",
    ]
    summary = json.loads((tmp_path / path / "summary.json").read_text(encoding="utf-8"))
    assert (summary["trajectories"], summary["noise"], summary["status"]) == (40, 0.1, "finished")
    result = run_cli("evaluate", path, "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == summary


def test_evaluate_equals_the_summary_and_prints_it(run_cli: Stochflow, run: Path) -> None:
    before = snapshot(run)
    result = run_cli("evaluate", run, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.out == (run / "summary.json").read_text(encoding="utf-8")
    table = run_cli("evaluate", run).out
    assert all(name in table for name in json.loads(result.out))
    assert snapshot(run) == before


def test_evaluate_under_another_noise_judges_the_same_policy_elsewhere(run_cli: Stochflow, run: Path) -> None:
    there = json.loads(run_cli("evaluate", run, "--noise", "0.5", "--json").out)
    assert there["noise"] == 0.5
    assert round(there["min_kl"], 5) == 0.02455
    here = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert there["kl"] != here["kl"]
    assert (there["steps"], there["seed"], there["log_z"]) == (here["steps"], here["seed"], here["log_z"])


def test_the_doctor_explains_a_run_and_ends_well_whatever_it_finds(run_cli: Stochflow, run: Path) -> None:
    result = run_cli("doctor", run)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"tfbind8, sgfn-db, noise 0.25, seed 0 ({run})")
    (run / "summary.json").unlink()
    result = run_cli("doctor", run)
    assert (result.code, result.err) == (0, "")
    assert f"To do: finish it with `stochflow train --resume --out {run}`." in result.out
    found = json.loads(run_cli("doctor", run, "--json").out)
    assert [diagnosis["healthy"] for diagnosis in found] == [False]
    assert set(found[0]) == {"path", "title", "healthy", "verdict", "findings", "problems"}
    assert set(found[0]["findings"][0]) == {"kind", "severity", "seen", "means", "remedy"}


def test_the_doctor_refuses_what_is_no_run(run_cli: Stochflow, run: Path, tmp_path: Path) -> None:
    assert run_cli("doctor", tmp_path / "missing").code == 2
    (run / "config.yaml").write_text("task: [", encoding="utf-8")
    result = run_cli("doctor", run)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1


def test_a_title_from_a_stranger_moves_no_cursor(run_cli: Stochflow, run: Path) -> None:
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("task: tfbind8", 'task: "\\e[2J[red]x"'), encoding="utf-8")
    result = run_cli("doctor", run)
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "[2J[red]x" in result.out


def test_a_log_file_gets_a_plain_line_with_pace_memory_and_figures(
    run_cli: Stochflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "_PLAIN_EVERY", 0.0)
    result = run_cli("train", "hypergrid", "--method", "sgfn-db", "--steps", 5, "--out", "run", *SET)
    lines = [line for line in result.err.splitlines() if line.startswith("training")]
    assert [line.split("%")[0] for line in lines] == [
        "training  20",
        "training  40",
        "training  60",
        "training  80",
        "training 100",
    ]
    for part in ("0:00:0", "(left 0:00:00)", "80 trajectories", "/s ", " MB ", "loss ", "E[score] ", "KL ", "regret "):
        assert part in lines[-1]
    monkeypatch.setattr(render, "_PLAIN_EVERY", 1e9)
    err = run_cli("train", "hypergrid", "--method", "sgfn-db", "--steps", 5, "--out", "other", *SET).err
    assert [line[:12] for line in err.splitlines()] == ["training  20", "training 100"]  # the first and the last step


@pytest.mark.filterwarnings("always")
def test_an_alarm_is_one_warning_on_standard_error(run_cli: Stochflow) -> None:
    settings = ("--set", "optimiser.learning_rate=1e-9", "--set", "evaluation.every=0.05")
    result = run_cli("train", "hypergrid", "--method", "sgfn-db", "--steps", 20, "--out", "run", *SET, *settings)
    assert result.code == 0
    warned = [line for line in result.err.splitlines() if line.startswith("Warning:")]
    assert len(warned) == 1
    assert warned[0].startswith("Warning: stalled: the regret is 2.96 nats after 40% of the budget")
    assert "raise optimiser.learning_rate (1e-09 now" in warned[0]


def test_designs_come_in_every_format(run_cli: Stochflow, run: Path, tmp_path: Path) -> None:
    for style in ("csv", "fasta", "jsonl"):
        path = tmp_path / f"designs.{style}"
        assert run_cli("sample", run, "-n", 7, "--format", style, "--out", path) == (0, "", "")
        printed = run_cli("sample", run, "-n", 7, "--format", style)
        assert (printed.code, printed.err) == (0, "")
        assert printed.out == path.read_text(encoding="utf-8")
    table = pd.read_csv(tmp_path / "designs.csv")
    assert list(table.columns) == ["sequence", "intended", "score", "log_reward", "log_prob"]
    assert len(table) == 7
    assert read_sequences(tmp_path / "designs.fasta") == table["sequence"].tolist()
    lines = (tmp_path / "designs.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == table["sequence"].tolist()


def test_designs_follow_seed_noise_and_uniqueness(run_cli: Stochflow, run: Path, tmp_path: Path) -> None:
    def designs(*options: object) -> pd.DataFrame:
        assert run_cli("sample", run, "-n", 300, "--out", tmp_path / "designs.csv", *options).code == 0
        return pd.read_csv(tmp_path / "designs.csv")

    default = designs()
    pd.testing.assert_frame_equal(designs("--seed", 0), default)
    assert (designs("--seed", 1)["sequence"] != default["sequence"]).any()
    assert (default["sequence"] != default["intended"]).any()
    quiet = designs("--noise", "none")
    assert (quiet["sequence"] == quiet["intended"]).all()
    unique = designs("--unique")
    assert len(unique) == 300
    assert unique["sequence"].is_unique


def test_a_run_is_overwritten_only_when_asked(run_cli: Stochflow, run: Path) -> None:
    arguments = ("train", "--method", "sgfn-db", *SET, "--steps", 1, "--seed", 9, "--out", run)
    assert run_cli(*arguments).code == 2
    assert stochflow.load(run).summary.seed == 0
    assert run_cli(*arguments, "--overwrite").code == 0
    assert stochflow.load(run).summary.seed == 9
    assert os.listdir(run.parent) == ["run"]


def test_a_run_is_resumed_with_a_larger_budget(run_cli: Stochflow, run: Path) -> None:
    result = run_cli("train", "--resume", "--out", run, "--steps", 3)
    assert result.code == 0
    assert stochflow.load(run).metrics["step"].tolist() == [1, 2, 3]


def test_resuming_where_there_is_no_run_yet_begins_one(run_cli: Stochflow, tmp_path: Path) -> None:
    arguments = ("train", "--method", "sgfn-db", *SET, "--steps", 1, "--resume", "--out", "job")
    result = run_cli(*arguments)
    assert result.code == 0
    assert result.err.splitlines()[0] == "There is no run in job yet; a new one begins."
    result = run_cli(*arguments)
    assert result.code == 0
    assert "begins" not in result.err
    assert stochflow.load(tmp_path / "job").metrics["step"].tolist() == [1]


def test_odd_names_are_printed_as_they_are(run_cli: Stochflow, tmp_path: Path) -> None:
    out = tmp_path / "[bold]" / "a[/b] :smile: é"
    result = run_cli("train", "--method", "sgfn-kl-trajectory", *SET, "--steps", 1, "--out", out)
    assert result.code == 0
    assert f"Run directory: {out} " in result.out
    assert run_cli("evaluate", out).code == 0


def test_a_matrix_file_with_an_odd_name_works(run_cli: Stochflow, tmp_path: Path) -> None:
    folder = tmp_path / "[red]"
    folder.mkdir()
    (folder / "x[/b].csv").parent.mkdir(parents=True)
    (folder / "x[/b].csv").write_text(IDENTITY, encoding="utf-8")
    result = run_cli("exact", "--noise", folder / "x[/b].csv")
    assert (result.code, result.err) == (0, "")


def test_a_damaged_checkpoint_is_passed_over_with_one_warning(run_cli: Stochflow, tmp_path: Path) -> None:
    steps: list[float] = []
    asked = {
        "settings": (*TINY, "checkpoint_every=0.25"),
        "out": tmp_path / "cut",
        "listen": lambda *_: steps.append(0.0),
    }
    run = stochflow.train(method="sgfn-db", steps=4, stop=lambda: len(steps) == 2, **asked).path
    os.truncate(max((run / "checkpoint").glob("*.safetensors")), 100)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run_cli("sample", run, "-n", 3)
    assert result.code == 0
    assert len(result.out.splitlines()) == 4
    (line,) = result.err.splitlines()
    assert line.startswith("Warning: ")
    assert "going on from step-000000001" in line


def test_a_finished_run_keeps_one_checkpoint_and_trains_on_from_it(run_cli: Stochflow, run: Path) -> None:
    assert [path.stem for path in (run / "checkpoint").glob("*.json")] == ["step-000000002"]
    assert run_cli("train", "--resume", "--out", run, "--steps", 4).code == 0
    assert [path.stem for path in (run / "checkpoint").glob("*.json")] == ["step-000000004"]


def test_a_run_ends_with_five_lines_and_the_next_command(run_cli: Stochflow) -> None:
    asked = ("train", "hypergrid", "--method", "sgfn-db", "--steps", 5, *SET)
    lines = run_cli(*asked, "--out", "one run").out.splitlines()
    summary = stochflow.load("one run").summary
    assert lines == [
        f"Finished hypergrid, sgfn-db, noise 0.25, seed 0: 80 trajectories, 0:00:{round(summary.seconds):02}.",
        f"Designs: mean score {summary.mean_score:.3f} ({summary.attainable_score:.3f} is possible), "
        f"best 100 {summary.top100_mean:.3f}, {summary.num_modes} different peaks.",
        stochflow.doctor("one run")[0].verdict,
        "Run directory: one run (designs in samples.csv)",
        f"Next: stochflow {'report' if stochflow.doctor('one run')[0].healthy else 'doctor'} 'one run'",
    ]
    shown = run_cli(*asked, "--out", "other", "--all").out
    assert all(name in shown for name in summary.model_dump())


def test_a_run_that_fails_exits_with_one_and_keeps_its_checkpoint(run_cli: Stochflow, tmp_path: Path) -> None:
    result = run_cli(
        *("train", "--method", "sgfn-db", *SET, "--steps", 2, "--set", "optimiser.learning_rate=1e39"),
        *("--out", tmp_path / "run"),
    )
    assert result.code == 1
    assert result.err.splitlines()[-1].startswith("Error: the term ")
    assert "Traceback" not in result.err
    assert run_cli("sample", tmp_path / "run", "-n", 1).code == 0


def test_a_full_disk_exits_with_one_sentence(run_cli: Stochflow, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "metrics.jsonl")

    monkeypatch.setattr("stochflow.runs.directory.RunDirectory.append_metrics", full)
    result = run_cli("train", "--resume", "--out", run, "--steps", 5)
    assert result.code == 2
    assert result.err.splitlines()[-1].startswith("Error: metrics.jsonl: No space left on device;")
    monkeypatch.undo()
    assert api.evaluate(run).steps == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("frobnicate", "frobnicate"),
        ("train --frobnicate", "--frobnicate"),
        ("train tfbind8 tfbind9", "tfbind9"),
        ("train tfbind9", "'tfbind9'; choose one of: tfbind8"),
        ("train :warning:", "':warning:'; choose one of"),
        ("train [/bold]", "'[/bold]'; choose one of"),
        ("train --method ppo2", "'ppo2'; choose one of: sgfn-kl"),
        ("train --set rewards.beta=3", "'rewards'; known are"),
        ("train --set reward.betta=3", "'reward.betta'; known are: beta, floor, ramp"),
        ("train --set reward.beta=high", "'reward.beta'"),
        ("train --set reward.beta=-1", "'reward.beta'"),
        ("train --set reward.beta", "a.b=value"),
        ("train --set seed=2020-13-45", "seed"),
        ("train --seed -1", "'seed'"),
        ("train --seed one", "--seed"),
        ("train --noise 1", "below 1"),
        ("train --noise -0.1", "below 1"),
        ("train --noise nan", "noise is nan"),
        ("train --noise loud", "'loud'"),
        ("train --noise 0.1,0.2", "length 8"),
        ("train --noise missing.csv", "missing.csv does not exist"),
        ("train --noise bad.csv", "every row must sum to 1"),
        ("train --noise small.csv", "4 letters"),
        ("train --noise notes.txt", "'notes.txt'"),
        ("train --steps 0", "'budget.steps'"),
        ("train --steps -3", "'budget.steps'"),
        ("train --steps 1.5", "--steps"),
        ("train --trajectories 0", "'budget.trajectories'"),
        ("train --minutes nan", "'budget.minutes'"),
        ("train --steps 3 --minutes 1", "exactly one of trajectories, steps, minutes and oracle_calls"),
        ("train --config missing.yaml", "missing.yaml cannot be read"),
        ("train --config notes.txt", "notes.txt must hold a mapping"),
        ("train --config run", "run cannot be read"),
        ("train --device quantum", "'quantum'"),
        ("train --device meta", "'meta'"),
        ("train --device hpu", "'hpu'"),
        ("train --set threads=100000000000000000000", "threads"),
        ("train --set evaluation.reference=missing.txt", "missing.txt cannot be read"),
        ("train --set evaluation.reference=short.txt", "length"),
        ("train --out run", "--overwrite"),
        ("train --out thesis", "thesis exists and is not a run directory"),
        ("train --out thesis --overwrite", "thesis exists and is not a run directory"),
        ("train --out notes.txt --overwrite", "notes.txt exists and is not a run directory"),
        ("train --out notes.txt/run", "cannot write to notes.txt/run"),
        (f"train --out {'x' * 300}", "choose another --out"),
        ("train --out run --overwrite --resume", "give one of them"),
        ("train --out run --overwrite --noise 1", "below 1"),
        ("train --out run --overwrite --noise missing.csv", "missing.csv does not exist"),
        ("train --out run --overwrite --device quantum", "'quantum'"),
        ("train --out run --overwrite --set evaluation.reference=missing.txt", "missing.txt cannot be read"),
        ("train --out run --resume --noise 0.5", "another 'channel'"),
        ("train --out run --resume --method sgfn-kl", "another 'method'"),
        ("train --out thesis --resume", "thesis has no config.yaml"),
        ("config --set frobnicate=1", "'frobnicate'; known are"),
        ("config --method ppo2", "'ppo2'"),
        ("config --dry-run --set channel.noise=7", "below 1"),
        ("exact tfbind9", "'tfbind9'"),
        ("exact --noise 1", "below 1"),
        ("exact --noise bad.csv", "every row must sum to 1"),
        ("exact --beta 0", "'reward.beta'"),
        ("exact --beta nan", "'reward.beta'"),
        ("exact --floor 0", "'reward.floor'"),
        ("sample missing", "missing is not a run directory"),
        ("sample notes.txt", "notes.txt is not a run directory"),
        ("sample thesis", "thesis has no config.yaml"),
        ("sample run -n 0", "at least 1"),
        ("sample run -n -1", "at least 1"),
        ("sample run -n many", "-n"),
        ("sample run --format xml", "'xml'; choose one of: csv, fasta, jsonl"),
        ("sample run --noise 1", "below 1"),
        ("sample run --out thesis", "cannot write thesis"),
        ("sample run --out missing/designs.csv", "cannot write missing/designs.csv"),
        ("sample run --out notes.txt/designs.csv", "cannot write notes.txt/designs.csv"),
        ("evaluate missing", "missing is not a run directory"),
        ("evaluate thesis", "thesis has no config.yaml"),
        ("evaluate run --noise -1", "below 1"),
        (f"evaluate {'x' * 300}", "not a run directory"),
        ("train --track aim", "'aim'; choose one of: tensorboard"),
        ("compare --methods ppo2", "'ppo2'; choose one of"),
        ("compare --methods sgfn-kl,sgfn-kl", "'sgfn-kl' is listed twice"),
        ("compare --methods ,", "'methods'"),
        ("compare --tasks tfbind9", "'tfbind9'; choose one of"),
        ("compare --noise 0.1,1.5", "below 1"),
        ("compare --noise 0.1,loud", "'loud'"),
        ("compare --seeds 0", "'seeds'"),
        ("compare --seeds many", "--seeds"),
        ("compare --trajectories 0", "'trajectories'"),
        ("compare --jobs 0", "'jobs'"),
        ("compare --engine slurm", "'engine'"),
        ("compare --address 127.0.0.1:6379", "add --engine ray"),
        ("compare --engine ray --address 127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("compare --engine ray --address 127.0.0.1:99999", "no Ray cluster answers at 127.0.0.1:99999"),
        ("compare --track aim", "'aim'; choose one of: tensorboard"),
        ("compare --set seed=3", "--seeds"),
        ("compare --set model.widht=8", "'model.widht'; known are"),
        ("compare --config missing.yaml", "missing.yaml cannot be read"),
        ("compare --config wrong.yaml", "'seeds'"),
        ("compare --out notes.txt", "notes.txt exists and holds no comparison"),
        ("compare --out notes.txt/sweep", "cannot write to notes.txt/sweep"),
        ("compare --out thesis", "thesis exists and holds no comparison"),
        ("compare --out run", "run exists and holds no comparison"),
    ],
)
def test_what_a_user_got_wrong_is_one_sentence_and_nothing_is_changed(
    arguments: str, words: str, run_cli: Stochflow, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("ACGTACGT\n", encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text("methods: [sgfn-kl]\nseeds: five\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("ACGT\n", encoding="utf-8")
    (tmp_path / "bad.csv").write_text(IDENTITY.replace("1,0", "1,1"), encoding="utf-8")
    (tmp_path / "small.csv").write_text("1,0\n0,1\n", encoding="utf-8")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work", encoding="utf-8")
    before = snapshot(tmp_path)
    tiny = SET if arguments.startswith("train") and "--resume" not in arguments else []
    if tiny and not any(budget in arguments for budget in ("--steps", "--minutes", "--trajectories")):
        tiny = [*tiny, "--steps", "1"]
    result = run_cli(*arguments.split(), *tiny)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: ")
    assert words in line
    assert "Traceback" not in result.err
    assert snapshot(tmp_path) == before


def test_a_damaged_run_is_one_sentence_and_left_alone(run_cli: Stochflow, run: Path, tmp_path: Path) -> None:
    for path in (run / "checkpoint").glob("*.safetensors"):
        os.truncate(path, 100)
    before = snapshot(tmp_path)
    for arguments in (("sample", run), ("evaluate", run), ("train", "--resume", "--out", run)):
        result = run_cli(*arguments)
        assert result.code == 2
        (line,) = result.err.splitlines()
        assert line.startswith("Error: the checkpoint step-000000002 in ")
        assert line.endswith("start again with --overwrite")
        assert snapshot(tmp_path) == before


def test_a_damaged_table_is_never_used(run_cli: Stochflow, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packed.checksums(), "tfbind8_six6_ref_r1.bin", "0" * 64)
    for arguments in (("exact",), ("sample", run), ("evaluate", run), ("train", "--out", "new")):
        result = run_cli(*arguments)
        assert result.code == 2
        (line,) = result.err.splitlines()
        assert line.startswith("Error: the table tfbind8_six6_ref_r1.bin is damaged")
        assert "reinstall stochflow" in line
    assert os.listdir(run.parent) == ["run"]


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 99, b"sequence,score\nAC,1\nAC,2\n", b"sequence,score\nAC,1\n"])
def test_a_bad_table_is_one_sentence_and_leaves_nothing_behind(
    run_cli: Stochflow, tmp_path: Path, content: bytes
) -> None:
    table = tmp_path / "own.csv"
    table.write_bytes(content)
    result = run_cli("train", "--table", table, "--out", tmp_path / "run")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith(f"Error: {table} ")
    assert os.listdir(tmp_path) == ["own.csv"]


def test_a_table_is_trained_on_from_the_command_line(run_cli: Stochflow, tmp_path: Path) -> None:
    table = tmp_path / "own.tsv"
    table.write_text("id\tseq\ta\tb\n1\tUU\t1\t2\n2\tAC\t3\t4\n", encoding="utf-8")
    columns = ("--sequence-column", "seq", "--score-column", "a,b", "--alphabet", "rna", "--reward-noise", "replicate")
    result = run_cli("train", "--table", table, *columns, "--gap-score", 0, "--steps", 1, "--out", tmp_path / "run")
    assert result.code == 0
    config = stochflow.load(tmp_path / "run").config
    assert (config.task, config.table.name, config.table.alphabet) == ("table", "own", "ACGU")
    assert config.reward_noise == "replicate"


def test_a_mistake_shows_no_traceback_in_a_process_of_its_own(tmp_path: Path) -> None:
    process = run_process("train", "--config", "missing.yaml", "--out", "new", cwd=tmp_path)
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1
    assert process.stderr.startswith("Error: missing.yaml cannot be read ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("command", "shell", "read"),
    [
        (("sample", "run", "-n", 3000), "| head -n 1", "sequence,intended,score,log_reward,log_prob\n"),
        (("config",), "| true", ""),
    ],
    ids=["some", "nothing"],
)
def test_a_reader_who_has_enough_is_no_error(
    command: tuple[object, ...], shell: str, read: str, finished: Path
) -> None:
    process = run_process(*command, cwd=finished.parent, shell=shell)
    assert (process.stdout, process.stderr) == (read, "")


def test_nobody_listening_is_no_error(finished: Path) -> None:
    process = run_process("config", cwd=finished.parent, shell=">&-")
    assert "Traceback" not in process.stderr
    assert process.returncode == 0


def small_table(path: Path, periods: int = 40) -> Path:
    """A CSV of one good monthly series, one with an infinite value, one that is too short and one with a word in it."""
    times = pd.date_range("2020-01-01", periods=periods, freq="MS")
    good = pd.DataFrame({"unique_id": "good", "ds": times, "y": range(periods)})
    infinite = good.assign(unique_id="endless", y=good["y"].astype(float).replace(3.0, float("inf")))
    short = good.head(3).assign(unique_id="short")
    spoken = good.assign(unique_id="spoken", y=good["y"].astype(object).replace(5, "five"))
    pd.concat([good, infinite, short, spoken]).to_csv(path, index=False)
    return path


@pytest.mark.filterwarnings("always:Left out")
def test_forecast_writes_intervals_and_a_page_and_names_what_it_left_out(run_cli: Stochflow, tmp_path: Path) -> None:
    data = small_table(tmp_path / "data.csv")
    result = run_cli("forecast", data, "--horizon", 4, "--network", "none", "--level", "50,90", "--plot")
    assert result.code == 0, result.err
    forecasts = pd.read_csv(tmp_path / "forecast.csv", parse_dates=["ds"])
    names = ["stochflow", *(f"stochflow-{end}-{level}" for level in (50, 90) for end in ("lo", "hi"))]
    assert list(forecasts.columns) == ["unique_id", "ds", *names]
    assert set(forecasts["unique_id"]) == {"good"}
    assert list(forecasts["ds"]) == list(pd.date_range("2023-05-01", periods=4, freq="MS"))
    assert (forecasts["stochflow"] - [40, 41, 42, 43]).abs().max() < 0.5
    assert "stochflow forecast" in (tmp_path / "forecast.html").read_text(encoding="utf-8")
    left_out = [line for line in result.err.splitlines() if line.startswith("Left out: ")]
    assert len(left_out) == 3
    assert any("'spoken'" in line and "'five'" in line for line in left_out)
    assert any("'endless'" in line and "infinite" in line for line in left_out)
    assert any("'short'" in line for line in left_out)


@pytest.mark.filterwarnings("always:Left out")
def test_forecast_refuses_to_replace_files_unless_told(run_cli: Stochflow, tmp_path: Path) -> None:
    (tmp_path / "forecast.csv").write_text("mine")
    result = run_cli("forecast", small_table(tmp_path / "data.csv"), "--network", "none")
    assert (result.code, (tmp_path / "forecast.csv").read_text()) == (2, "mine")
    assert "--overwrite" in result.err
    assert run_cli("forecast", "data.csv", "--network", "none", "--overwrite").code == 0
    assert (tmp_path / "forecast.csv").read_text() != "mine"


@pytest.mark.filterwarnings("always:Left out")
def test_a_saved_forecaster_predicts_what_the_command_wrote(run_cli: Stochflow, tmp_path: Path) -> None:
    small_table(tmp_path / "data.csv")
    settings = ("--horizon", 3, "--network", "none", "--save", "saved")
    assert run_cli("forecast", "data.csv", *settings).code == 0
    written = pd.read_csv(tmp_path / "forecast.csv")
    again = StochflowForecaster.load(tmp_path / "saved").predict(level=[80, 95])
    assert written["stochflow"].to_list() == pytest.approx(again["stochflow"].to_list(), rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nowhere.csv", "nowhere.csv"),
        ("data.csv --horizon 0", "horizon is 0"),
        ("data.csv --horizon -3", "horizon is -3"),
        ("data.csv --horizon 1000000000", "horizon is 1000000000"),
        ("data.csv --freq 0D", "freq '0D'"),
        ("data.csv --freq ns", "freq 'ns'"),
        ("data.csv --freq 99999999999999999999D", "is no frequency"),
        ("data.csv --season-length 1000000", "season_length is 1000000"),
        ("data.csv --out data.csv --overwrite", "holds the data"),
        ("data.csv --out page.html --plot", "where the page goes"),
        ("data.csv --set horizon=5", "'horizon'"),
        ("data.csv --freq xyz", "'xyz' is no frequency"),
        ("data.csv --level high", "--level high"),
        ("data.csv --level 101", "level 101"),
        ("data.csv --network oracle", "'network'"),
        ("data.csv --set widht=3", "'widht'; known are: network, objective"),
        ("data.csv --season-length 0", "season_length is 0"),
        ("data.csv --target-column sales", "sales"),
        ("data.csv --future weather", "--future-data"),
        ("data.csv --out missing/forecast.csv", "missing"),
    ],
)
def test_a_bad_request_for_a_forecast_gets_one_sentence(
    run_cli: Stochflow, tmp_path: Path, arguments: str, words: str
) -> None:
    small_table(tmp_path / "data.csv")
    result = run_cli("forecast", *arguments.split())
    assert result.code == 2
    assert result.err.splitlines()[-1].startswith("Error: ")
    assert words in result.err.replace("\n", " ")
    assert "Traceback" not in result.err


def test_series_lists_every_series_that_ships(run_cli: Stochflow) -> None:
    result = run_cli("series")
    assert result.code == 0
    for name in ("airline", "elnino", "wind"):
        assert name in result.out
