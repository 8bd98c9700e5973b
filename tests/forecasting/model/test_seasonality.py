"""Seasons of frequencies, and the lags and Fourier terms that follow from them."""

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import ConfigError
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of


def test_monthly_lags_are_the_recent_ones_and_those_around_one_and_two_years() -> None:
    seasonality = seasonality_of("MS")
    assert seasonality.lags == [*range(1, 15), 24, 25]
    assert seasonality.smoothing_lags == [1, 12, 13]
    assert seasonality.window == 25


def test_hours_read_the_day_and_the_week() -> None:
    seasonality = seasonality_of("h")
    assert (seasonality.season, seasonality.long_season) == (24, 168)
    assert seasonality.lags == [*range(1, 15), 23, 24, 25, 48, 49, 72, 96, 120, 144, 167, 168, 169, 336]
    assert seasonality.smoothing_lags == [1, 24, 25, 168, 169]
    assert seasonality.window == 336


def test_without_a_season_only_recent_lags_are_read() -> None:
    seasonality = seasonality_of(None)
    assert seasonality.lags == list(range(1, 15))
    assert seasonality.smoothing_lags == [1]
    assert seasonality.window == 14


def test_a_season_of_seven_days_brings_every_day_but_a_long_one_of_many_hours_does_not() -> None:
    assert {4, 6, 8, 10, 12, 14, 28} <= set(Seasonality(2, 14).lags)
    assert 180 not in Seasonality(60, 1440).lags
    assert Seasonality(60, 1440).window == 2880


def test_smoothing_may_look_further_back_than_the_regression() -> None:
    assert Seasonality(14).smoothing_lags[-1] == 15
    assert Seasonality(2, 14).smoothing_lags == [1, 2, 3, 14, 15]


@pytest.mark.parametrize(
    ("freq", "season", "long_season"),
    [
        ("D", 7, 0),
        ("B", 5, 0),
        ("W", 52, 0),
        ("W-WED", 52, 0),
        ("ME", 12, 0),
        ("QS", 4, 0),
        ("QE-NOV", 4, 0),
        ("min", 60, 1440),
        ("YS", 1, 0),
        ("2D", 1, 0),
        ("s", 1, 0),
    ],
)
def test_a_frequency_implies_its_season(freq: str, season: int, long_season: int) -> None:
    seasonality = seasonality_of(freq)
    assert (seasonality.season, seasonality.long_season) == (season, long_season)


@pytest.mark.parametrize(("freq", "day"), [("15min", 96), ("30min", 48), ("6h", 4), ("12h", 2)])
def test_parts_of_a_day_count_the_day_and_the_week(freq: str, day: int) -> None:
    seasonality = seasonality_of(freq)
    assert (seasonality.season, seasonality.long_season) == (day, 7 * day)
    assert [period for period, _ in seasonality.fourier] == [day, 7 * day]


@pytest.mark.parametrize("freq", ["7h", "24h", "50min"])
def test_steps_that_do_not_divide_a_day_have_no_season(freq: str) -> None:
    assert seasonality_of(freq) == Seasonality(1)


def test_an_unknown_frequency_is_named_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="'fortnight' is no frequency; give a pandas alias such as h, D, W, MS"):
        seasonality_of("fortnight")


def test_a_given_season_replaces_the_main_one_and_keeps_only_much_longer_periods() -> None:
    seasonality = seasonality_of("h", season_length=12)
    assert (seasonality.season, seasonality.long_season) == (12, 0)
    assert [period for period, _ in seasonality.fourier] == [12, 168, 24 * 365.25]
    assert seasonality_of("h", season_length=24) == seasonality_of("h")
    assert seasonality_of(None, season_length=5) == Seasonality(5, 0, ((5.0, 2),))


@pytest.mark.parametrize("length", [0, -1, True, 7.0, "7", 10_001])
def test_a_season_is_a_number_of_steps(length: int) -> None:
    with pytest.raises(ConfigError, match=f"season_length is {length}; give 1 for no season .* at most 10000"):
        seasonality_of("D", season_length=length)


def test_fourier_terms_repeat_after_their_period_and_leave_out_the_sine_that_is_always_zero() -> None:
    seasonality = seasonality_of("MS")
    waves = seasonality.fourier_terms(np.arange(24.0))
    assert waves.shape == (24, 11)  # six cosines, five sines
    np.testing.assert_allclose(waves[:12], waves[12:], atol=1e-12)
    np.testing.assert_allclose(waves[3, :2], [np.cos(2 * np.pi * 3 / 12), np.sin(2 * np.pi * 3 / 12)])
    # a full set of waves tells all phases apart: any seasonal pattern is a combination of them
    assert np.linalg.matrix_rank(np.column_stack([np.ones(12), waves[:12]])) == 12


def test_without_fourier_terms_there_are_no_columns() -> None:
    assert Seasonality(1).fourier_terms(np.zeros((3, 4))).shape == (3, 4, 0)


def test_what_pandas_infers_is_understood() -> None:
    times = pd.date_range("2020-01-31", periods=20, freq="ME")
    assert seasonality_of(times.freqstr).season == 12
