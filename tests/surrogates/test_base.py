"""Predictions as distributions, held-out rows, and rows that cannot be fitted."""

import math

import numpy as np
import pytest
import torch

from stochflow.core.errors import DataError
from stochflow.environments.rewards import Reward
from stochflow.surrogates.base import HeldOut, Prediction, check_rows, row_weights, unit_of, window_rows

CUBIC = Reward(beta=3.0, floor=1e-6, ramp=0.0)


def doubles(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_intervals_are_those_of_the_normal_distribution() -> None:
    low, high = Prediction(doubles(1.0), doubles(2.0)).interval(0.95)
    assert [low.item(), high.item()] == pytest.approx([1 - 2 * 1.959964, 1 + 2 * 1.959964], rel=1e-6)


def test_intervals_of_a_log_normal_error_are_ratios() -> None:
    prediction = Prediction(doubles(2.0), 2.0 * doubles(0.5).expm1(), doubles(0.5))
    low, high = prediction.interval(0.8)
    assert (low * high).item() == pytest.approx(4.0)
    assert prediction.at(1.0).item() == pytest.approx((prediction.mean + prediction.deviation).item())
    assert prediction.standardised(high).item() == pytest.approx(1.2815516, rel=1e-6)
    wide = prediction.widened(2.0)
    assert wide.standardised(high).item() == pytest.approx(1.2815516 / 2, rel=1e-6)
    assert wide.at(1.0).item() == pytest.approx((wide.mean + wide.deviation).item())


def test_the_expected_log_reward_is_an_integral() -> None:
    normal, log_normal = Prediction(doubles(0.6), doubles(0.05)), Prediction(doubles(0.6), doubles(0.1), doubles(0.2))
    grid = np.linspace(-8.0, 8.0, 100_001)
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    integral = float(np.sum(density * 3.0 * np.log(0.6 + 0.05 * grid)) * (grid[1] - grid[0]))
    assert normal.expected_log_reward(CUBIC).item() == pytest.approx(integral, abs=1e-7)
    # a log-normal error leaves E[log score] where the median is
    assert log_normal.expected_log_reward(CUBIC).item() == pytest.approx(3.0 * math.log(0.6))


def test_held_out_errors_and_what_they_explain() -> None:
    held_out = HeldOut(torch.arange(4), doubles(0, 1, 2, 3), Prediction(doubles(0, 1, 2, 1), doubles(1, 1, 1, 1)))
    assert held_out.errors.tolist() == [0, 0, 0, 2]
    assert held_out.r_squared == pytest.approx(1 - 4 / 5)
    assert held_out.coverage(0.8) == 0.75
    huge = HeldOut(held_out.rows, held_out.scores * 1e300, Prediction(held_out.prediction.mean * 1e300, doubles(1)))
    assert huge.r_squared == pytest.approx(1 - 4 / 5)


def test_equal_scores_have_no_r_squared() -> None:
    held_out = HeldOut(torch.arange(2), doubles(1, 1), Prediction(doubles(1, 1), doubles(1, 1)))
    assert math.isnan(held_out.r_squared)


@pytest.mark.parametrize(
    ("num_tokens", "scores", "variances"),
    [(2, [1.0], None), (0, [], None), (2, [1.0, math.nan], None), (2, [1.0, 1.0], [1.0, -1.0]), (1, [1.0], [1.0, 1.0])],
)
def test_rows_that_cannot_be_fitted_are_refused(
    num_tokens: int, scores: list[float], variances: list[float] | None
) -> None:
    noise = None if variances is None else doubles(*variances)
    with pytest.raises(DataError, match=r"give tokens|leave out"):
        check_rows(torch.zeros(num_tokens, 3, dtype=torch.int64), doubles(*scores), noise)


def test_a_window_of_equal_scores_has_no_row_twice() -> None:
    assert window_rows(torch.ones(10), 5).unique().numel() == 5
    assert window_rows(torch.ones(5), 5).tolist() == [0, 1, 2, 3, 4]


def test_units_and_weights() -> None:
    assert unit_of(doubles(0.1, 3.0)) == 2.0
    assert unit_of(doubles(0.0)) == 0.5
    scores = doubles(0.0, 2.0)  # variance 1
    assert row_weights(scores, doubles(0.0, 3.0)).tolist() == pytest.approx([1.0, 0.25])
    assert row_weights(scores * 1e-200, doubles(0.0, 0.0)).tolist() == [1.0, 1.0]
