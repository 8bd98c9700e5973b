"""The page of a run or a sweep: everything in it, nothing from elsewhere, no text that becomes a tag."""

import json
import os
import re
import shutil
import sys
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.cli import app as cli
from stochflow.core.errors import ConfigError
from stochflow.reports import page as module
from stochflow.reports.logo import information
from stochflow.reports.page import write_report
from stochflow.reports.reader import read_run
from stochflow.reports.run_section import tie_words
from tests.reports.conftest import TINY

SECTIONS = [
    *(
        "What the doctor says",
        "Learning curves",
        "Probability and reach",
        "Terms of training",
        "The channel",
        "Best designs",
    ),
    "Make it again",
]


class Reader(HTMLParser):
    """Tags with their attributes, headings, data of the page, and what a reader sees."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.text = ""
        self.data = ""
        self.inside: tuple[str, str | None] = ("", None)
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = (tag, dict(attrs).get("id"))

    def handle_endtag(self, tag: str) -> None:
        self.inside = ("", None)

    def handle_data(self, data: str) -> None:
        tag, name = self.inside
        if tag == "h2":
            self.headings.append(data)
        if tag == "script":
            self.data += data if name == "data" else ""
        elif tag != "style":
            self.text += data

    def count(self, tag: str) -> int:
        return [found for found, _ in self.tags].count(tag)

    @property
    def figures(self) -> list[Any]:
        found: list[Any] = json.loads(self.data)
        return found

    @property
    def places(self) -> list[int]:
        return [int(str(found["data-figure"])) for _, found in self.tags if "data-figure" in found]


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Five megabytes of plotly.js say nothing about this page; tests that need them have it in their name."""
    if "plotly" not in request.node.name:
        monkeypatch.setattr(module, "plotly_js", lambda: "window.Plotly = {};")


