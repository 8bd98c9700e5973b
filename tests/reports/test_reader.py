"""Run directories are read without trust: what is missing is said, what is damaged is left out."""

import json
from pathlib import Path

import pytest

from stochflow.core.errors import DataError, StochflowError
from stochflow.reports.reader import read_run, read_source


def test_a_whole_run_has_no_problems_and_the_figures_of_its_summary(run: Path) -> None:
    record = read_run(run)
    summary = json.loads((run / "summary.json").read_text())
    assert record.problems == ()
    assert record.latest("regret") == summary["regret"]
    assert record.title == "tfbind8, sgfn-db, noise 0.25, seed 0"
    assert len(record.metrics) == 3


def test_designs_are_distinct_best_first_and_counted(run: Path) -> None:
    (run / "samples.csv").write_text(
        "sequence,intended,score,log_reward,log_prob\nAC,AC,0.5,-2,-3\nNA,AA,0.9,-1,-4\nAC,CC,0.5,-2,-3\nGG,GG,x,-1,-4\n"
    )
    samples = read_run(run).samples
    # a sequence called NA is a sequence, and one without a score has no place in a ranking
    assert samples[["sequence", "score", "drawn"]].values.tolist() == [["NA", 0.9, 1], ["AC", 0.5, 2]]


def test_a_design_without_letters_is_none(run: Path) -> None:
    (run / "samples.csv").write_text("sequence,score,log_reward,log_prob\n,1,1,1\nACGTACGT,0.5,1,1\n")
    assert read_run(run).samples["sequence"].tolist() == ["ACGTACGT"]


def test_a_run_that_has_not_ended_shows_what_was_logged_last(run: Path) -> None:
    (run / "summary.json").unlink()
    (run / "samples.csv").unlink()
    record = read_run(run)
    assert record.summary is None
    assert record.latest("regret") == record.metrics["regret"].dropna().iloc[-1]
    assert record.latest("num_modes") is None
    assert [problem.split(":")[0] for problem in record.problems] == [
        "There is no summary.json",
        "There is no samples.csv",
    ]


def test_damaged_lines_of_metrics_are_counted_and_left_out(run: Path) -> None:
    path = run / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"step": 4, "regr\n[1, 2]\n')
    record = read_run(run)
    assert record.problems == ("2 lines of metrics.jsonl cannot be read and are left out.",)
    assert len(record.metrics) == 3
    path.write_text(whole + "\n" + '{"step": 4, "regret": "lots"}\n')
    record = read_run(run)
    assert record.problems == ()
    assert record.metrics["regret"].isna().iloc[-1]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("metrics.jsonl", None, "There is no metrics.jsonl that can be read"),
        ("metrics.jsonl", "", "The metrics.jsonl holds no training step yet"),
        (
            "metrics.jsonl",
            f'{{"step": 1, "regret": {"9" * 400}}}\n',
            "The metrics.jsonl holds a number too large",
        ),
        ("summary.json", "{", "The summary.json is damaged"),
        ("samples.csv", "sequence,score\nA,1\n", "The samples.csv is damaged"),
        ("samples.csv", "", "The samples.csv is damaged"),
        ("versions.json", None, "The versions.json is missing or damaged"),
        ("versions.json", "[]", "The versions.json is missing or damaged"),
    ],
)
def test_what_is_missing_or_damaged_is_one_sentence(run: Path, name: str, content: str | None, sentence: str) -> None:
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_text(content)
    (problem,) = read_run(run).problems
    assert problem.startswith(sentence)


def test_a_sweep_is_all_runs_in_its_folder_and_names_those_it_cannot_read(sweep: Path) -> None:
    assert len(read_source(sweep).runs) == 6
    (sweep / "runs" / "sgfn-db-0.5-0" / "config.yaml").write_text("task: [")
    source = read_source(sweep)
    assert source.is_sweep
    assert len(source.runs) == 5
    (problem,) = source.problems
    assert problem.startswith("The run sgfn-db-0.5-0 is left out: ")
    for path in sweep.glob("runs/*/config.yaml"):
        path.write_text("nonsense: 1")
    with pytest.raises(
        DataError, match=r"none of the 6 runs in .* can be read; the first says: The run sgfn-db-0\.25-0"
    ):
        read_source(sweep)


def test_a_folder_without_runs_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no run: .*give a run directory of `stochflow train`, or a sweep"):
        read_source(tmp_path)
    with pytest.raises(DataError, match=r"is not a folder; give a run directory"):
        read_source(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"is not a folder; give a run directory"):
        read_source(tmp_path / ("a" * 300))


def test_a_run_whose_config_is_damaged_is_refused(run: Path) -> None:
    (run / "config.yaml").write_text("reward: {beta: -1}")
    with pytest.raises(StochflowError, match=r"reward\.beta"):
        read_source(run)
