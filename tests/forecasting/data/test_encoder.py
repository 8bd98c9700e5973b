"""Long tables become series: gaps, ids, tables of the future, and problems that stay with their series."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.encoder import MIN_OBSERVED, Encoder
from tests.forecasting.data.long_tables import DAYS, RICH, TEXT_DAYS, daily, encode, irregular, rich


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


def test_gaps_in_irregular_series_are_filled_by_time_not_by_row() -> None:
    frame = irregular().astype({"y": float})
    frame.loc[2, "y"] = np.nan
    (series,) = Encoder.fit(frame).panel(frame).series
    assert series.y[2] == pytest.approx(1 + 2 * 2 / 3)  # hour 3 between 1 at hour 1 and 3 at hour 4


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


@pytest.mark.parametrize("frame", [rich(), irregular().assign(price=1, event="x", rain=range(30), size=3, region="y")])
def test_an_encoder_survives_json(frame: pd.DataFrame) -> None:
    encoder = Encoder.fit(frame, RICH, season_length=7)
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    assert again == encoder
    for before, after in zip(encoder.panel(frame).series, again.panel(frame).series, strict=True):
        np.testing.assert_array_equal(before.exogenous, after.exogenous)


def test_a_damaged_encoder_is_a_data_error() -> None:
    stored = Encoder.fit(daily()).to_dict()
    del stored["timeline"]["step"]
    with pytest.raises(DataError, match="the stored encoder is damaged; fit the forecaster again"):
        Encoder.from_dict(stored)
