"""The guards one by one: each hostile input here was let through before, or would be without its guard."""

import gzip
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.cli import app as cli
from stochflow.config.methods import METHODS
from stochflow.config.yaml import parse_yaml, read_yaml
from stochflow.core import ram as memory
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.channel_factory import read_matrix
from stochflow.environments.sequences.user_table import TableColumns, read_user_table
from stochflow.experiments.sweep.config import requested
from stochflow.forecasting.data.tables import read_frame
from tests.fuzz.mutations import BOMB, MERGE_BOMB

SMALL = ("optimiser.batch_size=8", "optimiser.updates=1", "model.width=8", "evaluation.num_samples=8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stochflow.train(
        "bits:8,1", method="sgfn-db", steps=1, settings=SMALL, out=tmp_path_factory.mktemp("x") / "r"
    ).path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """The one sentence with which a command is refused."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what the command line replaces
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["stochflow", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return call


def read_specification(path: Path) -> dict[str, Any]:
    """The file of a comparison, with nothing said beside it."""
    return requested({"config": path, "settings": (), "track": None, "oracle": (), "deterministic": False})


@pytest.mark.parametrize("bomb", [BOMB, MERGE_BOMB])
def test_aliases_that_multiply_are_counted_before_anything_is_built(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(bomb)
    for read in (read_yaml, read_matrix, read_specification):
        with pytest.raises((ConfigError, DataError), match="more than 200,000 values, aliases included"):
            read(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seed: 1\nmodel: {width: 8, width: 9}\n", "the key 'width' stands twice, again in line 2"),
        ("seed: 1\ntask: bits:8,1\nseed: 2\n", "the key 'seed' stands twice, again in line 3"),
        ("a: &a [*a]", "leads back into itself"),
        ("[" * 3000, "nested too deeply"),
        ("seed: " + ":1" * 3000 + "\nx: 1" + ":1" * 3000, "a number of 6,001 digits"),
        ("task: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_yaml_that_no_person_writes_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text)


def test_a_merged_mapping_may_repeat_what_it_overrides() -> None:
    assert parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}")["b"] == {"x": 3, "y": 2}


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigError, match="more than 8 MB"):
        read_yaml(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("settings", "blamed"),
    [
        (["model.body=transformer", "model.width=16384", "model.num_layers=64"], "model.width and model.num_layers"),
        (["model.width=16384", "model.num_layers=64"], "model.width and model.num_layers"),
        (["optimiser.replay_size=67108864", "task=bits:4096,1"], "optimiser.replay_size"),
        (["optimiser.batch_size=1048576", "task=bits:4096,1", "budget={steps: 1}"], "optimiser.batch_size"),
        (["evaluation.num_samples=1048576", "task=bits:4096,1"], "evaluation.num_samples"),
        (["dynamics.rounds=1000000", "dynamics.sample_size=1000000"], "dynamics.sample_size × dynamics.rounds"),
        (["task=hypergrid:2,8", "model.width=16384", "model.num_layers=64"], "model.width and model.num_layers"),
    ],
)
def test_settings_that_cannot_fit_are_refused_before_anything_is_made(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, settings: list[str], blamed: str
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 2 * 2**30)
    sentence = refused("config", "--dry-run", *(word for text in settings for word in ("--set", text)))
    assert f"most of it for {blamed}" in sentence


@pytest.mark.parametrize("setting", ["model.width=1000000000", "optimiser.batch_size=1000000000"])
def test_numbers_beyond_their_bounds_are_refused(refused: Callable[..., str], setting: str) -> None:
    assert f"setting '{setting.split('=')[0]}'" in refused("config", "--set", setting)


def test_designs_that_cannot_fit_are_not_drawn(run: Path, refused: Callable[..., str]) -> None:
    for number in (10**12, 10**30):
        assert "draw fewer at a time" in refused("sample", run, "-n", number)


@pytest.mark.parametrize(
    "name", ["config.yaml", "table.csv", "metrics.jsonl", "summary.json", "samples.csv", "report.html"]
)
def test_links_out_of_a_run_are_refused_to_be_read_or_written(
    run: Path, tmp_path: Path, refused: Callable[..., str], name: str
) -> None:
    (tmp_path / "secret").write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "secret")
    for words in (("sample", run), ("report", run), ("train", "--resume", "--out", run, "--steps", "2")):
        assert f"{name} is a link that leads out of the run directory" in refused(*words)
    assert (tmp_path / "secret").read_text() == "mine"


def test_a_checkpoint_folder_elsewhere_is_refused_and_links_within_are_not(run: Path, tmp_path: Path) -> None:
    (run / "checkpoint").rename(run / "kept")
    (run / "checkpoint").symlink_to("kept")
    assert len(stochflow.sample(run, 3)) == 3
    (run / "kept").rename(tmp_path / "kept")
    (run / "checkpoint").unlink()
    (run / "checkpoint").symlink_to(tmp_path / "kept")
    with pytest.raises(DataError, match="leads out of the run directory"):
        stochflow.sample(run, 3)


def test_a_pipe_in_a_run_is_not_waited_for(run: Path, refused: Callable[..., str]) -> None:
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert "is neither a file nor a folder" in refused("report", run)


def test_a_sweep_shows_only_runs_that_lie_in_it(run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "sweep" / "runs").mkdir(parents=True)
    (tmp_path / "sweep" / "runs" / "mine").symlink_to(run)
    assert "leads out of" in refused("report", tmp_path / "sweep")


def test_a_run_whose_config_names_a_channel_file_is_refused(
    run: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "secret.csv").write_text("0.9,0.1\n0.2,0.8\n")
    text = (run / "config.yaml").read_text(encoding="utf-8").replace("  kind: uniform-slip", "  kind: confusion")
    (run / "config.yaml").write_text(
        text.replace("  file: null\n  deletion", f"  file: {tmp_path}/secret.csv\n  deletion")
    )
    assert "a run reads nothing outside of its folder" in refused("sample", run)


def test_what_a_file_says_cannot_move_the_cursor(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "x.yaml").write_text('"\\e[2Jgone\\a": 1\n')
    sentence = refused("config", "--config", "x.yaml")
    assert sentence.isprintable()
    assert "�[2Jgone�" in sentence


def test_tables_with_too_many_columns_are_refused_at_once(tmp_path: Path) -> None:
    wide = b"," * 50_000 + b"\n1\n2\n"
    (tmp_path / "wide.csv").write_bytes(wide)
    with pytest.raises(DataError, match="50,001 columns"):
        read_user_table(tmp_path / "wide.csv", TableColumns(), "auto")
    with pytest.raises(DataError, match="50,001 columns"):
        read_frame(tmp_path / "wide.csv")


def test_a_packed_table_is_not_unpacked_beyond_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.forecasting.data.tables.available", lambda: 4 * 2**20)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"ds,y\n" + b"0" * 2**22))
    with pytest.raises(DataError, match="more than 1 MB when unpacked"):
        read_frame(tmp_path / "bomb.csv.gz")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"ds": 1, "y": [1.0] * 200_000}).to_parquet(tmp_path / "bomb.parquet")
    with pytest.raises(DataError, match="400,000 values, which do not fit"):
        read_frame(tmp_path / "bomb.parquet")


def test_a_cluster_that_only_a_file_names_is_not_joined(tmp_path: Path) -> None:
    spec: dict[str, Any] = {"tasks": ["bits:8,1"], "engine": "ray", "address": "ray://stranger:10001"}
    with pytest.raises(ConfigError, match="joined only when you name it yourself"):
        stochflow.compare(config=spec, out=tmp_path / "sweep")


def test_more_runs_than_anybody_wants_are_refused(tmp_path: Path) -> None:
    noise = [number / 100 for number in range(90)]
    with pytest.raises(ConfigError, match=f"would be {90_000 * len(METHODS):,} runs"):
        stochflow.compare(["bits:8,1"], methods=["all"], noise=noise, seeds=1000, out=tmp_path / "sweep")


def test_weights_that_are_no_numbers_are_refused(run: Path, refused: Callable[..., str]) -> None:
    import hashlib

    import torch
    from safetensors.torch import load_file, save_file

    manifest = max((run / "checkpoint").glob("*.json"))
    state = load_file(manifest.with_suffix(".safetensors"))
    name = next(name for name in state if name.startswith("network."))
    state[name] = torch.full_like(state[name], torch.nan)
    save_file(state, manifest.with_suffix(".safetensors"))
    digest = hashlib.sha256(manifest.with_suffix(".safetensors").read_bytes()).hexdigest()
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"sha256": digest}))
    assert "does not fit its config.yaml" in refused("sample", run)


def test_deeply_nested_lines_of_metrics_are_passed_over(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write("[" * 100_000 + "\n")
    assert len(stochflow.load(run).metrics) == 1
