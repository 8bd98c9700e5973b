"""From table to forecast: columns, calibration of the simple cases, and no looking ahead."""

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from stochflow.core.errors import ConfigError, DataError, Note
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.forecaster import StochflowForecaster, truncated
from stochflow.forecasting.model.calibration import Calibration
from stochflow.forecasting.model.fit import TrainedNetwork
from stochflow.forecasting.model.stages import Stage
from stochflow.forecasting.output import interval_levels
from stochflow.forecasting.progress import progress_bar

MONTHS = 96


def monthly(y: np.ndarray | None = None, uid: str = "a") -> pd.DataFrame:
    if y is None:
        time = np.arange(MONTHS)
        noise = np.random.default_rng(0).normal(size=MONTHS)
        y = 30 + 0.1 * time + 4 * np.sin(2 * np.pi * time / 12) + noise
    return pd.DataFrame({"unique_id": uid, "ds": pd.date_range("2010-01-01", periods=len(y), freq="MS"), "y": y})


def forecaster(**settings: Any) -> StochflowForecaster:
    return StochflowForecaster(**{"freq": "MS", "network": "none", "num_paths": 200, "horizon": 6, **settings})


def small_network(name: str = "mlp", **settings: Any) -> StochflowForecaster:
    tiny = {"width": 8, "num_bins": 33, "num_intentions": 5, "max_steps": 20, "check_every": 10, "min_gain": 0.0}
    context = {"context_length": 6, "context_width": 8, "context_layers": 1, "validation_paths": 16}
    return forecaster(network=name, **{**tiny, **context, **settings})


def test_the_columns_are_ids_times_median_intervals_and_quantiles() -> None:
    fitted = forecaster().fit(monthly())
    found = fitted.predict(3, level=[80, 95], quantiles=[0.1])
    assert list(found.columns) == [
        *("unique_id", "ds", "stochflow"),
        *("stochflow-lo-80", "stochflow-hi-80", "stochflow-lo-95", "stochflow-hi-95", "stochflow-q-0.1"),
    ]
    assert found["ds"].tolist() == pd.date_range("2018-01-01", periods=3, freq="MS").tolist()
    assert found["unique_id"].tolist() == ["a"] * 3
    # the lower end of the 80 per cent is the quantile 0.1
    np.testing.assert_allclose(found["stochflow-lo-80"], found["stochflow-q-0.1"], rtol=1e-12)
    assert len(fitted.predict()) == 6


def test_paths_are_stretched_around_their_median_by_the_factor_of_their_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = pd.concat([monthly(), monthly(uid="b")], ignore_index=True)
    asked = {"num_samples": 201}  # odd: the median is one of them
    before = forecaster(calibration_origins=0).fit(frame)
    assert before.stretch == {"a": 1.0, "b": 1.0}
    monkeypatch.setattr("stochflow.forecasting.forecaster.calibrate", lambda *_: {"b": Calibration(stretch=1.5)})
    after = forecaster().fit(frame)
    assert after.stretch == {"a": 1.0, "b": 1.5}
    plain, wide = before.predict(3, **asked), after.predict(3, **asked)
    for uid, factor in after.stretch.items():
        old, new = (table[table["unique_id"] == uid]["stochflow"].to_numpy().reshape(201, 3) for table in (plain, wide))
        middle = np.median(old, axis=0)
        np.testing.assert_allclose(np.median(new, axis=0), middle)
        above = old > middle
        np.testing.assert_allclose((new - middle)[above], factor * (old - middle)[above])
        assert (new > 0).all()
    # calibrated anew on newer data; neutral for a series without held-out origins
    monkeypatch.setattr("stochflow.forecasting.forecaster.calibrate", lambda *_: {"b": Calibration(stretch=1.2)})
    newer = pd.concat([monthly(uid="b"), monthly(uid="c")], ignore_index=True)
    assert after.update(newer).stretch == {"b": 1.2, "c": 1.0}


