"""The run directory: nothing that exists is lost, and what is written reads back."""

import csv
import io
import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
import yaml

from stochflow.config.layers import resolve
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError, DataError, StochflowError
from stochflow.environments.sequences.fasta import read_sequences
from stochflow.evaluation.summary import Summary
from stochflow.runs import directory as runs
from stochflow.runs.directory import RunDirectory, check_free, format_samples, versions

CONFIG = resolve([{"seed": 1}])
OTHER = resolve([{"seed": 2}])
FRAME = pd.DataFrame(
    {
        "sequence": ["ACGT", "TTTT"],
        "intended": ["ACGA", "TTTT"],
        "score": [1 / 3, 0.0],
        "log_reward": [-3.2958368660043291, -13.815510557964274],
        "log_prob": [-11.090354888959125, -1e-17],
    }
)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, hidden ones included, with the content of files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", CONFIG, overwrite=False)


@pytest.fixture
def summary() -> Summary:
    """A summary whose every value can be told from the others."""
    values = {
        name: f"text {number}" if "str" in str(field.annotation) else number
        for number, (name, field) in enumerate(Summary.model_fields.items())
    }
    return Summary.model_validate(values)


def test_a_new_run_records_its_config_and_versions(run: RunDirectory, tmp_path: Path) -> None:
    assert sorted(snapshot(tmp_path)) == ["run", "run/.lock", "run/config.yaml", "run/versions.json"]
    assert RunDirectory.open(run.path).config() == CONFIG
    assert yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))["seed"] == 1
    recorded = json.loads((run.path / "versions.json").read_text(encoding="utf-8"))
    assert recorded == versions()
    assert recorded["torch"] == metadata.version("torch")


def test_parents_are_made_and_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "a" / "b" / "run", CONFIG, overwrite=False)
    (tmp_path / "empty").mkdir()
    RunDirectory.create(tmp_path / "empty", CONFIG, overwrite=False)
    assert sorted(os.listdir(tmp_path)) == ["a", "empty"]


