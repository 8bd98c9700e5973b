"""The history of a run: read from anything, and no larger for more steps."""

import math
from typing import Any

import pytest

from stochflow.config.schema import BudgetConfig
from stochflow.runs.monitor.history import History, history_of, share_spent
from tests.runs.monitor.conftest import MakeRecords, config_of


@pytest.mark.parametrize(
    ("budget", "share"),
    [({"steps": 10}, 0.3), ({"trajectories": 400}, 0.5), ({"minutes": 2}, 0.1), ({"oracle_calls": 50}, 1.0)],
)
def test_the_share_spent_is_that_of_the_budget(budget: dict[str, Any], share: float) -> None:
    record = {"step": 3, "trajectories": 200, "seconds": 12.0, "oracle_calls": 60}
    assert share_spent(BudgetConfig(**budget), record) == pytest.approx(share)


def test_a_budget_that_no_float_can_hold_is_no_error() -> None:
    assert share_spent(BudgetConfig(oracle_calls=10**400), {"oracle_calls": 5}) == pytest.approx(0.0)


def test_means_are_those_of_the_steps_between_two_shares(make_records: MakeRecords) -> None:
    history = history_of(config_of(), make_records(loss=list(range(100)), batch_score=[1.0, 3.0] * 50))
    # step n ends the share n %, so the steps 10 to 19, with the losses 9 to 18, lie between the shares 10 % and 20 %
    assert history.mean_loss(0.1, 0.2) == pytest.approx(13.5)
    assert history.mean_loss(0.3, 0.3) is None
    assert history.largest_loss(0.0) == 99
    # changes of 2 from step to step, as two draws with a variance of 2 would differ
    assert history.scores(0.1, 0.2) == (pytest.approx(2.0), pytest.approx(2.0), 10)
    assert history.scores(0.3, 0.3) == (0.0, 0.0, 0)
    assert history.first_scores == [1.0, 3.0, 1.0]
    assert history.num_steps == 100


def test_a_long_run_takes_no_more_room_than_a_short_one() -> None:
    history = History(config_of())
    checks = [history.add({"step": step, "loss": 1.0}, step / 10_000) for step in range(1, 10_001)]
    assert len(history.windows) == 100
    assert sum(checks) == 20  # and is looked at no more often


@pytest.mark.parametrize("value", ["0.5", None, math.nan, math.inf, [1.0], {}, True, 10**400])
def test_what_is_no_number_is_passed_over(value: Any) -> None:
    record = {"step": value, "loss": value, "batch_score": value, "regret": value, "start_regret": value}
    history = history_of(config_of(), [record])
    assert (history.share, history.num_losses, history.start_regret, history.evaluations) == (0.0, 0, None, [])
