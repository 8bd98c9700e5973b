"""Scores: hand-worked values, two other implementations, atoms, and truths that nobody knows."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from stochflow.forecasting.data.series import Array
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.evaluation.scoring import (
    LEVELS,
    SCORES,
    at_levels,
    covered,
    crps,
    distribution_scores,
    pit_bounds,
    pit_covered,
    point_scores,
    weighted_quantile_loss,
)

scoringrules = pytest.importorskip("scoringrules")
pytest.importorskip("utilsforecast")

TRUTH = np.array([-2.5, -0.3, 0.0, 0.4, 1.9])
NAN = float("nan")


def columns(quantiles: Array, num: int) -> Array:
    """The same distribution at every step, [L, num]."""
    return np.tile(quantiles[:, None], (1, num))


def test_the_crps_of_a_normal_distribution_is_the_closed_form() -> None:
    levels = np.arange(1, 4000) / 4000
    fine = crps(columns(norm.ppf(levels), 5), levels, TRUTH)
    coarse = crps(columns(norm.ppf(LEVELS), 5), LEVELS, TRUTH)
    exact = scoringrules.crps_normal(TRUTH, 0.0, 1.0, backend="numpy")
    np.testing.assert_allclose(fine, exact, atol=5e-4)
    # percentiles leave out the outermost hundredth, where the loss is small: one per cent too much
    np.testing.assert_allclose(coarse, exact, rtol=0.011)


def test_the_crps_of_quantiles_is_that_of_the_ensemble_they_describe(generator: torch.Generator) -> None:
    members = torch.randn(2000, 5, generator=generator, dtype=torch.float64).exp()
    truth = np.array([0.1, 0.5, 1.0, 2.0, 6.0])
    by_quantiles = crps(np.quantile(members.numpy(), LEVELS, axis=0), LEVELS, truth)
    fair = fair_crps(members, torch.as_tensor(truth)).numpy()
    other = scoringrules.crps_ensemble(truth, members.numpy(), m_axis=0, estimator="fair", backend="numpy")
    np.testing.assert_allclose(fair, other, rtol=1e-9)
    # the tail beyond the outermost percentiles is what differs
    np.testing.assert_allclose(by_quantiles, fair, atol=0.05)


def test_a_certain_forecast_is_judged_by_its_distance() -> None:
    q = np.full((99, 3), 2.0)
    np.testing.assert_allclose(crps(q, LEVELS, np.array([2.0, 5.0, -1.0])), [0, 3, 3], atol=1e-12)
    assert weighted_quantile_loss(q, LEVELS, np.array([2.0, 5.0, -1.0])) == pytest.approx(6 / 8)


def test_the_weighted_loss_of_a_single_decile_is_the_pinball_loss() -> None:
    # right at every decile but the ninth, which lies 1 above the truth: 2 · 0.1 · 1 / 9 levels / |4|
    levels = np.arange(1, 10) / 10
    q = np.full((9, 1), 4.0)
    q[8] = 5.0
    assert weighted_quantile_loss(q, levels, np.array([4.0])) == pytest.approx(0.2 / 9 / 4)


def test_nothing_but_zeros_has_no_weighted_loss() -> None:
    assert math.isnan(weighted_quantile_loss(np.zeros((99, 2)), LEVELS, np.zeros(2)))


def test_ends_between_two_levels_are_interpolated() -> None:
    q = columns(LEVELS**2, 1)
    assert at_levels(q, LEVELS, np.array([0.025]))[0, 0] == pytest.approx((0.02**2 + 0.03**2) / 2)


@pytest.mark.parametrize(("share", "low", "high"), [(0.5, 0.25, 0.75), (0.8, 0.1, 0.9), (0.95, 0.025, 0.975)])
def test_an_interval_holds_its_ends_and_nothing_beyond(share: float, low: float, high: float) -> None:
    y = np.array([low + 1e-9, low - 1e-6, high - 1e-9, high + 1e-6, NAN])
    expected = [1, 0, 1, 0, NAN]
    # F(y) = y between the levels
    np.testing.assert_array_equal(covered(columns(LEVELS, 5), LEVELS, y, share), expected)
    np.testing.assert_array_equal(pit_covered(columns(LEVELS, 5), LEVELS, y, share), expected)


def test_pit_is_the_distribution_function_where_it_is_continuous() -> None:
    y = np.array([0.01, 0.25, 0.333, 0.9876, NAN])
    low, high = pit_bounds(columns(LEVELS, 5), LEVELS, y)
    np.testing.assert_allclose(low[1:4], y[1:4], atol=1e-12)
    np.testing.assert_allclose(high[1:4], y[1:4], atol=1e-12)


def test_pit_spreads_over_an_atom_and_over_what_lies_beyond_the_levels() -> None:
    dry = columns(np.maximum(LEVELS - 0.6, 0), 5)
    low, high = pit_bounds(dry, LEVELS, np.array([0.0, -1.0, 7.0, 0.1, NAN]))
    np.testing.assert_allclose(low, [0, 0, 0.99, 0.7, NAN])
    np.testing.assert_allclose(high, [0.6, 0.01, 1, 0.7, NAN])


def test_an_atom_in_the_middle_has_both_bounds_inside() -> None:
    q = columns(np.where((LEVELS > 0.295) & (LEVELS < 0.505), 0.0, LEVELS - 0.4), 1)
    low, high = pit_bounds(np.sort(q, axis=0), LEVELS, np.zeros(1))
    assert 0.28 < low[0] < high[0] < 0.52
    assert high[0] - low[0] == pytest.approx(0.2, abs=0.02)


def test_rain_that_comes_as_forecast_is_calibrated_by_pit_though_not_by_plain_coverage(
    generator: torch.Generator,
) -> None:
    num = 20_000
    uniform = torch.rand(num, generator=generator, dtype=torch.float64).numpy()
    y = np.maximum(uniform - 0.6, 0.0)
    q = columns(np.maximum(LEVELS - 0.6, 0.0), num)
    assert covered(q, LEVELS, y, 0.8).mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / num))
    assert pit_covered(q, LEVELS, y, 0.8).mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / num))


def test_missing_truths_are_skipped() -> None:
    q = columns(norm.ppf(LEVELS), 5) * np.arange(1, 6)
    with_gap = np.where(np.arange(5) == 2, NAN, TRUTH)
    known = np.arange(5) != 2
    assert distribution_scores(q, LEVELS, with_gap) == distribution_scores(q[:, known], LEVELS, TRUTH[known])
    nothing = distribution_scores(q, LEVELS, np.full(5, NAN))
    assert set(nothing) < set(SCORES)
    assert all(math.isnan(value) for value in nothing.values())


def test_point_scores_are_as_worked_by_hand() -> None:
    # up to the cutoff the changes over two steps are |3 − 1|, |6 − 2| and, after a gap, none: their mean is 3
    history = pd.DataFrame({"unique_id": "a", "ds": range(8), "y": [1.0, 2, 3, 6, NAN, 10, 20, 1000]})
    steps = {"unique_id": "a", "cutoff": 4, "ds": [5, 6, 7], "y": [10.0, 20, NAN]}
    medians = pd.DataFrame({**steps, "one": [11.0, 18, 0], "two": [10.0, 20, 0]})
    means = pd.DataFrame({**steps, "one": [13.0, 19, 0], "two": [10.0, 20, 0]})
    scores = point_scores(medians, means, history, ["one", "two"], 2).set_index("method")
    assert scores.loc["one", "mse"] == (9 + 1) / 2
    assert scores.loc["one", "mae"] == (1 + 2) / 2
    assert scores.loc["one", "smape"] == pytest.approx((1 / 21 + 2 / 38) / 2)
    assert scores.loc["one", "mase"] == pytest.approx(1.5 / 3)
    assert (scores.loc["two", ["mse", "mae", "smape", "mase"]] == 0).all()


def test_a_constant_history_has_no_mase() -> None:
    history = pd.DataFrame({"unique_id": "a", "ds": range(4), "y": 5.0})
    table = pd.DataFrame({"unique_id": "a", "cutoff": 3, "ds": [4], "y": [6.0], "one": [5.0]})
    scores = point_scores(table, table, history, ["one"], 1)
    assert scores["mase"].isna().all()
    assert scores["mae"].tolist() == [1.0]
