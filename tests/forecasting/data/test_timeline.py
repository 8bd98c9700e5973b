"""Grids, frequencies and irregular times, and how they go on."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.datasets import SERIES, load_series
from stochflow.forecasting.data.encoder import Encoder
from tests.forecasting.data.long_tables import DAYS, TEXT_DAYS, daily, encode, irregular


@pytest.mark.parametrize("name", ["airline", "sunspots", "unemployment", "gasoline", "goog", "peyton_manning", "solar"])
def test_the_frequency_of_real_series_is_found(name: str) -> None:
    frame = load_series(name)
    encoder = Encoder.fit(frame)
    assert encoder.timeline.freq is not None
    assert encoder.timeline.freq.split("-")[0] == SERIES[name].freq.split("-")[0]
    assert encoder.panel(frame).problems == {}


def test_a_frequency_that_would_need_millions_of_steps_is_refused() -> None:
    frame = daily()
    frame["ds"] = pd.date_range("2000-01-01", periods=30, freq="YS")
    panel = encode(frame, freq="s")
    assert panel.problems["a"].endswith("check the first and last timestamp or give a longer freq")


def test_a_frequency_nobody_knows_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="'fortnight' is no frequency"):
        Encoder.fit(daily(), freq="fortnight")


@pytest.mark.parametrize(
    ("freq", "message"),
    [
        ("0D", "freq '0D' does not go forward"),
        ("-1D", "freq '-1D' does not go forward"),
        ("99999999D", "steps of freq '99999999D' lead beyond any date"),
        ("9" * 20 + "D", "is no frequency"),
        ("ns", "freq 'ns' is finer than a microsecond; give us or longer"),
        ("²", "'²' is no frequency"),
        ("0", "freq is 0; give a step of 1 or more"),
        ("9" * 5000, "freq is 9999999999999999999999999999999999999999; give a step"),
        (5, "freq is 5, no text; give a pandas alias as text, such as 'D'"),
        (pd.offsets.MonthBegin(), "no text; give a pandas alias as text, such as 'MS'"),
    ],
)
@pytest.mark.parametrize("dates", [True, False])
def test_a_frequency_that_makes_no_grid_is_a_config_error(freq: Any, message: str, dates: bool) -> None:
    if not dates and freq == "99999999D":
        return  # beside integers it only names seasons, and has none
    with pytest.raises(ConfigError, match=message):
        Encoder.fit(daily() if dates else daily().assign(ds=range(30)), freq=freq)


def test_six_digits_are_months() -> None:
    frame = daily(num=36)
    months = pd.date_range("2019-01-01", periods=36, freq="MS")
    encoder = Encoder.fit(frame.assign(ds=months.year * 100 + months.month))
    panel = encoder.panel(frame.assign(ds=months.year * 100 + months.month))
    assert panel.times["a"].tolist() == months.tolist()
    assert encoder.future(panel.series[0], panel.times["a"], 1)[1].tolist() == [pd.Timestamp("2022-01-01")]
    # month 13 is none: these are numbers
    assert encode(daily().assign(ds=np.arange(202001, 202031))).times["a"][-1] == 202030


def test_large_integers_are_kept_and_too_large_ones_refused() -> None:
    times = np.arange(30) + 2**60 + 1
    encoder = Encoder.fit(daily().assign(ds=times))
    panel = encoder.panel(daily().assign(ds=times))
    assert panel.times["a"].tolist() == times.tolist()
    assert encoder.future(panel.series[0], panel.times["a"], 1)[1].tolist() == [2**60 + 31]
    for large in (
        np.arange(30, dtype=np.uint64) + np.uint64(2**63),
        np.arange(30) * 1e30,
        [10**30 + n for n in range(30)],
    ):
        with pytest.raises(DataError, match="in ds is beyond 64 bits; give dates or smaller integers"):
            Encoder.fit(daily().assign(ds=large))


@pytest.mark.parametrize(
    ("times", "horizon"),
    [
        (pd.date_range("2000-01-01", periods=30, freq="YS"), 8_000),
        (pd.to_datetime("2000-01-01") + pd.to_timedelta(np.arange(30) ** 2 * 9, unit="D"), 100_000),
        (np.arange(30) + (2**63 - 40), 11),
    ],
)
def test_a_horizon_beyond_the_calendar_names_the_last_time(times: Any, horizon: int) -> None:
    frame = daily().assign(ds=times)
    encoder = Encoder.fit(frame)
    panel = encoder.panel(frame)
    with pytest.raises(DataError, match=rf"series 'a': {horizon} steps after .* are later .*; shorten the horizon"):
        encoder.future(panel.series[0], panel.times["a"], horizon)


def test_irregular_times_may_have_a_zone() -> None:
    frame = irregular()
    zoned = frame.assign(ds=frame["ds"].dt.tz_localize("UTC"))
    np.testing.assert_array_equal(encode(zoned).series[0].exogenous, encode(frame).series[0].exogenous)


def test_a_last_time_far_behind_the_others_is_a_problem() -> None:
    alone = daily().assign(ds=[*DAYS[:29], pd.Timestamp("2025-06-01")])
    with pytest.raises(DataError, match="the last time, 2025-06-01, comes 1950 usual gaps after 2020-01-29; correct"):
        Encoder.fit(alone)


def test_eight_digits_are_dates() -> None:
    frame = daily()
    frame["ds"] = [int(day.replace("-", "")) for day in TEXT_DAYS]
    assert encode(frame).times["a"].tolist() == DAYS


def test_integers_keep_their_own_step_and_go_on_by_it() -> None:
    frame = daily()
    frame["ds"] = np.arange(30) * 5 + 100
    frame = frame.drop(index=4)
    encoder = Encoder.fit(frame, season_length=7)
    panel = encoder.panel(frame)
    (series,) = panel.series
    assert np.flatnonzero(~series.observed).tolist() == [4]
    exogenous, ahead = encoder.future(series, panel.times["a"], 2)
    assert ahead.tolist() == [250, 255]
    np.testing.assert_allclose(exogenous, encoder.seasonality.fourier_terms(np.array([30.0, 31.0])))


def test_kinds_of_time_must_agree_with_training() -> None:
    numbers = daily().assign(ds=range(30))
    problems = Encoder.fit(daily()).panel(numbers).problems
    assert problems["a"] == "series 'a': the times are numbers, in training they were dates; give the same kind"
    zoned = daily().assign(ds=pd.date_range("2020-01-01", periods=30, tz="UTC"))
    assert "time zone" in Encoder.fit(daily()).panel(zoned).problems["a"]


def test_years_go_on_past_three_centuries() -> None:
    frame = load_series("sunspots")
    encoder = Encoder.fit(frame)
    panel = encoder.panel(frame)
    _, ahead = encoder.future(panel.series[0], panel.times["sunspots"], 3)
    assert ahead.tolist() == [pd.Timestamp(f"{year}-01-01") for year in (2009, 2010, 2011)]


def test_fourier_terms_agree_between_series_and_between_training_and_later_tables() -> None:
    frame = pd.concat([daily("a", 60), daily("late", 40, "2020-01-21")])
    encoder = Encoder.fit(frame)
    early, late = encoder.panel(frame).series
    np.testing.assert_allclose(early.exogenous[20:], late.exogenous, atol=1e-12)
    (again,) = encoder.panel(daily("a", 20, "2020-02-01")).series
    np.testing.assert_allclose(again.exogenous, early.exogenous[31:51], atol=1e-12)


@pytest.mark.parametrize("name", ["airline", "unemployment", "gasoline", "goog"])
def test_fourier_terms_of_calendar_steps_go_on_without_a_jump(name: str) -> None:
    frame = load_series(name)
    encoder = Encoder.fit(frame)
    history, whole = frame.iloc[20:-12], encoder.panel(frame)
    panel = encoder.panel(history)
    exogenous, ahead = encoder.future(panel.series[0], panel.times[name], 12)
    assert ahead.tolist() == frame["ds"].iloc[-12:].tolist()
    np.testing.assert_allclose(
        np.concatenate([panel.series[0].exogenous, exogenous]), whole.series[0].exogenous[20:], atol=1e-9
    )


def test_irregular_times_are_measured_in_usual_gaps() -> None:
    frame = irregular()
    encoder = Encoder.fit(frame, season_length=24)
    panel = encoder.panel(frame)
    (series,) = panel.series
    assert (encoder.timeline.freq, encoder.timeline.regular, encoder.timeline.step) == (None, False, 3600.0)
    np.testing.assert_allclose(series.positions[:5], [0, 1, 3, 4, 6])
    np.testing.assert_allclose(series.exogenous[:4, -1], [0, 0, np.log(2), 0])
    assert series.exogenous[-1, -1] == pytest.approx(np.log(0.5))
    exogenous, ahead = encoder.future(series, panel.times["series"], 2)
    assert ahead.tolist() == [frame["ds"].iloc[-1] + pd.Timedelta(hours=number) for number in (1, 2)]
    np.testing.assert_allclose(exogenous[:, -1], 0, atol=1e-12)
    np.testing.assert_allclose(
        exogenous[:, :-1], encoder.seasonality.fourier_terms(series.positions[-1] + np.array([1.0, 2.0]))
    )


def test_a_future_table_says_when_irregular_times_come() -> None:
    frame = irregular()
    encoder = Encoder.fit(frame)
    panel = encoder.panel(frame)
    last = frame["ds"].iloc[-1]
    table = pd.DataFrame({"ds": [last + pd.Timedelta(hours=hours) for hours in (3, 7, 8)]})
    exogenous, ahead = encoder.future(panel.series[0], panel.times["series"], 2, table)
    assert ahead.tolist() == table["ds"].tolist()[:2]
    np.testing.assert_allclose(exogenous, np.log([[3], [4]]))
    with pytest.raises(DataError, match=r"series 'series': the future table has 3 rows after .* the horizon is 4"):
        encoder.future(panel.series[0], panel.times["series"], 4, table)
