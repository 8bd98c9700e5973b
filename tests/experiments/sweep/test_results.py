"""Medians, intervals and winners, on tables made by hand."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stochflow.config.layers import resolve
from stochflow.evaluation.summary import Summary
from stochflow.experiments.sweep import results
from stochflow.experiments.sweep.results import COLUMNS, Results, Standing, standings
from stochflow.experiments.sweep.specification import PlannedRun

CONFIG = resolve([])


def standing_of(
    regrets: dict[str, list[float]], planned: int | None = None, metric: str = "regret", failed: str | None = None
) -> Standing:
    """The standing of methods by the metric of each of their seeds; planned: seeds there are to be."""
    num_seeds = planned or max(map(len, regrets.values()))
    runs = [
        PlannedRun(f"{method}-{seed}", "tfbind8", method, 0.25, seed, CONFIG)
        for method in regrets
        for seed in range(num_seeds)
    ]
    rows: list[dict[str, Any]] = [
        {"run": f"{method}-{seed}", "task": "tfbind8", "method": method, "noise": 0.25, "status": "finished"}
        | {metric: value}
        for method, values in regrets.items()
        for seed, value in enumerate(values)
    ]
    if failed is not None:
        rows += [{"run": f"{failed}-{num_seeds - 1}", "method": failed, "status": "failed", "error": "it broke"}]
    (standing,) = standings(pd.DataFrame(rows, columns=COLUMNS), runs)
    return standing


def test_a_winner_is_clear_of_every_other() -> None:
    found = standing_of({"b": [0.5, 0.6, 0.55], "a": [0.1, 0.12, 0.11], "c": [0.3, 0.4, 0.35]})
    assert [entry.method for entry in found.entries] == ["a", "c", "b"]
    assert found.winner == "a"
    assert found.verdict == "Winner: a; its interval lies clear of all others."
    assert found.interval == "95% bootstrap"
    assert (found.entries[0].median, found.entries[0].low, found.entries[0].high) == (0.11, 0.1, 0.12)


def test_where_intervals_meet_nobody_wins() -> None:
    found = standing_of({"a": [0.1, 0.2, 0.3], "b": [0.25, 0.35, 0.45], "c": [0.8, 0.9, 1.0]})
    assert found.winner is None
    assert found.verdict == "No clear winner: the interval of a meets that of b."


def test_a_tie_has_no_winner() -> None:
    same = [0.2, 0.2, 0.2]
    assert standing_of({"a": same, "b": same}).winner is None  # intervals that touch do not separate
    assert standing_of({"a": same, "b": [0.2000001] * 3}).winner == "a"


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_fewer_than_three_seeds_have_no_winner_and_say_so(num_seeds: int) -> None:
    found = standing_of({"a": [0.1] * num_seeds, "b": [0.9] * num_seeds})
    assert found.winner is None
    assert found.interval == "lowest and highest"
    assert "No clear winner: fewer than 3 seeds" in found.verdict


def test_who_lost_a_run_cannot_win() -> None:
    # the seeds that broke may have been the bad ones
    found = standing_of({"a": [0.1] * 4, "b": [0.9] * 5}, failed="a")
    assert found.winner is None
    assert (found.entries[0].runs, found.entries[0].planned) == (4, 5)
    assert found.verdict == "No clear winner yet: runs of a are missing."


def test_a_method_without_runs_is_listed_last() -> None:
    found = standing_of({"a": [], "b": [0.9, 0.8, 0.7]})
    assert [(entry.method, entry.median) for entry in found.entries] == [("b", 0.8), ("a", None)]
    assert found.winner is None


def test_one_method_has_nobody_to_beat() -> None:
    assert standing_of({"a": [0.1, 0.2, 0.3]}).verdict == "One method: nothing to compare."


def test_without_a_known_optimum_the_higher_score_wins() -> None:
    found = standing_of({"a": [0.1, 0.2, 0.15], "b": [0.5, 0.6, 0.55]}, metric="mean_score")
    assert (found.metric, found.winner) == ("mean_score", "b")
    assert [entry.method for entry in found.entries] == ["b", "a"]


def test_without_a_known_optimum_the_higher_j_wins() -> None:
    found = standing_of({"a": [4.1, 3.9, 4.0], "b": [12.0, 11.5, -3.0], "c": [-20.0, -21.0, -19.0]}, metric="j")
    assert (found.metric, found.winner) == ("j", None)  # one seed of b has collapsed
    assert [entry.method for entry in found.entries] == ["b", "a", "c"]
    found = standing_of({"a": [4.1, 3.9, 4.0], "b": [12.0, 11.5, 11.0]}, metric="j")
    assert found.winner == "b"


def test_many_names_are_cut_short() -> None:
    found = standing_of({name: [0.1, 0.2, 0.3] for name in "abcdef"})
    assert found.verdict == "No clear winner: the interval of a meets that of b, c, d and 2 more."


def test_a_table_with_failures_keeps_whole_numbers_whole(tmp_path: Path) -> None:
    runs = [PlannedRun(f"run-{seed}", "tfbind8", "sgfn-kl", 0.25, seed, CONFIG) for seed in range(2)]
    results = Results(tmp_path, runs)
    results.fail("run-1", "it broke,\nbadly")
    text = (tmp_path / "results.csv").read_text(encoding="utf-8")
    assert "run-1,tfbind8,sgfn-kl,0.25,1,failed," in text
    assert results.missing == ["run-0", "run-1"]
    assert results.failures == {"run-1": "it broke,\nbadly"}
    assert pd.read_parquet(tmp_path / "results.parquet").to_csv(index=False) == text


def test_channels_without_a_number_make_noise_a_text(tmp_path: Path) -> None:
    noises: list[float | str] = [0.25, "none"]
    runs = [PlannedRun(f"run-{noise}", "tfbind8", "sgfn-kl", noise, 0, CONFIG) for noise in noises]
    results = Results(tmp_path, runs)
    for run in runs:
        results.fail(run.name, "it broke")
    assert pd.read_parquet(tmp_path / "results.parquet")["noise"].tolist() == ["0.25", "none"]


def test_text_of_a_summary_is_text_in_the_results() -> None:
    texts = {name for name, field in Summary.model_fields.items() if field.annotation in (str, str | None)}
    assert texts <= results._TEXT