def test_a_ridge_regression_draws_its_share_of_the_paths_of_a_long_series(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = 50 + np.random.default_rng(2).normal(size=300).cumsum()
    frame = pd.concat([monthly(walk), monthly(walk[:90], uid="b")], ignore_index=True)
    settings = {"context_min_values": 250, "max_steps": 0, "num_paths": 100}
    drawn = []
    for share in (0.0, 0.3):
        calibrations = dict.fromkeys("ab", Calibration(ridge_share=share))
        monkeypatch.setattr("stochflow.forecasting.forecaster.calibrate", lambda *_, found=calibrations: found)
        fitted = small_network(**settings).fit(frame)
        assert fitted.hedge == {"a": share, "b": share}
        drawn.append(fitted.predict(4, num_samples=100)["stochflow"].to_numpy().reshape(2, 100, 4))
    changed = (drawn[0][0] != drawn[1][0]).all(axis=-1)
    # evenly spaced, so that all members give as much; the short series has no ridge regression
    assert changed.reshape(10, 10).sum(axis=1).tolist() == [3] * 10
    assert (drawn[0][0] == drawn[1][0])[~changed].all()
    assert sorted(map(tuple, drawn[1][1])) != sorted(map(tuple, drawn[1][0]))


def test_calibration_at_every_origin_uses_only_earlier_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(trained: TrainedNetwork, panel: list[Series], *_: object) -> dict[str, Calibration]:
        seen.append([len(series.y) for series in panel])
        return {"a": Calibration(stretch=1.0 + len(seen))}

    frame = monthly()
    asked = {"h": 3, "n_windows": 3, "level": [80]}
    bare = forecaster(calibration_origins=0).cross_validation(frame, **asked)
    monkeypatch.setattr("stochflow.forecasting.forecaster.calibrate", spy)
    found = forecaster().cross_validation(frame, **asked)
    num = len(frame)
    assert seen == [[num - 5], [num - 4], [num - 3]]
    upper = [(table["stochflow-hi-80"] - table["stochflow"]).to_numpy() for table in (bare, found)]
    np.testing.assert_allclose(upper[1], np.repeat([2.0, 3.0, 4.0], 3) * upper[0], rtol=1e-4)


@pytest.mark.parametrize("network", ["none", "mlp"])
def test_quantiles_never_cross(network: str) -> None:
    fitted = small_network(network).fit(monthly())
    levels = [0.01, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.99]
    found = fitted.predict(12, quantiles=levels)
    columns = [f"stochflow-q-{level:g}" for level in levels]
    columns.insert(4, "stochflow")
    assert (np.diff(found[columns].to_numpy(), axis=1) > 0).all()


def test_samples_come_path_by_path_and_agree_with_the_quantiles() -> None:
    fitted = forecaster().fit(monthly())
    samples = fitted.predict(4, num_samples=50)
    assert list(samples.columns) == ["unique_id", "ds", "sample", "stochflow"]
    assert samples["sample"].tolist() == np.repeat(np.arange(50), 4).tolist()
    assert samples["ds"].tolist() == pd.date_range("2018-01-01", periods=4, freq="MS").tolist() * 50
    median = samples.groupby("ds")["stochflow"].median()
    summary = fitted.predict(4, num_samples=50, level=[90])
    assert "sample" not in summary
    np.testing.assert_allclose(summary["stochflow"], median)


def test_many_paths_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.forecasting.forecaster._MAX_CELLS", 60)
    samples = forecaster().fit(monthly()).predict(4, num_samples=40)
    assert len(samples) == 160
    # no piece repeats another
    assert samples[samples["ds"] == samples["ds"][0]]["stochflow"].nunique() == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"h": 0}, "horizon is 0"),
        ({"level": [80, 100]}, "level 100 is no interval; give per cents between 0 and 100"),
        ({"quantiles": [1.2]}, "quantile 1.2 lies outside"),
        ({"num_samples": 1}, "1 paths of 6 steps cannot be drawn; ask for 2 to"),
    ],
)
def test_impossible_questions_are_refused(arguments: dict[str, Any], message: str) -> None:
    fitted = forecaster().fit(monthly())
    with pytest.raises(ConfigError, match=message):
        fitted.predict(**arguments)


