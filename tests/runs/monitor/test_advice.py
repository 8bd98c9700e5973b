"""A method is recommended only where it was the better one, and what was measured is what the results say."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.long_spaces import PARTS
from benchmarks.sweep import RESULTS
from stochflow.environments.registry import TASK_SETTINGS
from stochflow.runs.monitor.advice import (
    ENUMERABLE_BEST,
    FEWEST_TRAJECTORIES,
    LONG_CASES,
    LongCase,
    better_sampler,
    long_case,
)
from stochflow.runs.monitor.diagnosis import run_findings
from stochflow.runs.monitor.history import Estimate, History
from tests.runs.monitor.conftest import MakeRecords, config_of

PROMOTERS = {
    "task": "motifs:RUNX1+YY1,50",
    "reward": {"beta": 60.0},
    "channel": {"kind": "uniform-slip", "noise": 0.1},
    "budget": {"steps": None, "oracle_calls": 8000},
}
SIMILAR_SCORE = 0.01  # of designs that count as equally good


def history_of(method: str, exact: bool, **settings: Any) -> History:
    """A run with an exact regret, or with a J from draws."""
    history = History(config_of(method, **settings))
    history.start_regret = 0.6 if exact else None
    history.start_j = None if exact else Estimate(4.0, 0.1)
    return history


@pytest.mark.parametrize("case", LONG_CASES, ids=str)
def test_the_advice_is_what_was_measured(case: LongCase) -> None:
    rows = pd.read_csv(Path(RESULTS) / "long_spaces.csv")
    rows = rows[(rows["task"] == case.task) & (rows["noise"] == case.noise) & (rows["calls"] == case.calls)]
    medians = rows.groupby("method")[["j", "j_se", "top128_paid", "cpu_seconds"]].median()
    assert len(medians) > 1
    best = medians["top128_paid"].max()
    equally_good = medians[medians["top128_paid"] >= best - SIMILAR_SCORE]
    assert equally_good["cpu_seconds"].idxmin() == case.best_designs
    if case.highest_j is not None:
        assert medians["j"].idxmax() == case.highest_j
        others = medians.drop(case.highest_j)
        assert medians.loc[case.highest_j, "j"] > others["j"].max() + 3 * others["j_se"].max()
    (part,) = [part for part in PARTS.values() if case.task in part.tasks]
    given = TASK_SETTINGS.get(case.task.partition(":")[0], {}) | part.settings
    assert given["reward"]["beta"] == case.beta


@pytest.mark.parametrize(("file", "column"), [("rivals.csv", "trajectories"), ("long_spaces.csv", "calls")])
def test_the_best_where_everything_can_be_listed_is_what_was_measured(file: str, column: str) -> None:
    rows = pd.read_csv(Path(RESULTS) / file)
    rows = rows[rows["task"].isin(["tfbind8", "dmsc", "gb1"])]
    assert rows[column].min() >= FEWEST_TRAJECTORIES
    medians = rows.groupby(["task", "noise", "method"])["regret"].median()
    for _, found in medians.groupby(level=["task", "noise"]):
        rivals = found[~found.index.get_level_values("method").str.startswith(ENUMERABLE_BEST)]
        own = found[found.index.get_level_values("method") == ENUMERABLE_BEST]
        assert rivals.empty or float(own.iloc[0]) < float(rivals.min())


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        ("gfn-tb", {}, "sgfn-kl"),
        ("sgfn-kl", {}, None),
        ("sgfn-kl-gamma", {}, None),  # which is as good
        ("gfn-tb", {"budget": {"steps": None, "trajectories": 1000}}, None),  # fewer than anybody has tried
        ("gfn-tb", {"task": "hypergrid"}, "sgfn-kl"),
        ("sgfn-db", {"task": "hypergrid"}, None),
        ("gfn-tb", {"task": "gym:FrozenLake-v1"}, None),  # nothing was measured there
    ],
)
def test_a_better_sampler_where_everything_can_be_listed(
    method: str, settings: dict[str, Any], expected: str | None
) -> None:
    assert better_sampler(history_of(method, exact=True, **settings)) == expected


@pytest.mark.parametrize(
    ("method", "changes", "expected"),
    [
        ("gfn-tb", {}, "sgfn-kl"),
        ("sgfn-kl", {}, None),
        ("gfn-tb", {"task": "motifs:RUNX1+YY1,100"}, None),
        ("gfn-tb", {"reward": {"beta": 3.0}}, None),
        ("gfn-tb", {"channel": {"kind": "uniform-slip", "noise": 0.25}}, None),
        ("gfn-tb", {"channel": {"kind": "none"}}, None),
        ("gfn-tb", {"budget": {"steps": None, "oracle_calls": 2000}}, None),
        ("gfn-tb", {"budget": {"steps": None, "oracle_calls": 5000}}, "sgfn-kl"),
        ("gfn-tb", {"budget": {"steps": None, "minutes": 5.0}}, None),
        (
            "gfn-tb",
            {"task": "rna-bind:RNA1,50", "reward": {"beta": 8.0}, "budget": {"steps": None, "oracle_calls": 1280}},
            None,
        ),
    ],
)
def test_a_better_sampler_of_long_sequences_only_for_the_task_and_budget_that_were_measured(
    method: str, changes: dict[str, Any], expected: str | None
) -> None:
    assert better_sampler(history_of(method, exact=False, **PROMOTERS | changes)) == expected


def test_every_case_is_found_by_its_own_settings() -> None:
    for case in LONG_CASES:
        channel = {"kind": "uniform-slip", "noise": case.noise} if case.noise else {"kind": "none"}
        budget = {"steps": None, "oracle_calls": case.calls}
        given = {"task": case.task, "reward": {"beta": case.beta}, "channel": channel, "budget": budget}
        assert long_case(config_of("gfn-tb", **given)) == case


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        (
            "gfn-tb",
            "for draws in proportion to the reward use --method sgfn-kl; "
            "for only the best designs use --method genetic",
        ),
        ("genetic", "for draws in proportion to the reward use --method sgfn-kl"),
        ("sgfn-kl", "for only the best designs use --method genetic"),
    ],
)
def test_the_doctor_names_who_was_better_at_what(method: str, remedy: str, make_records: MakeRecords) -> None:
    rising = {"start": None, "start_j": 4.0, "j_se": 0.1, "j": [4.0 + step / 10 for step in range(100)]}
    records = make_records(**rising, intended_spread=0.5)
    found = {finding.kind: finding for finding in run_findings(config_of(method, **PROMOTERS), None, records)}
    assert (found["method"].severity, found["method"].remedy) == ("note", remedy)
    other = config_of(method, **PROMOTERS | {"task": "motifs:RUNX1+YY1,30"})
    assert "method" not in {finding.kind for finding in run_findings(other, None, records)}
    assert not any("--method" in finding.remedy for finding in run_findings(other, None, records))


def test_the_doctor_does_not_name_other_methods_to_the_better_one(make_records: MakeRecords) -> None:
    bind = {"task": "rna-bind:RNA1,50", "reward": {"beta": 8.0}, "channel": {"kind": "none"}}
    bind |= {"budget": {"steps": None, "oracle_calls": 1280}}
    records = make_records(start=None, intended_spread=0.5)
    kinds = [
        {finding.kind for finding in run_findings(config_of(method, **bind), None, records)}
        for method in ("sgfn-kl", "adalead")
    ]
    assert ["method" in found for found in kinds] == [False, True]
