"""Features: scaled, coded, and problems of the series that has them."""

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import DataError
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.encoder import Encoder
from tests.forecasting.data.long_tables import RICH, daily, encode, rich


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