def test_names_of_intervals() -> None:
    assert interval_levels([90], [0.25]) == pytest.approx(
        {"stochflow-lo-90": 0.05, "stochflow-hi-90": 0.95, "stochflow-q-0.25": 0.25}
    )
    assert interval_levels(None, None) == {}


def test_nothing_can_be_asked_before_fit() -> None:
    fresh = forecaster()
    for ask in (
        fresh.predict,
        lambda: fresh.problems,
        lambda: fresh.gain,
        lambda: fresh.save("x"),
        lambda: fresh.network_weight,
    ):
        with pytest.raises(ConfigError, match="has not been fitted; call fit first"):
            ask()


def test_one_bad_series_does_not_stop_the_others() -> None:
    bad = monthly(np.append(np.arange(20.0), np.inf), "bad")
    with pytest.warns(Note, match="Left out: series 'bad'"):
        fitted = forecaster().fit(pd.concat([monthly(uid="a"), bad, monthly(uid="c")]))
    assert list(fitted.problems) == ["bad"]
    assert "infinite" in fitted.problems["bad"]
    assert fitted.predict(2)["unique_id"].tolist() == ["a", "a", "c", "c"]


def test_a_table_without_a_usable_series_says_why() -> None:
    with pytest.raises(DataError, match="no series can be used; series 'a': 3 values"):
        forecaster().fit(monthly(np.arange(3.0)))
    fitted = forecaster().fit(monthly())
    with pytest.raises(DataError, match="no series can be used"):
        fitted.update(monthly(np.arange(3.0)))


def test_features_known_in_advance_are_used_and_needed() -> None:
    rng = np.random.default_rng(2)
    promo = (rng.random(MONTHS) < 0.4).astype(float)
    frame = monthly(10 + 5 * promo + 0.1 * rng.normal(size=MONTHS)).assign(promo=promo)
    fitted = forecaster(columns=Columns(future=("promo",))).fit(frame)
    with pytest.raises(DataError, match="there is no table of future features"):
        fitted.predict(2)
    future = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2018-01-01", periods=2, freq="MS")})
    with pytest.raises(DataError, match="promo"):
        fitted.predict(2, future_df=future)
    found = fitted.predict(2, future_df=future.assign(promo=[1.0, 0.0]))
    np.testing.assert_allclose(found["stochflow"], [15, 10], atol=0.5)


def test_a_constant_series_goes_on_as_it_was() -> None:
    for value in (7.0, 0.0, -3.5):
        found = forecaster().fit(monthly(np.full(60, value))).predict(12, level=[99])
        np.testing.assert_allclose(found[["stochflow", "stochflow-lo-99", "stochflow-hi-99"]], value, atol=1e-6)


def test_a_pure_season_is_repeated() -> None:
    pattern = np.random.default_rng(4).uniform(1, 5, 12)
    found = forecaster().fit(monthly(np.tile(pattern, 8))).predict(12)
    np.testing.assert_allclose(found["stochflow"], pattern, rtol=1e-3)


def test_a_trend_leads_beyond_everything_that_was_seen() -> None:
    y = 2.0 * np.arange(MONTHS) + np.random.default_rng(5).normal(size=MONTHS)
    found = forecaster().fit(monthly(y)).predict(24, level=[90])
    assert found["stochflow"].iloc[-1] == pytest.approx(2 * (MONTHS + 23), abs=8)
    assert (found["stochflow"] > y.max()).all()
    assert (found["stochflow-hi-90"] > found["stochflow"]).all()


