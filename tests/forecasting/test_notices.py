import warnings

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import DataError, Note
from stochflow.forecasting import StochflowForecaster
from tests.forecasting.planted import led_by_x


def forecaster(**given: object) -> StochflowForecaster:
    return StochflowForecaster(freq="D", horizon=2, network="none", calibration_origins=0, **given)  # type: ignore[arg-type]


def test_an_undeclared_number_is_warned_of_and_text_is_not() -> None:
    frame = led_by_x(0, 60)
    with pytest.warns(UserWarning, match=r"numeric columns are not used: x; declare them in Columns\(future=…, past=…"):
        forecaster().fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster().fit(frame.assign(x="text"))


def test_an_event_that_never_happened_is_warned_of() -> None:
    frame = led_by_x(0, 60).drop(columns="x").assign(promo=0)
    with pytest.warns(UserWarning, match="future columns are not used: promo; they never change"):
        forecaster(future=["promo"]).fit(frame)


def test_static_columns_without_a_network_are_warned_of() -> None:
    frame = led_by_x(0, 60).drop(columns="x").assign(size=3)
    with pytest.warns(UserWarning, match="static columns are not used: size"):
        forecaster(static="size").fit(frame)


def test_categories_that_training_did_not_have_are_warned_of() -> None:
    frame = led_by_x(0, 60).drop(columns="x").assign(event=["none", "sale"] * 30)
    fitted = forecaster(future=["event"]).fit(frame)
    ahead = pd.DataFrame({"ds": pd.date_range("2000-03-01", periods=2), "event": ["sale", "fair"]})
    with pytest.warns(UserWarning, match="'event' has categories that training did not have: fair"):
        fitted.predict(2, future_df=ahead)
    with pytest.warns(UserWarning, match="did not have: fair"):
        fitted.update(frame.assign(event=["none", "fair"] * 30))


def test_the_first_of_many_series_that_are_left_out_are_named() -> None:
    good = led_by_x(0, 60).drop(columns="x").assign(unique_id="good")
    bad = pd.concat([good[:3].assign(unique_id=f"s{number}") for number in range(30)])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        forecaster().fit(pd.concat([good, bad]))
    assert len(seen) == 21
    assert "Left out: 10 more series" in str(seen[-1].message)


@pytest.mark.parametrize(("value", "what"), [(4.0, "is constant"), (np.nan, "has no values")])
def test_a_past_column_that_tells_nothing_is_refused(value: float, what: str) -> None:
    with pytest.raises(DataError, match=f"past column 'x' {what}.*drop it"):
        forecaster(past=["x"]).fit(led_by_x(0, 60).assign(x=value))


@pytest.mark.parametrize("value", [4.0, np.nan])
def test_a_past_column_that_tells_nothing_of_one_series_leaves_it_and_the_others(value: float) -> None:
    frame = pd.concat([led_by_x(0, 80).assign(unique_id="a"), led_by_x(1, 80).assign(unique_id="b", x=value)])
    fitted = forecaster(past=["x"]).fit(frame)
    assert (list(fitted.past_gains["a"]), fitted.past_gains["b"]) == (["x"], {})
    assert set(fitted.predict(2)["unique_id"]) == {"a", "b"}


def test_an_infinite_feature_leaves_the_other_series() -> None:
    bad = led_by_x(1, 80).assign(unique_id="b")
    bad.loc[40, "x"] = np.inf
    with pytest.warns(Note, match="Left out: series 'b': 'inf' in x is no finite number"):
        fitted = forecaster(past=["x"]).fit(pd.concat([led_by_x(0, 80).assign(unique_id="a"), bad]))
    assert set(fitted.predict(2)["unique_id"]) == {"a"}
