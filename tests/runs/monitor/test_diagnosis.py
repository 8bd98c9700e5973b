"""What is said of a run from its files."""

from typing import Any

import pytest

from stochflow.evaluation.summary import Summary
from stochflow.runs.monitor.diagnosis import run_findings
from tests.runs.monitor.conftest import MakeRecords, config_of

FALLING = [0.6 * 0.93**step for step in range(100)]
GOOD: dict[str, Any] = {
    "task": "tfbind8",
    "method": "sgfn-kl",
    "noise": 0.25,
    "beta": 3.0,
    "seed": 0,
    "steps": 100,
    "trajectories": 6400,
    "oracle_calls": 6000,
    "kl": 0.013,
    "min_kl": 0.003,
    "regret": 0.01,
    "tv": 0.05,
    "min_tv": 0.008,
    "mean_score": 0.64,
    "attainable_score": 0.65,
    "top100_mean": 0.9,
    "top100_hamming": 5.0,
    "num_modes": 30,
    "log_z": 9.1,
    "log_z_true": 9.16,
    "dynamics_ce": 0.689,
    "dynamics_ce_floor": 0.6886,
    "seconds": 10.0,
    "top100_edit": 4.0,
    "unique_fraction": 0.98,
    "novelty": None,
    "status": "finished",
}


def found(
    records: list[dict[str, Any]],
    changes: dict[str, Any] | None = None,
    method: str = "sgfn-kl",
    zero_share: float | None = 0.0,
    **settings: Any,
) -> dict[str, str]:
    """Severity by kind of what is found in a run like a good one, but for the changes."""
    summary = Summary(**GOOD | {"method": method} | (changes or {}))
    findings = run_findings(config_of(method, **settings), summary, records, zero_share)
    return {finding.kind: finding.severity for finding in findings}


def test_nothing_is_found_in_a_good_run(make_records: MakeRecords) -> None:
    assert found(make_records(regret=FALLING)) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dynamics_ce": 0.9}, {"dynamics": "bad"}),
        ({"dynamics_ce": 0.75}, {}),
        ({"dynamics_ce": None}, {}),
        ({"min_kl": 0.2, "kl": 0.21, "log_z": 8.9}, {"infeasible": "note"}),
        ({"min_tv": 0.3}, {"infeasible": "note"}),
        ({"log_z": 12.0}, {"log-z": "bad"}),
        ({"log_z": 8.5}, {}),
        ({"regret": 0.9}, {"worse": "bad"}),
        ({"regret": 0.3}, {"far": "note"}),
        ({"regret": 0.1}, {}),
        ({"status": "interrupted"}, {"unfinished": "bad"}),
        ({"scored_fraction": 0.1}, {"oracle": "note"}),
    ],
)
def test_figures_of_the_end_are_explained(
    changes: dict[str, Any], expected: dict[str, str], make_records: MakeRecords
) -> None:
    assert found(make_records(regret=FALLING), changes) == expected


def test_a_policy_near_its_optimum_is_good_however_far_the_target_is(make_records: MakeRecords) -> None:
    changes = {"min_kl": 3.0, "kl": 3.01, "min_tv": 0.8, "tv": 0.81, "log_z": 6.2}
    assert found(make_records(regret=FALLING), changes) == {"infeasible": "note"}


def test_log_z_is_held_against_what_the_method_aims_at(make_records: MakeRecords) -> None:
    records = make_records(regret=FALLING)
    off = {"kl": 2.0, "min_kl": 0.09, "log_z": 7.2}
    assert "log-z" in found(records, off)  # planned: log Z − min KL
    assert "log-z" not in found(records, off, "sgfn-kl-trajectory")  # log Z − KL
    assert "log-z" in found(records, off, "sgfn-db")
    assert "log-z" not in found(records, off, "sac")  # its value is not about log Z


def test_a_regret_that_still_falls_asks_for_a_larger_budget(make_records: MakeRecords) -> None:
    slow = [0.6 * 0.99**step for step in range(100)]
    assert found(make_records(regret=slow), {"regret": slow[-1]}) == {"far": "note", "budget": "note"}
    settled = [max(regret, 0.3) for regret in slow]
    assert found(make_records(regret=settled), {"regret": 0.3}) == {"far": "note"}


def test_zero_scores_are_seen_in_the_drawn_designs(make_records: MakeRecords) -> None:
    assert found(make_records(regret=FALLING), zero_share=0.95) == {"zero-scores": "bad"}
    assert found(make_records(regret=FALLING), zero_share=0.5) == {}
    assert found(make_records(regret=FALLING), zero_share=None) == {}


def test_an_oracle_budget_that_could_not_be_spent_is_told_of(make_records: MakeRecords) -> None:
    records, budget = make_records(regret=FALLING), {"oracle_calls": 10_000}
    assert found(records, budget=budget) == {"oracle": "bad"}
    assert found(records, {"oracle_calls": 10_000}, budget=budget) == {}


def test_a_replay_smaller_than_a_batch_is_told_of(make_records: MakeRecords) -> None:
    assert found(make_records(regret=FALLING), optimiser={"replay_size": 10}) == {"replay": "note"}