def test_intervals_cover_what_they_should() -> None:
    rng = np.random.default_rng(6)
    panel = pd.concat([monthly(rng.normal(size=MONTHS), f"s{number}") for number in range(20)])
    future = {(f"s{number}", step): value for number in range(20) for step, value in enumerate(rng.normal(size=5))}
    found = forecaster().fit(panel).predict(5, level=[80])
    inside = [
        row["stochflow-lo-80"] <= future[row["unique_id"], index % 5] <= row["stochflow-hi-80"]
        for index, row in found.iterrows()
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 100))


@pytest.mark.parametrize("network", ["none", "transformer"])
def test_irregular_timestamps_go_through_from_end_to_end(network: str) -> None:
    rng = np.random.default_rng(7)
    times = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.exponential(1e4, size=80).cumsum().round(), unit="s")
    frame = pd.DataFrame({"ds": times, "y": 5 + rng.normal(size=80)})
    fitted = small_network(network, freq=None).fit(frame)
    found = fitted.predict(3, level=[90])
    assert (found["ds"].diff().dropna() > pd.Timedelta(0)).all()
    assert found["ds"][0] > times[-1]
    assert found["stochflow"].between(3, 7).all()
    given = pd.DataFrame({"ds": times[-1] + pd.to_timedelta([10, 50, 60], unit="h")})
    assert fitted.predict(3, future_df=given)["ds"].tolist() == given["ds"].tolist()
    tested = small_network(network, freq=None).cross_validation(frame, h=3, n_windows=2)
    assert tested["ds"].tolist() == [*times[-4:-1], *times[-3:]]


@pytest.mark.parametrize("missing", [slice(40, 50), slice(70, None), slice(20, None)])
@pytest.mark.parametrize("network", ["none", "mlp"])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # frame.fill_gaps, after the last value
def test_gaps_are_bridged(missing: slice, network: str) -> None:
    frame = monthly()
    frame.loc[range(MONTHS)[missing], "y"] = np.nan
    found = small_network(network).fit(frame).predict(6, level=[90])
    assert found["stochflow"].between(15, 55).all()