def test_an_existing_run_is_refused_unless_it_may_be_overwritten(run: RunDirectory, tmp_path: Path) -> None:
    (run.path / "samples.csv").write_text("precious", encoding="utf-8")
    before = snapshot(tmp_path)
    for attempt in (lambda: check_free(run.path, False), lambda: RunDirectory.create(run.path, OTHER, False)):
        with pytest.raises(ConfigError, match="--resume, replace it with --overwrite, or choose another --out"):
            attempt()
    assert snapshot(tmp_path) == before
    RunDirectory.create(run.path, OTHER, overwrite=True)
    assert RunDirectory.open(run.path).config() == OTHER
    assert sorted(snapshot(tmp_path)) == ["run", "run/.lock", "run/config.yaml", "run/versions.json"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_run_is_never_touched(overwrite: bool, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("years of work", encoding="utf-8")
    (tmp_path / "file").write_text("text", encoding="utf-8")
    before = snapshot(tmp_path)
    for path in (thesis, tmp_path / "file"):
        with pytest.raises(ConfigError, match="exists and is not a run directory; choose another --out"):
            RunDirectory.create(path, CONFIG, overwrite)
    with pytest.raises(ConfigError, match=r"cannot write to .*; choose another --out"):
        RunDirectory.create(tmp_path / "file" / "run", CONFIG, overwrite)
    assert snapshot(tmp_path) == before


def test_a_name_that_the_disk_refuses_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    for attempt in (lambda: check_free(path, False), lambda: RunDirectory.create(path, CONFIG, False)):
        with pytest.raises(ConfigError, match="choose another --out"):
            attempt()
    with pytest.raises(DataError, match="not a run directory"):
        RunDirectory.open(path)
    assert os.listdir(tmp_path) == []


def test_a_broken_link_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="choose another --out"):
        RunDirectory.create(link, CONFIG, overwrite=True)
    assert os.listdir(tmp_path) == ["link"]


def failing_after(num_calls: int, function: Callable[..., object]) -> Callable[..., object]:
    calls = iter(range(num_calls))

    def wrapper(*arguments: object, **options: object) -> object:
        if next(calls, None) is None:
            raise OSError(28, "No space left on device")
        return function(*arguments, **options)

    return wrapper


@pytest.mark.parametrize("num_writes", [0, 1])
def test_a_full_disk_leaves_the_old_run_and_nothing_else(
    run: RunDirectory, num_writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tmp_path)
    monkeypatch.setattr(runs, "write_atomically", failing_after(num_writes, runs.write_atomically))
    with pytest.raises(ConfigError, match="No space left on device"):
        RunDirectory.create(run.path, OTHER, overwrite=True)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("failure", [OSError(16, "Device or resource busy"), KeyboardInterrupt()])
def test_a_replacement_that_fails_half_way_puts_the_old_run_back(
    run: RunDirectory, end: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([failure])

    def fails_once(move: Callable[..., None]) -> Callable[..., None]:
        def moved(source: str | Path, target: str | Path) -> None:
            if Path(source if end == "source" else target) == run.path:
                for cause in failures:
                    raise cause
            move(source, target)

        return moved

    before = snapshot(tmp_path)
    for owner in (os, Path):  # Path has its own in Python 3.10
        for name in ("rename", "replace"):
            monkeypatch.setattr(owner, name, fails_once(getattr(owner, name)))
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        RunDirectory.create(run.path, OTHER, overwrite=True)
    assert snapshot(tmp_path) == before


def test_only_a_complete_run_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    with pytest.raises(DataError, match=r"has no config\.yaml.*train again with another --out"):
        RunDirectory.open(tmp_path / "half")
    for name in ("missing", "half/config.yaml"):
        with pytest.raises(DataError, match="not a run directory; give the --out of an earlier `stochflow train`"):
            RunDirectory.open(tmp_path / name)


def test_a_rewritten_config_reads_back(run: RunDirectory) -> None:
    run.rewrite_config(OTHER)
    assert run.config() == OTHER


@pytest.mark.parametrize("content", [b"", b"seed: 2020-13-45\n", b"\xff\xfe", b"- 1\n", b"frobnicate: 1\n", b"seed: ["])
def test_a_damaged_config_is_an_error_and_not_a_crash(run: RunDirectory, content: bytes) -> None:
    (run.path / "config.yaml").write_bytes(content)
    if content:
        with pytest.raises(StochflowError):
            run.config()
    else:
        assert run.config() == Config()


def test_metrics_are_one_row_per_step(run: RunDirectory) -> None:
    assert run.metrics().empty
    run.append_metrics({"step": 1, "loss": 0.5})
    run.append_metrics({"step": 2, "loss": 0.25, "regret": 0.1})
    frame = run.metrics()
    assert list(frame.columns) == ["step", "loss", "regret"]
    assert frame["loss"].tolist() == [0.5, 0.25]
    assert frame["regret"].isna().tolist() == [True, False]


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b'{"step": 3', b'{"st\xff', b"\x00\x00\x00", b"[3]\n", b"null\n"])
def test_a_line_cut_short_is_passed_over_and_mended(run: RunDirectory, torn: bytes) -> None:
    for step in (1, 2):
        run.append_metrics({"step": step, "loss": 1 / 3})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert run.metrics()["step"].tolist() == [1, 2]
    run.rewind_metrics(2)
    run.append_metrics({"step": 3, "loss": 0.0})
    assert run.metrics().to_dict("list") == {"step": [1, 2, 3], "loss": [1 / 3, 1 / 3, 0.0]}


def test_a_record_that_does_not_fit_its_checksum_is_left_out_and_said(run: RunDirectory) -> None:
    for step in (1, 2, 3):
        run.append_metrics({"step": step, "loss": 0.25, "regret": float("nan")})
    path = run.path / "metrics.jsonl"
    whole = path.read_text(encoding="utf-8")
    assert [json.loads(line)["loss"] for line in whole.splitlines()] == [0.25] * 3  # any reader of JSON will do
    lines = whole.splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace("0.25", "0.35"), lines[2]]), encoding="utf-8")
    assert run.metrics()["step"].tolist() == [1, 3]
    with pytest.warns(UserWarning, match=r"metrics.jsonl is damaged: it does not hold each of its first 3 steps once"):
        run.rewind_metrics(3)
    assert run.metrics()["step"].tolist() == [1, 3]