def test_an_alarm_that_stands_is_said_instead_of_its_consequences(make_records: MakeRecords) -> None:
    assert found(make_records(regret=0.6), {"regret": 0.6, "log_z": 12.0}) == {"stalled": "bad"}


def test_an_alarm_that_has_passed_is_worth_knowing(make_records: MakeRecords) -> None:
    gaps = [3.0 if step < 50 else 0.0 for step in range(100)]
    assert found(make_records(regret=FALLING, entropy_gap=gaps)) == {"collapsed": "note"}


def test_a_run_without_a_summary_is_unfinished(make_records: MakeRecords) -> None:
    findings = run_findings(config_of(), None, make_records(regret=FALLING)[:50])
    assert [(finding.kind, finding.severity) for finding in findings] == [("unfinished", "bad")]
    assert "50% of its budget after 50 steps" in findings[0].seen
    assert "--resume" in findings[0].remedy


@pytest.mark.parametrize("method", ["random", "mcmc"])
def test_a_method_that_trains_nothing_is_not_blamed_for_its_regret(method: str, make_records: MakeRecords) -> None:
    assert found(make_records(regret=0.6), {"regret": 1.4}, method) == {}


UNKNOWN = dict.fromkeys(("kl", "min_kl", "regret", "tv", "min_tv", "attainable_score", "log_z_true"))
RISING = [4.0 + 6.0 * (1.0 - 0.93**step) for step in range(100)]


@pytest.mark.parametrize(
    ("course", "end", "expected"),
    [
        (RISING, 10.0, {}),
        (RISING, 3.0, {"worse": "bad", "falling": "note"}),
        (RISING, 3.9, {"falling": "note"}),  # within the noise of the start, but far below what was there
        (RISING, 9.5, {}),  # down by less than a tenth of the gain
        ([4.0 + 0.06 * step for step in range(100)], 9.94, {"budget": "note"}),
        ([10.0 if step < 50 else 8.0 for step in range(100)], 8.0, {"falling": "note"}),
        (RISING, None, {}),
    ],
)
def test_j_is_read_where_there_is_no_regret(
    course: list[float], end: float | None, expected: dict[str, str], make_records: MakeRecords
) -> None:
    columns = {"start": None, "start_j": 4.0, "j": course, "j_se": 0.1, "intended_spread": 0.5}
    records = make_records(**columns)
    changes = UNKNOWN | {"j": end, "j_se": None if end is None else 0.03}
    assert found(records, changes) == expected
    assert found(records, changes, "mcmc") == {}


def test_a_regret_that_is_estimated_must_move_by_more_than_its_error(make_records: MakeRecords) -> None:
    records = make_records(regret=[0.6 if step < 10 else 0.3 for step in range(100)])
    assert found(records, {"regret": 0.25, "regret_se": None}) == {"far": "note", "budget": "note"}
    assert found(records, {"regret": 0.25, "regret_se": 0.02}) == {"far": "note"}
    assert "worse" in found(records, {"regret": 0.7})
    assert "worse" not in found(records, {"regret": 0.7, "regret_se": 0.05})
    noisy_start = make_records(regret=[0.6 if step < 10 else 0.3 for step in range(100)], start_j=4.0, j=4.3, j_se=0.05)
    assert "worse" not in found(noisy_start, {"regret": 0.7, "regret_se": 0.01})
    assert "worse" in found(noisy_start, {"regret": 0.9, "regret_se": 0.01})


def test_noise_that_no_policy_overcomes_is_told_without_a_tv(make_records: MakeRecords) -> None:
    records = make_records(regret=0.01)
    assert "infeasible" in found(records, {"regret": 0.01, "min_kl": 2.5, "min_tv": None})
    assert "infeasible" not in found(records, {"regret": 0.01, "min_kl": 0.01, "min_tv": None})


def test_intentions_that_were_ruled_out_are_recognised(make_records: MakeRecords) -> None:
    lost = {"regret": FALLING, "imitation_loss": 0.6, "kl_loss": 0.45}
    assert found(make_records(**lost)) == {"ruled-out": "bad"}
    assert found(make_records(**lost | {"imitation_loss": 0.01})) == {}
    coming_back = [0.6 if step < 90 else 0.1 for step in range(100)]
    assert found(make_records(**lost | {"imitation_loss": coming_back})) == {}
    still_moving = [2.0 * 0.96**step for step in range(100)]
    assert found(make_records(**lost | {"kl_loss": still_moving})) == {}
    assert found(make_records(**lost)[:85], {"status": "interrupted"}) == {"unfinished": "bad"}
    assert "ruled-out" not in found(make_records(**lost | {"regret": 0.6}))  # that is a policy that never moved


@pytest.mark.parametrize(("weight", "advice"), [(0.0, "0 now; try 0.1"), (0.1, "0.1 now; try 1")])
def test_the_remedy_for_ruled_out_intentions_is_a_larger_weight(
    weight: float, advice: str, make_records: MakeRecords
) -> None:
    config = config_of(objective={"imitation_weight": weight})
    records = make_records(regret=FALLING, imitation_loss=0.6, kl_loss=0.45)
    (finding,) = run_findings(config, Summary(**GOOD), records)
    assert f"objective.imitation_weight ({advice})" in finding.remedy