def test_seeds_reproduce_and_differ() -> None:
    first, second, other = (small_network(seed=seed).fit(monthly()).predict(4) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert (first["stochflow"] != other["stochflow"]).all()


def test_progress_is_reported() -> None:
    seen: list[Stage] = []
    small_network("auto", context_min_values=MONTHS).fit(monthly(), progress=seen.append)
    assert [(stage.name, stage.done) for stage in seen if stage.gain is not None] == [
        ("mlp network", 10),
        ("mlp network", 20),
        ("transformer network", 10),
        ("transformer network", 20),
    ]
    assert {stage.name for stage in seen if stage.gain is None} == {"linear models", "calibration"}
    # too little data for a context
    seen.clear()
    small_network("auto", context_min_values=MONTHS + 1).fit(monthly(), progress=seen.append)
    assert {stage.name for stage in seen if stage.gain is not None} == {"mlp network"}


def test_a_bar_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    forecaster().fit(monthly())  # standard error is no terminal here
    forecaster().fit(monthly(), progress=False)
    assert capsys.readouterr().err == ""
    terminal = Console(file=io.StringIO(), force_terminal=True)
    with progress_bar(True, terminal) as report:
        report(Stage("mlp network", 50, 100, 0.012))
    assert "mlp network: +1.2% on held-out origins" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_newer_data_move_the_forecast_but_not_the_network() -> None:
    frame = monthly()
    fitted = small_network().fit(frame[:-12])
    gain = fitted.gain
    found = fitted.update(frame).predict(2)
    assert found["ds"].tolist() == pd.date_range("2018-01-01", periods=2, freq="MS").tolist()
    assert fitted.gain == gain


def test_cutoffs_are_a_step_apart_and_the_last_window_ends_with_the_series() -> None:
    frame = monthly()
    found = forecaster().cross_validation(frame, h=4, n_windows=3, step_size=3, level=[80])
    ends = [MONTHS - 4 - 6, MONTHS - 4 - 3, MONTHS - 4]
    assert found["cutoff"].drop_duplicates().tolist() == [frame["ds"][end - 1] for end in ends]
    for end, (_, window) in zip(ends, found.groupby("cutoff"), strict=True):
        assert window["ds"].tolist() == frame["ds"][end : end + 4].tolist()
        assert window["y"].tolist() == frame["y"][end : end + 4].tolist()
    assert list(found.columns) == ["unique_id", "ds", "cutoff", "stochflow", "stochflow-lo-80", "stochflow-hi-80", "y"]


def test_windows_are_half_a_horizon_apart_unless_told() -> None:
    found = forecaster().cross_validation(monthly(), h=4, n_windows=3)
    assert found["cutoff"].nunique() == 3
    gaps = found["cutoff"].drop_duplicates().dt.to_period("M").astype("int64").diff().dropna()
    assert gaps.tolist() == [2, 2]


@pytest.mark.parametrize(("network", "refit"), [("none", False), ("mlp", False), ("transformer", True)])
def test_no_forecast_knows_what_came_after_its_cutoff(network: str, refit: bool) -> None:
    columns = Columns(past=("rain",))
    frame = monthly().assign(rain=np.random.default_rng(8).normal(size=MONTHS))
    frame["y"] += 30 * frame["rain"].shift(fill_value=0.0)  # so that it is used
    tested = small_network(network, columns=columns, max_steps=10)
    before = tested.cross_validation(frame, h=4, n_windows=2, step_size=2, level=[80], refit=refit)
    for window, cutoff in enumerate(before["cutoff"].drop_duplicates()):
        later = frame["ds"] > cutoff
        changed = frame.copy()
        changed.loc[later, "y"] = 1000 + changed.loc[later, "y"] ** 2
        changed.loc[later, "rain"] *= -50
        after = tested.cross_validation(changed, h=4, n_windows=2, step_size=2, level=[80], refit=refit)
        same = slice(0, 4 * (window + 1))
        forecasts = ["stochflow", "stochflow-lo-80", "stochflow-hi-80"]
        pd.testing.assert_frame_equal(before[forecasts][same], after[forecasts][same], check_exact=True)
        if window == 0:
            assert (before["stochflow"][4 * (window + 1) :] != after["stochflow"][4 * (window + 1) :]).all()


def test_cross_validation_forecasts_what_predict_would_have() -> None:
    frame = monthly()
    tested = forecaster().cross_validation(frame, h=4, n_windows=2, step_size=4)
    direct = forecaster().fit(frame[:-4]).predict(4)
    np.testing.assert_allclose(tested["stochflow"][4:], direct["stochflow"], rtol=1e-9)


def test_a_gap_that_is_open_at_the_cutoff_is_not_closed_with_later_values() -> None:
    y, observed = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([True, True, False, False, True])
    series = Series("a", y, observed, np.zeros((5, 1)), np.zeros((5, 0)), np.arange(5.0))
    cut = truncated(series, 4, 1)
    assert cut.y.tolist() == [1.0, 2.0, 2.0, 2.0]
    assert len(cut.exogenous) == 5
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_missing_truths_stay_missing() -> None:
    frame = monthly()
    frame.loc[MONTHS - 2, "y"] = np.nan
    found = forecaster().cross_validation(frame, h=4, n_windows=1)
    assert found["y"].isna().tolist() == [False, False, True, False]
    assert found["stochflow"].notna().all()


@pytest.mark.parametrize("num", [5, 10, 20])
def test_cross_validation_says_when_the_series_are_too_short(num: int) -> None:
    with pytest.raises(DataError, match="no series has 25 values; take fewer windows or a shorter horizon"):
        forecaster().cross_validation(monthly(np.arange(float(num))), h=5, n_windows=3)


def test_cross_validation_refuses_no_windows() -> None:
    with pytest.raises(ConfigError, match="n_windows is 0 and step_size 3; give at least 1"):
        forecaster().cross_validation(monthly(), n_windows=0)
    with pytest.raises(ConfigError, match="step_size 0"):
        forecaster().cross_validation(monthly(), step_size=0)