def test_no_flipped_bit_changes_a_figure(run: RunDirectory) -> None:
    record = {"step": 1, "loss": 1 / 3, "regret": 12.5}
    run.append_metrics(record)
    path = run.path / "metrics.jsonl"
    whole = path.read_bytes()
    for place in range(8 * (len(whole) - 1)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        for row in run.metrics().to_dict("records"):
            assert {name: row.get(name) for name in record} == record


def test_records_of_older_runs_have_no_checksum_and_get_one_on_resume(run: RunDirectory) -> None:
    path = run.path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n', encoding="utf-8")
    assert run.metrics().to_dict("list") == {"step": [1], "loss": [0.5]}
    run.rewind_metrics(1)
    assert '"crc32": ' in path.read_text(encoding="utf-8")
    assert run.metrics().to_dict("list") == {"step": [1], "loss": [0.5]}


def test_rewinding_drops_what_came_after_a_step(run: RunDirectory) -> None:
    run.rewind_metrics(0)  # nothing yet
    for step in (1, 2, 3, 4):
        run.append_metrics({"step": step, "loss": step / 7})
    kept = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:2]
    run.rewind_metrics(2)
    assert (run.path / "metrics.jsonl").read_bytes() == b"".join(kept)
    run.rewind_metrics(0)
    assert run.metrics().empty


def test_a_summary_reads_back_as_itself(run: RunDirectory, summary: Summary) -> None:
    run.write_summary(summary)
    assert run.summary() == summary
    assert list(json.loads((run.path / "summary.json").read_text(encoding="utf-8"))) == list(Summary.model_fields)


def test_a_missing_or_damaged_summary_names_the_remedy(run: RunDirectory, summary: Summary) -> None:
    with pytest.raises(DataError, match="no summary yet; finish it with --resume"):
        run.summary()
    run.write_summary(summary)
    path = run.path / "summary.json"
    whole = path.read_bytes()
    for content in (whole[:-20], b"", b"{}", b"\xff", whole.replace(b'"seed": 4', b'"seed": "x"')):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is damaged; run `stochflow evaluate` on it"):
            run.summary()


def test_csv_and_jsonl_parse_back_to_the_same_table() -> None:
    rows = csv.DictReader(io.StringIO(format_samples(FRAME, "csv")))
    from_csv = pd.DataFrame(list(rows)).astype(FRAME.dtypes.to_dict())
    pd.testing.assert_frame_equal(from_csv, FRAME, check_exact=True)
    lines = format_samples(FRAME, "jsonl").splitlines()
    from_jsonl = pd.DataFrame([json.loads(line) for line in lines])
    pd.testing.assert_frame_equal(from_jsonl, FRAME, check_exact=False, atol=1e-14, rtol=0)


def test_fasta_holds_one_entry_per_design(tmp_path: Path) -> None:
    text = format_samples(FRAME, "fasta")
    assert text.splitlines() == [
        ">design_1 score=0.333333 log_prob=-11.0904",
        "ACGT",
        ">design_2 score=0 log_prob=-1e-17",
        "TTTT",
    ]
    (tmp_path / "designs.fasta").write_text(text, encoding="utf-8")
    assert read_sequences(tmp_path / "designs.fasta") == FRAME["sequence"].tolist()


def test_samples_are_written_as_csv_and_fasta(run: RunDirectory) -> None:
    run.write_samples(FRAME)
    for style in ("csv", "fasta"):
        path = run.path / f"samples.{style}"
        assert path.read_text(encoding="utf-8") == format_samples(FRAME, style)
        assert read_sequences(path) == FRAME["sequence"].tolist()


@pytest.mark.parametrize("style", ["csv", "jsonl", "fasta"])
def test_no_designs_are_an_empty_table(style: str) -> None:
    text = format_samples(FRAME.head(0), style)
    assert text.split() == (["sequence,intended,score,log_reward,log_prob"] if style == "csv" else [])


def test_an_unknown_format_lists_the_ones_there_are() -> None:
    with pytest.raises(ConfigError, match="'xml'; choose one of: csv, fasta, jsonl"):
        format_samples(FRAME, "xml")
