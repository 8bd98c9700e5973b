"""The sktime interface: sktime's own checks, and the same numbers as the forecaster behind it."""

import os
import sys
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

if "CI" not in os.environ:  # there it must be installed
    pytest.importorskip("sktime")

from sktime.forecasting.tests import test_all_forecasters
from sktime.utils.estimator_checks import check_estimator

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.datasets import load_series
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.sktime import StochflowSktimeForecaster

pytestmark = pytest.mark.filterwarnings("ignore:these future columns are not used")

ALPHA = [0.05, 0.25, 0.5, 0.75, 0.95]
BARE: dict[str, Any] = {"network": "none", "num_paths": 200}
ALWAYS_GUIDED = {"max_steps": 60, "check_every": 20, "width": 16, "min_gain": 0.0}


def airline(num: int = 144) -> Any:
    frame = load_series("airline").head(num)
    return pd.Series(frame["y"].to_numpy(), index=pd.DatetimeIndex(frame["ds"], freq="MS"), name="passengers")


def noise(index: pd.Index, seed: int = 0) -> Any:
    return pd.Series(np.random.default_rng(seed).normal(size=len(index)), index=index)


def quantiles(y: Any, fh: list[int], X: Any = None, X_ahead: Any = None, **settings: Any) -> pd.DataFrame:  # noqa: N803
    forecaster = StochflowSktimeForecaster(**{**BARE, **settings}).fit(y, X=X)
    return forecaster.predict_quantiles(fh=fh, X=X_ahead, alpha=ALPHA)


# of the many, those that must be among them
EXPECTED = [
    *("test_predict_time_index", "test_predict_time_index_with_X", "test_predict_interval", "test_predict_proba"),
    *("test_predict_quantiles", "test_update_predict_predicted_index", "test_update_with_exogenous_variables"),
    *("test_hierarchical_with_exogenous", "test_persistence_via_pickle", "test_fit_idempotent", "test_score"),
]
# the check that there are two settings to be checked with
OF_SETTINGS = ["test_get_test_params_coverage"]
# checks of what a network changes: what fit leaves behind, and what is forecast, updated, copied and stored
OF_NETWORKS = [
    *("test_fit_idempotent", "test_persistence_via_pickle", "test_clone", "test_methods_have_no_side_effects"),
    *("test_predict_quantiles", "test_update_with_exogenous_variables"),
]