def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["stochflow", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def test_a_run_has_its_figures_sections_designs_and_command(run: Path) -> None:
    path = stochflow.report(run)
    assert path == run / "report.html"
    reader = Reader(path)
    summary = json.loads((run / "summary.json").read_text())
    assert reader.headings == SECTIONS
    assert "tfbind8, sgfn-db, noise 0.25, seed 0" in reader.text
    for key in ("regret", "kl", "min_kl", "tv", "mean_score", "attainable_score"):
        assert f"{summary[key]:#.3g}" in reader.text
    assert "stochflow train tfbind8 --method sgfn-db --noise 0.25 --seed 0 --trajectories 192" in reader.text
    assert json.loads((run / "versions.json").read_text())["torch"] in reader.text
    assert "Not everything is here" not in reader.text
    assert sorted(reader.places) == list(range(len(reader.figures)))
    assert reader.count("svg") == 1
    assert reader.count("tr") == 101 + 1 + len(stochflow.doctor(run)[0].findings)  # two headings, designs, findings


def test_a_task_too_large_for_a_regret_is_reported_by_j(tmp_path: Path) -> None:
    for seed in (0, 1):
        out = tmp_path / "runs" / f"run-{seed}"
        stochflow.train("ehrlich:20,15,2,4", method="sgfn-db", seed=seed, trajectories=192, settings=TINY, out=out)
    run = stochflow.load(out)
    assert run.metrics["start_j"].notna().tolist() == [True, False, False]
    assert run.metrics["j"].notna().tolist() == [False, True, True]  # after every 0.34 of the budget
    text = Reader(stochflow.report(out)).text
    assert f"{run.summary.j:#.3g}" in text
    assert f"± {run.summary.j_se:.2g} nats" in text
    assert "Regret" not in text
    page = stochflow.report(tmp_path).read_text(encoding="utf-8")
    assert "J by method and noise" in page
    options = re.findall(r"<option[^>]*>([^<]*)", page)
    assert [name for name in options if name in ("Regret", "J", "Score of training batches")] == [
        "J",
        "Score of training batches",
    ]


def test_a_sweep_compares_all_runs_and_shows_one_per_method_and_noise(sweep: Path, tmp_path: Path) -> None:
    path = stochflow.report(sweep, tmp_path / "mine.html")
    assert path == tmp_path / "mine.html"
    assert not (sweep / "report.html").exists()
    reader = Reader(path)
    assert [name for name in reader.headings if name not in SECTIONS] == ["One run in detail"]
    assert "6 runs, 6 of them ended: 2 methods, 2 conditions." in reader.text
    details = [found["data-choice"] for _, found in reader.tags if found.get("data-part") == "details"]
    assert details == ["0", "1", "2", "3"]
    options = re.findall(r"<option[^>]*>([^<]*)", path.read_text(encoding="utf-8"))
    for label in ("sgfn-db, noise 0.25", "sgfn-kl-gamma, noise 0.5", "Regret", "averaged over all", "8"):
        assert label in options
    assert "stochflow compare --tasks tfbind8 --methods sgfn-db,sgfn-kl-gamma --noise 0.25,0.5 --seeds 3" in reader.text
    assert reader.text.count("stochflow train ") == 6
    assert sorted(reader.places) == list(range(len(reader.figures)))


def test_a_sweep_too_large_for_one_page_says_which_runs_it_shows(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FIGURES", 0)
    reader = Reader(write_report(sweep))
    assert "1 of 4 fit here; each of the others has its own page: stochflow report RUN." in reader.text
    assert [found["data-choice"] for _, found in reader.tags if found.get("data-part") == "details"] == ["0"]


def test_a_half_finished_sweep_is_reported_with_what_is_there(sweep: Path) -> None:
    for name in ("summary.json", "samples.csv", "metrics.jsonl"):
        (sweep / "runs/sgfn-kl-gamma-0.5-0" / name).unlink()
    (sweep / "runs/sgfn-db-0.25-2/summary.json").unlink()
    (sweep / "runs/sgfn-db-0.5-0/config.yaml").write_text("nonsense: 1")
    reader = Reader(write_report(sweep))
    assert "5 runs, 3 of them ended" in reader.text
    assert "The run sgfn-db-0.5-0 is left out: unknown setting 'nonsense'" in reader.text
    assert "sgfn-kl-gamma-0.5-0: There is no metrics.jsonl" in reader.text
    seeds = [trace["customdata"][0][1] for trace in reader.figures[0]["traces"] if trace["x"]]
    assert seeds == [2, 1]


def test_the_doctor_has_a_section(run: Path, sweep: Path) -> None:
    healthy = Reader(write_report(run)).text
    (run / "summary.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0])
    text = Reader(write_report(run)).text
    assert "unfinished" in text
    assert "unfinished" not in healthy.partition("Learning curves")[0].partition("What the doctor says")[2]
    assert f"stochflow train --resume --out runs/{run.name}" in text
    assert str(run.parent) not in text  # a page to pass on
    shutil.rmtree(sweep / "runs" / "sgfn-db-0.25-2")
    shutil.copytree(run, sweep / "runs" / "sgfn-db-0.25-2")
    text = Reader(write_report(sweep)).text
    assert re.search(r"Something is wrong with \d of 6 runs\.", text)
    assert "--out runs/sgfn-db-0.25-2" in text


def test_a_run_that_has_only_begun_is_a_page_that_says_what_is_missing(run: Path) -> None:
    for name in ("summary.json", "samples.csv", "metrics.jsonl", "versions.json"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoint")
    reader = Reader(write_report(run))
    for sentence in (
        "There is no summary.json",
        "There is no metrics.jsonl",
        "There is no samples.csv",
        "The versions.json is missing",
        "The sampler cannot be restored",
        "Nothing was logged that could be drawn.",
        "No designs have been drawn yet.",
        "There is neither a sampler that can be restored nor a design with its probability.",
    ):
        assert sentence in reader.text
    assert reader.figures == []
    assert "stochflow train tfbind8 --method sgfn-db" in reader.text


def test_a_sweep_in_which_nothing_has_ended_has_nothing_to_compare(sweep: Path) -> None:
    for path in sweep.glob("runs/*/summary.json"):
        path.unlink()
    assert "No run has ended yet, so there is nothing to compare." in Reader(write_report(sweep)).text


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_text_of_a_run_is_text_and_never_tags(kind: str, poisoned_run: Path, tmp_path: Path) -> None:
    place = poisoned_run.rename(tmp_path / "<b>run")
    if kind == "sweep":
        (tmp_path / "<b>s" / "runs").mkdir(parents=True)
        place.rename(tmp_path / "<b>s" / "runs" / "<b>run")
        place = tmp_path / "<b>s"
    reader = Reader(write_report(place))
    assert reader.text.count("onerror=") > 5
    assert reader.count("script") == 3
    assert reader.count("img") == 0
    assert not [tag for tag, attributes in reader.tags if any(name.startswith("on") for name in attributes)]
    tiles = sum(found.get("class") == "tile" for _, found in reader.tags)
    assert reader.count("b") == tiles
    texts = json.dumps([trace.get("name", "") for figure in reader.figures for trace in figure["traces"]])
    assert "&lt;img" in texts
    assert "<img" not in texts


def test_the_page_loads_nothing_and_forbids_it(sweep: Path) -> None:
    path = write_report(sweep)
    reader = Reader(path)
    assert not [found for _, found in reader.tags if {"src", "href", "srcset", "action"} & set(found)]
    assert {"link", "iframe", "object", "embed", "base"}.isdisjoint(tag for tag, _ in reader.tags)
    policy = [found["content"] for _, found in reader.tags if "http-equiv" in found]
    assert str(policy[0]).startswith("default-src 'none'; ")
    assert not re.findall(r"https?://", path.read_text(encoding="utf-8"))


def test_the_page_with_plotly_stays_below_six_megabytes(sweep: Path) -> None:
    pytest.importorskip("plotly")
    assert 1_000_000 < write_report(sweep).stat().st_size < 6_000_000


def test_without_plotly_the_error_names_what_to_install(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match=r"plotly is not installed; run `pip install 'stochflow\[report\]'`$"):
        write_report(run)
    assert not (run / "report.html").exists()


def test_the_command_prints_where_the_page_is(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(monkeypatch, capsys, "report", str(run))
    assert (code, out) == (0, f"{run / 'report.html'}\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "Error: nowhere is not a folder; give a run directory"),
        (["."], "Error: . holds no run: there is neither config.yaml nor runs/*/config.yaml"),
        (["run", "--out", "run/config.yaml"], "Error: the report is an HTML page, but --out is run/config.yaml"),
        (["run", "--out", "folder.html"], "Error: folder.html is a folder; choose a file for --out"),
        (["run", "--out", "no/where.html"], "Error: cannot write to no/where.html (No such file or directory)"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_two(
    words: list[str],
    sentence: str,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(run.parent)
    Path("folder.html").mkdir()
    before = (run / "config.yaml").read_bytes()
    code, out, err = run_cli(monkeypatch, capsys, "report", *words)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1
    assert (run / "config.yaml").read_bytes() == before


def test_a_page_that_fails_leaves_the_old_one_and_no_rest(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "report.html").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_report(run)
    assert (run / "report.html").read_text() == "old"
    assert not list(run.glob(".report*"))


def test_curves_of_a_long_task_go_along_oracle_calls_below_their_ceiling(tmp_path: Path) -> None:
    for method in ("gfn-tb", "genetic"):
        out = tmp_path / "runs" / method
        stochflow.train("motifs:YY1,24", method=method, oracle_calls=192, settings=TINY, device="cpu", out=out)
    for path in (tmp_path, tmp_path / "runs" / "genetic"):
        page = Reader(write_report(path))
        assert "Best paid score against oracle calls" in page.text
        assert "J against oracle calls" in page.text
        assert "against trajectories" not in page.text
        assert "ceiling 1" in page.data
        best = stochflow.load(tmp_path / "runs" / "genetic").summary
        assert best.log_z_true is not None
        assert best.min_kl is not None
        assert f"ceiling {best.log_z_true - best.min_kl:.2f}".rstrip("0") in page.data


def test_a_table_of_equal_scores_has_a_flat_logo_and_the_page_says_why(tmp_path: Path) -> None:
    words = ["".join(letters) for letters in product("ACGT", repeat=5)]
    table = tmp_path / "flat.csv"
    table.write_text("sequence,score\n" + "".join(f"{word},1\n" for word in words), encoding="utf-8")
    settings = [*TINY, "evaluation.num_samples=1000"]
    run = stochflow.train(table=table, method="sgfn-db", steps=1, settings=settings, out=tmp_path / "run")
    designs = read_run(run.path).samples
    best = designs["sequence"].head(100).tolist()
    # 100 random designs have 0.02 bits at a position, and the first 100 of the alphabet 2 at the first
    assert max(sum(column.values()) for column in information(best, num_letters=4)) < 0.15
    text = Reader(write_report(run.path)).text
    assert f"They are chosen at random among {len(designs)} designs with the same score." in text
    assert "As many random designs would show about 0.022 bits." in text


def test_a_choice_among_equals_is_told_only_where_there_was_one() -> None:
    scores = pd.Series([3.0, 2.0, 2.0, 1.0])
    assert [tie_words(scores, num) for num in (1, 3, 4)] == ["", "", ""]
    assert tie_words(scores, 2) == " The last 1 of them is chosen at random among 2 designs with the same score."
    assert tie_words(pd.Series([1.0, 1.0, 1.0]), 2) == " They are chosen at random among 3 designs with the same score."
