"""Intervals that can be recomputed, and that hold what they should."""

import numpy as np
import pytest

from stochflow.evaluation.bootstrap import median_interval


def test_the_interval_is_the_same_on_every_call() -> None:
    values = [0.31, 0.27, 0.45, 0.29, 0.36]
    assert median_interval(values) == median_interval(values)
    low, high = median_interval(values)
    assert min(values) <= low < 0.31 < high <= max(values)


def test_the_interval_covers_the_median_about_as_often_as_it_says() -> None:
    # medians of 25 draws of a uniform law, the draws being quantiles in an order that repeats nothing
    draws = [[(i * 0.6180339887 + j * 0.7548776662 + i * j * 0.0569840291) % 1 for i in range(25)] for j in range(60)]
    covered = [low <= 0.5 <= high for low, high in map(median_interval, draws)]
    assert sum(covered) / len(covered) > 0.85


@pytest.mark.parametrize(
    ("values", "expected"), [([0.4], (0.4, 0.4)), ([0.5, 0.3], (0.3, 0.5)), ([0.2] * 5, (0.2, 0.2))]
)
def test_few_or_equal_values_have_a_plain_interval(values: list[float], expected: tuple[float, float]) -> None:
    assert median_interval(values) == expected


def test_the_bootstrap_interval_is_the_same_every_time_and_holds_the_right_share() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert median_interval(values) == median_interval(values)
    # the median of five draws is at most the lowest value when at least three of them are:
    # Σ_{k≥3} C(5,k) 0.2^k 0.8^(5−k) = 0.0579 > 0.025, so the 2.5 % quantile is the lowest value itself
    assert median_interval(values) == (0.1, 0.5)
    # with eleven values six of the draws would have to be the lowest: far rarer than 2.5 %
    low, high = median_interval(list(np.arange(11) / 10))
    assert 0.0 < low < 0.5 < high < 1.0