# what sktime says about its own next version and about indices without a name is no fault of ours
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("number", "checks"), [(0, None), (1, OF_NETWORKS)], ids=["linear", "network"])
def test_every_check_of_sktime_passes(number: int, checks: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = StochflowSktimeForecaster.get_test_params()[number] | {"season_length": 1}
    monkeypatch.setattr(StochflowSktimeForecaster, "get_test_params", lambda parameter_set="default": [parameters])
    # the fewest values with a quarter to be held out in which the longest window and horizon find room
    series = partial(test_all_forecasters._make_series, n_timepoints=40)
    monkeypatch.setattr(test_all_forecasters, "_make_series", series)
    results = check_estimator(
        StochflowSktimeForecaster,
        raise_exceptions=True,
        tests_to_run=checks,
        tests_to_exclude=OF_SETTINGS,
        verbose=False,
    )
    assert set(results.values()) == {"PASSED"}
    names = {name.split("[")[0] for name in results}
    assert set(checks or EXPECTED) <= names


def test_sktime_is_given_settings_enough() -> None:
    results = check_estimator(StochflowSktimeForecaster, raise_exceptions=True, tests_to_run=OF_SETTINGS, verbose=False)
    assert list(results.values()) == ["PASSED"]


def test_the_quantiles_are_those_of_the_forecaster() -> None:
    y, settings = airline(), {"network": "mlp", "num_paths": 200, **ALWAYS_GUIDED}
    native = StochflowForecaster(freq="MS", horizon=12, **settings).fit(load_series("airline"))
    assert native.network_weight > 0  # or the network would not be tested
    expected = native.predict(12, quantiles=ALPHA)
    adapter = StochflowSktimeForecaster(network="mlp", num_paths=200, settings=ALWAYS_GUIDED)
    adapter.fit(y, fh=range(1, 13))
    found = adapter.predict_quantiles(alpha=ALPHA)
    assert found.columns.tolist() == [("passengers", alpha) for alpha in ALPHA]
    assert found.index.tolist() == expected["ds"].tolist()
    np.testing.assert_array_equal(found.to_numpy(), expected[[f"stochflow-q-{alpha:g}" for alpha in ALPHA]].to_numpy())
    point = adapter.predict()
    np.testing.assert_array_equal(point.to_numpy(), expected["stochflow"].to_numpy())
    assert point.name == "passengers"


def test_intervals_variance_and_distribution_come_from_the_same_paths() -> None:
    forecaster = StochflowSktimeForecaster(**BARE).fit(airline(), fh=[1, 6])
    interval = forecaster.predict_interval(coverage=0.9)
    np.testing.assert_allclose(interval, forecaster.predict_quantiles(alpha=[0.05, 0.95]), rtol=1e-12)
    distribution = forecaster.predict_proba()
    share = (BARE["num_paths"] - 1) / BARE["num_paths"]  # the variance of a sample divides by one less
    np.testing.assert_allclose(distribution.var(), forecaster.predict_var() * share)
    covariance = forecaster.predict_var(cov=True)
    np.testing.assert_allclose(np.diag(covariance), forecaster.predict_var().to_numpy()[:, 0])
    assert covariance.iloc[0, 1] > 0


@pytest.mark.parametrize("freq", ["M", "Q-DEC", "Q-FEB", "Y-DEC", "W-SUN", "W-WED", "D", "2D", "h", "15min"])
def test_periods_come_back_as_the_periods_that_follow(freq: str) -> None:
    periods = pd.period_range("2019-03-01", periods=43, freq=freq)
    y = noise(periods[:40])
    found = quantiles(y, [1, 2, 3])
    assert isinstance(found.index, pd.PeriodIndex)
    assert found.index.equals(periods[40:])
    by_date = y.set_axis(periods[:40].to_timestamp())
    np.testing.assert_array_equal(found, quantiles(by_date, [1, 2, 3]))


def test_a_period_knows_its_season() -> None:
    y = airline()
    found = quantiles(y.set_axis(y.index.to_period()), [1, 5, 12])
    np.testing.assert_array_equal(found, quantiles(y, [1, 5, 12]))
    assert found.index.tolist() == list(pd.PeriodIndex(["1961-01", "1961-05", "1961-12"], freq="M"))


def test_quantiles_do_not_cross() -> None:
    assert (np.diff(quantiles(airline(), list(range(1, 25))), axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["range", "integer", "datetime", "period"])
def test_steps_may_be_left_out_of_the_horizon(kind: str) -> None:
    indices: dict[str, pd.Index] = {
        "range": pd.RangeIndex(5, 65),
        "integer": pd.Index(np.arange(60) + 20240101),  # a number of eight digits is no date here
        "datetime": pd.date_range("2020-01-01", periods=60, freq="W-MON"),
        "period": pd.period_range("2020-01", periods=60, freq="M"),
    }
    y = noise(indices[kind])
    every, some = quantiles(y, list(range(1, 10))), quantiles(y, [1, 4, 9])
    pd.testing.assert_frame_equal(some, every.iloc[[0, 3, 8]], check_freq=False)


def test_integers_with_a_stride_are_forecast_at_that_stride() -> None:
    y = noise(pd.RangeIndex(0, 80, 2))
    found = quantiles(y, [2, 6])
    assert found.index.tolist() == [80, 84]
    np.testing.assert_array_equal(found, quantiles(y.reset_index(drop=True), [1, 3, 6]).iloc[:2])
    with pytest.raises(DataError, match="79 is no step of the series"):
        quantiles(y, [1])


def test_missing_values_are_left_out_and_not_made_up() -> None:
    y = airline()
    y.iloc[[3, 40, 41, 143]] = np.nan
    native = StochflowForecaster(freq="MS", **BARE).fit(pd.DataFrame({"ds": y.index, "y": y.to_numpy()}))
    found = StochflowSktimeForecaster(**BARE).fit(y).predict(fh=[1, 2])
    np.testing.assert_array_equal(found, native.predict(2)["stochflow"])


def driven(num: int) -> tuple[Any, pd.DataFrame]:
    """A series that is ten on sale days, and its features under names that a table could mistake."""
    days = pd.date_range("2021-01-01", periods=num, freq="D")
    sale = np.random.default_rng(3).random(num) < 0.5
    y = pd.Series(10.0 * sale, index=days) + 0.1 * noise(days)
    return y, pd.DataFrame({"y": np.where(sale, "sale", "none"), 7: noise(days, 1), "ds": 1.0}, index=days)


def test_features_known_in_advance_are_used() -> None:
    y, X = driven(124)  # noqa: N806
    forecaster = StochflowSktimeForecaster(**BARE).fit(y.iloc[:120], X=X.iloc[:120])
    found = forecaster.predict(fh=[1, 2, 3, 4], X=X.iloc[120:])
    assert np.abs(found - y.iloc[120:]).max() < 2
    features = X.set_axis(["a", "b", "c"], axis=1).rename_axis("ds").reset_index()
    native = StochflowForecaster(freq="D", columns=Columns(future=("a", "b", "c")), **BARE)
    native.fit(features.head(120).assign(y=y.to_numpy()[:120]))
    np.testing.assert_array_equal(found, native.predict(4, future_df=features.tail(4))["stochflow"])
    shuffled = forecaster.predict(fh=[1, 2, 3, 4], X=X.iloc[120:, ::-1])
    np.testing.assert_array_equal(shuffled, found)


def test_features_of_skipped_steps_may_be_left_out() -> None:
    y, X = driven(124)  # noqa: N806
    forecaster = StochflowSktimeForecaster(**BARE).fit(y.iloc[:120], X=X.iloc[:120])
    found = forecaster.predict(fh=[2, 4], X=X.iloc[[121, 123]])
    assert np.abs(found - y.iloc[[121, 123]]).max() < 2


def test_features_that_are_missing_are_asked_for() -> None:
    y, X = driven(64)  # noqa: N806
    forecaster = StochflowSktimeForecaster(**BARE).fit(y.iloc[:60], X=X.iloc[:60])
    with pytest.raises(DataError, match="there is no X, but fit had one; give y, 7, ds"):
        forecaster.predict(fh=[1])
    with pytest.raises(DataError, match="X has no row for 2021-03-03"):
        forecaster.predict(fh=[1, 2], X=X.iloc[60:61])
    with pytest.raises(DataError, match="X has no column '7'"):
        forecaster.predict(fh=[1], X=X.iloc[60:][["y", "ds"]])
    with pytest.raises(DataError, match="X has no row for 2021-01-06"):
        StochflowSktimeForecaster(**BARE).fit(y.iloc[:60], X=X.iloc[:5])


@pytest.mark.parametrize("update_params", [True, False])
def test_update_takes_over_newer_data(update_params: bool) -> None:
    y, X = driven(104)  # noqa: N806
    forecaster = StochflowSktimeForecaster(**BARE).fit(y.iloc[:80], X=X.iloc[:80])
    forecaster.update(y.iloc[80:100], X=X.iloc[80:100], update_params=update_params)
    assert forecaster.cutoff[0] == y.index[99]
    found = forecaster.predict(fh=[1, 4], X=X.iloc[100:])
    assert found.index.tolist() == [y.index[100], y.index[103]]
    assert np.abs(found - y.iloc[[100, 103]]).max() < 2
    with pytest.raises(DataError, match="there is no X, but fit had one"):
        forecaster.update(y.iloc[100:])


def test_update_without_network_and_calibration_is_a_new_fit() -> None:
    y, bare = airline(), BARE | {"settings": {"calibration_origins": 0}}
    updated = StochflowSktimeForecaster(**bare).fit(y.iloc[:120]).update(y.iloc[120:])
    anew = StochflowSktimeForecaster(**bare).fit(y)
    np.testing.assert_array_equal(updated.predict(fh=[1, 12]), anew.predict(fh=[1, 12]))


def test_the_horizon_of_training_is_that_of_fit_unless_it_is_given() -> None:
    y = noise(pd.RangeIndex(30))
    for horizon, fh, expected in ((None, None, 12), (None, [2, 5], 5), (3, [2, 5], 3)):
        fitted = StochflowSktimeForecaster(horizon=horizon, **BARE).fit(y, fh=fh)
        assert fitted.forecaster_.horizon == expected


def test_the_frequency_tells_what_an_integer_step_means() -> None:
    y = airline()
    found = quantiles(y.reset_index(drop=True), [1, 7, 12], freq="MS")
    np.testing.assert_array_equal(found, quantiles(y, [1, 7, 12]))


def test_bad_settings_are_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="network"):
        StochflowSktimeForecaster(network="tree").fit(airline())


def test_without_sktime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "sktime"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sktime", None)
    monkeypatch.delitem(sys.modules, "stochflow.forecasting.sktime")
    with pytest.raises(ConfigError, match=r"sktime is not installed; run `pip install 'stochflow\[sktime\]'`"):
        __import__("stochflow.forecasting.sktime")
