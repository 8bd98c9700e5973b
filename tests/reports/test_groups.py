"""What seeds say together: hand-worked medians and bands, groups that do not mix."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stochflow.config.layers import resolve
from stochflow.config.schema import Config
from stochflow.reports.groups import BATCH_SCORE, MEASURES, ceiling, counted_in, curve, grouped, measures_of
from stochflow.reports.reader import RunRecord


def record(name: str, config: Config | None = None, **columns: list[float]) -> RunRecord:
    return RunRecord(Path(name), name, config or Config(), None, pd.DataFrame(columns), pd.DataFrame(), {}, ())


def test_a_curve_is_the_median_over_the_seeds_that_got_that_far() -> None:
    runs = [
        record("a", trajectories=[0, 10, 20], regret=[4.0, 2.0, 1.0]),
        record("b", trajectories=[0, 20], regret=[8.0, 3.0]),
        record("c", trajectories=[0, 10], regret=[6.0, np.nan]),
    ]
    found = curve(runs, "regret", "trajectories")
    assert found is not None
    np.testing.assert_allclose(found.x, [0, 10, 20])
    np.testing.assert_allclose(found.median, [6.0, (2.0 + 5.5) / 2, 2.0])
    np.testing.assert_allclose(found.low, [4.0, 2.0, 1.0])
    np.testing.assert_allclose(found.high, [8.0, 5.5, 3.0])
    assert curve(runs, "tv", "trajectories") is None


def test_runs_that_differ_in_more_than_their_seed_are_not_mixed() -> None:
    runs = [
        record("a"),
        record("b", resolve([{"seed": 1}])),
        record("c", resolve([{"reward": {"beta": 2.0}}])),
        record("d", resolve([{"channel": {"noise": 0.5}}])),
        record("e", resolve([{"seed": 1, "device": "cpu"}])),
    ]
    found = {(group.condition, group.method): [run.name for run in group.runs] for group in grouped(runs)}
    assert found == {
        ("noise 0.25", "sgfn-kl"): ["a", "b", "e"],
        ("noise 0.25", "sgfn-kl reward.beta=2.0"): ["c"],
        ("noise 0.5", "sgfn-kl"): ["d"],
    }


def test_a_setting_that_all_runs_share_is_in_no_label_and_tasks_are_when_they_differ() -> None:
    settings = {"reward": {"beta": 2.0}}
    runs = [record("a", resolve([settings])), record("b", resolve([settings, {"task": "tfbind8:PAX4"}]))]
    assert [group.label for group in grouped(runs)] == [
        "sgfn-kl, tfbind8, noise 0.25",
        "sgfn-kl, tfbind8:PAX4, noise 0.25",
    ]


@pytest.mark.parametrize(("regrets", "expected"), [([3.0, 1.0, 2.0], "2"), ([4.0, 1.0, 3.0, 2.0], "3"), ([5.0], "0")])
def test_the_typical_run_has_the_median_regret(regrets: list[float], expected: str) -> None:
    runs = [record(str(number), trajectories=[1], regret=[value]) for number, value in enumerate(regrets)]
    (group,) = grouped(runs)
    assert group.typical().name == expected
    (unknown,) = grouped([replace(run, metrics=pd.DataFrame()) for run in runs])
    assert unknown.typical().name == "0"


@pytest.mark.parametrize(("values", "expected"), [([3.0, 1.0, 2.0], "2"), ([4.0, 1.0, 3.0, 2.0], "2")])
def test_the_typical_run_has_the_median_j_where_there_is_no_regret(values: list[float], expected: str) -> None:
    runs = [record(str(number), trajectories=[1], j=[value]) for number, value in enumerate(values)]
    (group,) = grouped(runs)
    assert group.typical().name == expected  # of two in the middle the higher one


def test_measures_are_those_that_were_logged() -> None:
    assert [m.key for m in measures_of([record("a", regret=[1.0], tv=[np.nan])])] == ["regret"]
    assert measures_of([record("a", batch_score=[0.5])]) == [BATCH_SCORE]
    assert measures_of([record("a")]) == []
    assert [m.key for m in measures_of([record("a", j=[1.0], batch_score=[0.5])])] == ["j", "batch_score"]
    assert [m.key for m in measures_of([record("a", mean_score=[1.0], batch_score=[0.5])])] == ["mean_score"]
    assert [measure.key for measure in MEASURES] == ["regret", "j", "tv", "mean_score", "best_paid", "top100_paid"]


def test_the_ceiling_of_j_is_j_plus_regret_where_both_are_known() -> None:
    run = record("a", j=[1.0, np.nan, 3.0], regret=[6.0, np.nan, 4.0])
    assert ceiling(run, "j") == 7.0
    assert ceiling(run, "regret") is None
    assert ceiling(record("a", j=[1.0]), "j") is None
    assert ceiling(record("a", j=[1.0, np.nan], regret=[np.nan, 2.0]), "j") is None


def test_the_ceiling_of_paid_scores_is_what_the_task_allows() -> None:
    bounded, other = record("a", resolve([{"task": "ehrlich:20,15,2,4"}])), record("b")
    assert [ceiling(bounded, key) for key in ("best_paid", "top100_paid", "mean_score")] == [1.0, 1.0, None]
    assert ceiling(other, "best_paid") is None


def test_curves_go_along_calls_only_where_paid_scores_were_logged() -> None:
    without = record("a", oracle_calls=[1], j=[1.0])
    assert counted_in([without]) == "trajectories"
    assert counted_in([without, record("b", oracle_calls=[1], best_paid=[1.0])]) == "oracle_calls"
