"""Long tables become series: grids, gaps, features, and problems that stay with the series that has them."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.datasets import SERIES, load_series
from stochflow.forecasting.data.encoder import MIN_OBSERVED, Encoder, Panel

RICH = Columns(future=("price", "event"), past=("rain",), static=("size", "region"))


def daily(uid: str = "a", num: int = 30, start: str = "2020-01-01") -> pd.DataFrame:
    days = pd.date_range(start, periods=num)
    return pd.DataFrame({"unique_id": uid, "ds": days, "y": np.arange(num, dtype=float)})


def rich(num: int = 30) -> pd.DataFrame:
    """Two series with every kind of feature."""
    parts = [daily("a", num), daily("b", num)]
    for part, size, region in zip(parts, (1.0, 3.0), ("north", "south"), strict=True):
        part["price"] = np.arange(num, dtype=float)
        part["event"] = ["none", "sale", "fair"] * (num // 3)
        part["rain"] = np.arange(num)[::-1]
        part["size"], part["region"] = size, region
    return pd.concat(parts, ignore_index=True)


def encode(frame: pd.DataFrame, columns: Columns | None = None, freq: str | None = None) -> Panel:
    return Encoder.fit(frame, columns, freq).panel(frame)


def irregular(num: int = 30) -> pd.DataFrame:
    """Hours 0, 1, 3, 4, 6, 7, …: gaps of one and two, then one of thirty minutes."""
    hours = np.cumsum([0.0, *([1.0, 2.0] * num)])[: num - 1]
    hours = np.append(hours, hours[-1] + 0.5)
    return pd.DataFrame({"ds": pd.Timestamp("2020-01-01") + pd.to_timedelta(hours, unit="h"), "y": np.arange(num)})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=40),
    st.lists(st.floats(-1e308, 1e308), min_size=MIN_OBSERVED, max_size=MIN_OBSERVED),
    st.sampled_from(["D", "MS", "h", "W-SUN", None]),
    st.randoms(use_true_random=False),
)
def test_observed_values_come_through_exactly_and_nothing_is_infinite(
    some: list[float | None], enough: list[float], freq: str | None, order: object
) -> None:
    values = [*some, *enough]
    times = pd.date_range("2020-01-01", periods=len(values), freq=freq) if freq else pd.RangeIndex(len(values))
    frame = pd.DataFrame({"ds": times, "y": np.array(values, dtype=float)})
    rows = list(range(len(frame)))
    order.shuffle(rows)  # type: ignore[attr-defined]
    panel = encode(frame.iloc[rows], freq=freq)
    (series,) = panel.series
    present = frame.set_index("ds")["y"].dropna()
    assert panel.times["series"][series.observed].tolist() == present.index.tolist()
    assert series.y[series.observed].tolist() == present.tolist()
    assert np.isfinite(series.y).all()
    assert np.isfinite(series.exogenous).all()
    assert series.exogenous.shape[0] == len(series.positions) == len(series.past) == len(series)


@pytest.mark.parametrize("name", ["airline", "sunspots", "unemployment", "gasoline", "goog", "peyton_manning", "solar"])
def test_the_frequency_of_real_series_is_found(name: str) -> None:
    frame = load_series(name)
    encoder = Encoder.fit(frame)
    assert encoder.timeline.freq is not None
    assert encoder.timeline.freq.split("-")[0] == SERIES[name].freq.split("-")[0]
    assert encoder.panel(frame).problems == {}


def test_absent_rows_become_gaps_on_a_line_between_their_neighbours() -> None:
    frame = daily().drop(index=[10, 11])
    frame["y"] = frame["y"] ** 2
    (series,) = encode(frame).series
    assert np.flatnonzero(~series.observed).tolist() == [10, 11]
    np.testing.assert_allclose(series.y[9:13], [81, 81 + 21, 81 + 42, 144])
    np.testing.assert_array_equal(series.positions, np.arange(30))


def test_gaps_at_the_start_are_cut_and_gaps_at_the_end_hold_the_last_value() -> None:
    frame = daily()
    frame.loc[[0, 1, 28, 29], "y"] = np.nan
    panel = encode(frame)
    (series,) = panel.series
    assert panel.times["a"][0] == pd.Timestamp("2020-01-03")
    assert panel.times["a"][-1] == pd.Timestamp("2020-01-30")
    assert series.y[-3:].tolist() == [27, 27, 27]
    assert series.observed[-3:].tolist() == [True, False, False]


def test_rows_in_any_order_give_the_same_series() -> None:
    frame = rich()
    sorted_panel, mixed = encode(frame, RICH), encode(frame.sample(frac=1, random_state=0), RICH)
    for series in sorted_panel.series:
        other = next(candidate for candidate in mixed.series if candidate.uid == series.uid)
        for field in ("y", "observed", "exogenous", "past", "positions", "static"):
            np.testing.assert_allclose(getattr(series, field), getattr(other, field), atol=1e-12)


def test_a_table_without_ids_is_one_series() -> None:
    assert [series.uid for series in encode(daily().drop(columns="unique_id")).series] == ["series"]


def test_ids_that_are_numbers_become_text() -> None:
    frame = daily()
    frame["unique_id"] = 7
    assert list(encode(frame).times) == ["7"]


def test_a_constant_series_is_usable() -> None:
    frame = daily()
    frame["y"] = 5.0
    panel = encode(frame)
    assert panel.problems == {}
    assert set(panel.series[0].y) == {5.0}


def with_bad_series(change: dict[str, Any]) -> pd.DataFrame:
    bad = daily("bad")
    for name, values in change.items():
        bad[name] = values
    return pd.concat([daily("good"), bad, daily("fine")], ignore_index=True)


def changed(values: object, index: int, value: object) -> list[object]:
    listed = list(values)  # type: ignore[call-overload]
    listed[index] = value
    return listed


DAYS = list(daily()["ds"])
TEXT_DAYS = [str(day.date()) for day in DAYS]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ds": changed(DAYS, 3, DAYS[2])}, "2020-01-03 appears more than once in ds; keep one row per timestamp"),
        ({"y": [np.nan] * 30}, "y is missing in every row; give values or drop the series"),
        ({"y": changed(range(30), 4, np.inf)}, "y is infinite at 2020-01-05; correct it or leave it empty"),
        ({"y": [1.0] * 7 + [np.nan] * 23}, "7 values, at least 8 are needed; give a longer history"),
        (
            {"ds": changed(DAYS, 5, pd.Timestamp("2020-01-06 12:00"))},
            "2020-01-06 12:00:00 is not on the grid of freq 'D'",
        ),
        ({"ds": pd.date_range("2020-01-01", periods=30, freq="W")}, "no two rows are one step apart"),
        (
            {"ds": changed(DAYS, 29, pd.Timestamp("9999-01-01"))},
            "the last time, 9999-01-01, comes 2914242 usual gaps after 2020-01-29; correct it or drop",
        ),
        ({"ds": changed(DAYS, 7, None)}, "a row has no ds; give its time or drop the row"),
    ],
)
def test_a_bad_series_is_one_sentence_and_leaves_the_others_alone(change: dict[str, object], message: str) -> None:
    panel = encode(with_bad_series(change))
    assert [series.uid for series in panel.series] == ["good", "fine"]
    assert list(panel.problems) == ["bad"]
    assert panel.problems["bad"].startswith(f"series 'bad': {message}")
    assert "\n" not in panel.problems["bad"]


def test_a_date_that_cannot_be_read_is_one_sentence_of_its_series() -> None:
    frame = with_bad_series({}).astype({"ds": str})
    frame.loc[35, "ds"] = "31/12/2020"
    panel = encode(frame)
    assert [series.uid for series in panel.series] == ["good", "fine"]
    assert panel.problems["bad"].startswith("series 'bad': '31/12/2020' in ds is no date; write dates as 2024-01-31")


def test_dates_that_are_all_unreadable_are_one_error() -> None:
    frame = daily()
    frame["ds"] = [f"day {number}" for number in range(30)]
    with pytest.raises(DataError, match="series 'a': 'day 0' in ds is no date"):
        Encoder.fit(frame)


def test_mixed_time_zones_are_refused() -> None:
    frame = daily()
    frame["ds"] = [f"{day}T00:00+0{number % 2}:00" for number, day in enumerate(TEXT_DAYS)]
    with pytest.raises(DataError, match="ds mixes time zones; write all dates in one zone"):
        Encoder.fit(frame)


def test_fitting_on_nothing_but_problems_says_the_first() -> None:
    frame = pd.concat([daily(num=20), daily(num=20)])
    with pytest.raises(DataError, match="no series can be used; series 'a': 2020-01-01 appears more than once"):
        Encoder.fit(frame)


def test_repeated_times_without_ids_suggest_several_series() -> None:
    frame = pd.concat([daily("a"), daily("b")]).drop(columns="unique_id")
    with pytest.raises(DataError, match="if these are several series, name them in a column unique_id"):
        Encoder.fit(frame)


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


def test_waves_agree_between_series_and_between_training_and_later_tables() -> None:
    frame = pd.concat([daily("a", 60), daily("late", 40, "2020-01-21")])
    encoder = Encoder.fit(frame)
    early, late = encoder.panel(frame).series
    np.testing.assert_allclose(early.exogenous[20:], late.exogenous, atol=1e-12)
    (again,) = encoder.panel(daily("a", 20, "2020-02-01")).series
    np.testing.assert_allclose(again.exogenous, early.exogenous[31:51], atol=1e-12)


@pytest.mark.parametrize("name", ["airline", "unemployment", "gasoline", "goog"])
def test_waves_of_calendar_steps_go_on_without_a_jump(name: str) -> None:
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


def test_gaps_in_irregular_series_are_filled_by_time_not_by_row() -> None:
    frame = irregular().astype({"y": float})
    frame.loc[2, "y"] = np.nan
    (series,) = Encoder.fit(frame).panel(frame).series
    assert series.y[2] == pytest.approx(1 + 2 * 2 / 3)  # hour 3 between 1 at hour 1 and 3 at hour 4


def test_features_stand_where_the_docstring_says() -> None:
    frame = rich()
    frame.loc[3, "price"] = np.nan
    encoder = Encoder.fit(frame, RICH, season_length=1)
    first, second = encoder.panel(frame).series
    num_waves = encoder.seasonality.fourier_terms(np.zeros(1)).shape[1]
    price, events, size = np.split(first.exogenous[:, num_waves:], [1, 4], axis=1)
    assert price[3] == 0
    column = frame["price"].dropna()
    assert price[5, 0] == pytest.approx((5 - column.mean()) / column.std(ddof=0))
    np.testing.assert_array_equal(events[:3], [[0, 1, 0], [0, 0, 1], [1, 0, 0]])  # fair, none, sale
    assert (set(size[:, 0]), set(second.exogenous[:, -1])) == ({-1.0}, {1.0})  # 1 and 3 around a mean of 2
    assert first.past.shape == (30, 1)
    assert first.past.mean() == pytest.approx(0)
    assert (first.static.tolist(), second.static.tolist(), encoder.num_categories) == ([1], [2], [3])


def test_unknown_categories_are_zero() -> None:
    frame = rich()
    encoder = Encoder.fit(frame, RICH)
    later = frame.assign(region="west", event="strike")
    series = encoder.panel(later).series[0]
    assert series.static.tolist() == [0]
    assert (series.exogenous[:, -4:-1] == 0).all()


def test_absent_rows_have_features_of_zero() -> None:
    frame = rich().drop(index=[5])
    encoder = Encoder.fit(frame, RICH)
    series = encoder.panel(frame).series[0]
    assert (series.exogenous[5, -5:-1] == 0).all()
    assert series.past[5] == 0


def test_a_static_feature_that_moves_is_a_problem_of_its_series() -> None:
    frame = rich()
    frame.loc[3, "region"] = "east"
    problems = encode(frame, RICH).problems
    assert problems == {
        "a": "series 'a': the static column region holds 'north' and 'east'; "
        "give one value per series or make it a past feature"
    }


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_feature_is_a_problem_of_its_series(value: float) -> None:
    frame = rich()
    frame.loc[3, "price"] = value
    problems = encode(frame, RICH).problems
    assert problems["a"].startswith(f"series 'a': '{value}' in price is no finite number; correct it")
    assert list(problems) == ["a"]


def test_a_number_that_became_text_is_a_problem() -> None:
    frame = rich()
    later = frame.astype({"price": object})
    later.loc[2, "price"] = "cheap"
    assert "'cheap' in price is no finite number" in Encoder.fit(frame, RICH).panel(later).problems["a"]


def test_a_static_feature_may_be_missing_in_some_rows_or_all() -> None:
    frame = rich()
    frame.loc[:3, ["size", "region"]] = None
    frame.loc[frame["unique_id"] == "b", ["size", "region"]] = None
    encoder = Encoder.fit(frame, RICH)
    first, second = encoder.panel(frame).series
    assert (first.static.tolist(), second.static.tolist(), encoder.num_categories) == ([1], [0], [2])
    assert second.exogenous[0, -1] == 0


def test_numbers_of_the_category_type_are_categories() -> None:
    frame = rich()
    frame["size"] = frame["size"].astype("category")
    encoder = Encoder.fit(frame, RICH)
    assert encoder.num_categories == [3, 3]
    assert encoder.panel(frame).series[1].static.tolist() == [2, 2]


def test_a_long_series_does_not_outweigh_a_short_one_in_static_scales() -> None:
    frame = pd.concat([rich()[:30], rich()[30:50]])
    encoder = Encoder.fit(frame, RICH)
    assert encoder.features.scales["size"] == (2.0, 1.0)


def test_too_many_categories_are_refused() -> None:
    frame = daily(num=120).assign(event=[f"event {number}" for number in range(120)])
    with pytest.raises(DataError, match="column 'event' has 120 categories, at most 100 are allowed"):
        Encoder.fit(frame, Columns(future=("event",)))


def test_a_few_texts_among_numbers_are_problems_of_their_series() -> None:
    frame = pd.concat([daily("a", 120), daily("b", 120)], ignore_index=True).assign(price=[str(n) for n in range(240)])
    whole = encode(frame.astype({"price": float}), Columns(future=("price",)))
    frame.loc[7, "price"] = "cheap"
    panel = encode(frame, Columns(future=("price",)))
    assert [series.uid for series in panel.series] == ["b"]
    assert panel.problems["a"].startswith("series 'a': 'cheap' in price is no finite number")
    assert panel.series[0].exogenous.shape == whole.series[1].exogenous.shape


def test_a_static_feature_of_lists_is_a_problem_of_its_series() -> None:
    frame = rich().astype({"region": object})
    frame["region"] = ["north"] * 30 + [["south"]] * 30
    assert encode(frame, RICH).problems == {
        "b": "series 'b': the static column region holds lists; give numbers or text"
    }


def test_the_rows_ahead_continue_every_column() -> None:
    frame = rich(33)
    # rows of the past in the future table do no harm
    history, table = frame[frame["ds"] < "2020-01-31"], frame[frame["ds"] >= "2020-01-29"].drop(columns="y")
    encoder = Encoder.fit(frame, RICH)
    panel, whole = encoder.panel(history), encoder.panel(frame)
    for short, long in zip(panel.series, whole.series, strict=True):
        exogenous, ahead = encoder.future(short, panel.times[short.uid], 3, table.sample(frac=1, random_state=1))
        np.testing.assert_allclose(exogenous, long.exogenous[30:], atol=1e-12)
        assert ahead.tolist() == whole.times[short.uid][30:].tolist()


def test_a_future_table_needs_neither_target_nor_past_nor_static_columns() -> None:
    frame = rich()
    encoder = Encoder.fit(frame, RICH)
    panel = encoder.panel(frame)
    table = pd.DataFrame({"unique_id": "b", "ds": ["2020-01-31"], "price": [1.0], "event": ["sale"]})
    exogenous, _ = encoder.future(panel.series[1], panel.times["b"], 1, table)
    assert exogenous[0, -4:].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (None, r"series 'b': there is no table of future features; give its rows with ds, price, event"),
        ({"unique_id": ["a"]}, r"series 'b': the future table does not have it; give its rows with ds, price, event"),
        ({"event": None}, r"series 'b': in the future table, there is no column 'event'; the columns are: unique_id, "),
        (
            {"ds": ["2020-01-31", "2020-02-02"]},
            r"series 'b': the future table has no row for 2020-02-01; add it with price",
        ),
        ({"ds": ["2020-01-31", "2020-01-31"]}, r"series 'b': 2020-01-31 appears more than once in ds"),
        ({"ds": ["2020-01-31", "soon"]}, r"series 'b': 'soon' in ds is no date"),
    ],
)
def test_a_future_table_that_lacks_something_names_it(table: dict[str, object] | None, message: str) -> None:
    frame = rich()
    encoder = Encoder.fit(frame, RICH)
    panel = encoder.panel(frame)
    given: pd.DataFrame | None = None
    if table is not None:
        columns = {"unique_id": "b", "ds": ["2020-01-31", "2020-02-01"], "price": 1.0, "event": "sale"} | table
        given = pd.DataFrame({name: values for name, values in columns.items() if values is not None}, index=range(2))
    with pytest.raises(DataError, match=message):
        encoder.future(panel.series[1], panel.times["b"], 2, given)


def test_no_steps_ahead_are_a_config_error() -> None:
    encoder = Encoder.fit(daily())
    panel = encoder.panel(daily())
    with pytest.raises(ConfigError, match="horizon is 0"):
        encoder.future(panel.series[0], panel.times["a"], 0)


@pytest.mark.parametrize("frame", [rich(), irregular().assign(price=1, event="x", rain=2, size=3, region="y")])
def test_an_encoder_survives_json(frame: pd.DataFrame) -> None:
    encoder = Encoder.fit(frame, RICH, season_length=7)
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    assert again == encoder
    for before, after in zip(encoder.panel(frame).series, again.panel(frame).series, strict=True):
        np.testing.assert_array_equal(before.exogenous, after.exogenous)


def test_a_damaged_encoder_is_a_data_error() -> None:
    stored = Encoder.fit(daily()).to_dict()
    del stored["timeline"]["step"]
    with pytest.raises(DataError, match=r"the stored encoder is incomplete .* fit the forecaster again"):
        Encoder.from_dict(stored)
