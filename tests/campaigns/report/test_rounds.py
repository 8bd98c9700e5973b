"""Rounds: what came of each, which predictions were put to the test, and fair ties."""

import math

import pandas as pd
import pytest

from stochflow.campaigns.report.rounds import rank_correlation, rounds_of
from tests.campaigns.conftest import Make


def test_rounds_hold_what_was_not_ordered_and_every_ask(make: Make) -> None:
    campaign = make(batch=3)
    campaign.tell(
        pd.DataFrame({"sequence": ["AAAA", "AAAA", "CCCC"], "score": [1.0, 2.0, -4.0], "replicate": [1, 2, 1]})
    )
    plate = campaign.ask()
    campaign.tell(pd.DataFrame({"id": plate["id"], "score": [5.0, None, 7.0], "failed": ["", "yes", ""]}))
    campaign.ask(2)
    before, first, second = rounds_of(campaign.history(), campaign.settings)
    assert before.outcomes.set_index("design")["score"].to_dict() == {"AAAA": 1.5, "CCCC": -4.0}
    assert before.outcomes["wells"].tolist() == [2, 1]
    assert before.outcomes["variance"].tolist() == [0.25, 0.5]  # scatter ½ of one pair, and two values or one
    assert (first.count("measured"), first.count("failed"), first.best["measured"]) == (2, 1, plate["order"][2])
    assert (second.count("pending"), second.best, len(second.outcomes)) == (2, None, 0)
    assert second.top(4) == []


def test_a_prediction_is_tested_by_what_was_made_as_written(make: Make) -> None:
    campaign = make(batch=4)
    unfounded = campaign.ask()  # nothing was known, so nothing was predicted
    campaign.tell(unfounded[["id"]].assign(score=[0.0, 1.0, 2.0, 3.0]))
    plate = campaign.ask()
    middle = plate["predicted"] + [0.0, 0.0, 1e3, 0.0]
    other = next(name for name in ("AAAA", "CCCC", "GGGG") if name != plate["order"][3])
    campaign.tell(plate[["id"]].assign(score=middle, observed=[plate["order"][0], None, None, other]))
    first, second = rounds_of(campaign.history(), campaign.settings)
    assert len(first.checked) == 0
    assert second.checked["design"].tolist() == plate["order"].tolist()[:3]
    assert second.checked["inside"].tolist() == [True, True, False]
    assert set(second.outcomes["measured"]) == {*plate["order"][:3], other}


def test_the_best_is_nearest_to_the_target_and_keeps_the_thresholds(make: Make) -> None:
    campaign = make(goal="target:1", thresholds=["toxicity<=0.5"])
    table = {
        "sequence": ["AAAA", "CCCC", "GGGG", "TTTT"],
        "score": [1.0, 1.4, 0.7, 9.0],
        "toxicity": [0.9, 0.1, None, 0.1],
    }
    campaign.tell(pd.DataFrame(table))
    (before,) = rounds_of(campaign.history(), campaign.settings)
    assert before.best["measured"] == "GGGG"  # AAAA is toxic
    assert before.outcomes["worth"].tolist() == pytest.approx([-math.inf, -0.4, -0.3, -8.0])


def test_all_that_tie_with_the_last_are_in_the_logo(make: Make) -> None:
    campaign = make()
    designs = [a + b + "GT" for a in "ACGT" for b in "ACGT"]
    campaign.tell(pd.DataFrame({"sequence": designs, "score": [3.0] * 9 + [2.0] * 4 + [1.0] * 3}))
    (before,) = rounds_of(campaign.history(), campaign.settings)
    assert before.top(4) == designs[:13]  # ten at least, and three more that tie with the tenth
    assert before.top(5) == []


def test_ranks_of_constant_or_few_predictions_have_no_correlation() -> None:
    assert rank_correlation(pd.DataFrame({"predicted": [1.0, 2.0, 3.0], "score": [1.0, 9.0, 5.0]})) == pytest.approx(
        0.5
    )
    assert math.isnan(rank_correlation(pd.DataFrame({"predicted": [1.0, 1.0, 1.0], "score": [1.0, 9.0, 5.0]})))
    assert math.isnan(rank_correlation(pd.DataFrame({"predicted": [1.0, 2.0], "score": [1.0, 9.0]})))
