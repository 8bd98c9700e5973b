"""Rolling origins: who sees what, when, and what becomes of it in the table."""

import numpy as np
import pandas as pd
import pytest
import torch

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.series import Array, Mask
from stochflow.forecasting.evaluation.backtest import (
    Case,
    backtest,
    block,
    case_of,
    cases_of,
    origins,
    regular_case,
    summary,
)
from stochflow.forecasting.evaluation.baselines import RidgeAR, StatsForecast
from stochflow.forecasting.evaluation.scoring import SCORES
from stochflow.forecasting.model.seasonality import Seasonality

pytest.importorskip("scoringrules")
pytest.importorskip("utilsforecast")

NAN = float("nan")


def monthly(y: Array, horizon: int = 3, name: str = "made") -> Case:
    return Case(name, "MS", horizon, pd.date_range("2000-01-01", periods=len(y), freq="MS"), y)


class Witness:
    """Forecasts a fixed number with certainty and keeps what it was shown."""

    def __init__(self, value: float = 0.0, diary: list[str] | None = None) -> None:
        self.value, self.diary = value, [] if diary is None else diary
        self.pasts: list[Array] = []
        self.masks: list[Mask] = []

    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        self.pasts.append(y)
        self.masks.append(observed)
        self.diary.append(f"{self.value}@{len(y)}")
        return np.full((len(levels), horizon), self.value)


class Student(Witness):
    """Learns once."""

    def fit(self, past: Case) -> None:
        self.diary.append(f"fit@{len(past.y)}")


def test_the_last_targets_end_with_the_series() -> None:
    assert origins(144, 12, 10, 6) == [*range(78, 133, 6)]
    assert origins(100, 10, 1, 5) == [90]


def test_earlier_targets_end_where_the_final_ones_begin() -> None:
    case = monthly(np.zeros(300), horizon=12)
    early, final = block(case, "earlier"), block(case, "final")
    assert len(early) == len(final) == 10
    assert early[-1] + 12 == final[0]


def test_origins_without_a_past_are_left_out() -> None:
    assert origins(144, 12, 10, 6, before=78) == [48, 54, 60, 66]
    with pytest.raises(DataError, match="no origin leaves 48 values before and 12 after it; give a longer series"):
        origins(59, 12, 10, 6)


def test_senseless_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="step 0 must be at least 1"):
        origins(100, 12, 10, 0)
    with pytest.raises(ConfigError, match="unknown block 'last'; choose final or earlier"):
        block(monthly(np.zeros(100)), "last")


def test_fifty_origins_every_25_hours_begin_at_every_hour() -> None:
    assert {origin % 24 for origin in origins(9000, 24, 50, 25)} == set(range(24))


def test_absent_days_become_missing_values_on_a_whole_calendar() -> None:
    case = case_of("peyton_manning")
    assert (len(case.y), int((~case.observed).sum())) == (2964, 59)
    assert (case.times[1:] - case.times[:-1] == pd.Timedelta(days=1)).all()
    assert (case.freq, case.horizon, case.seasonality.season) == ("D", 24, 7)


def test_a_group_keeps_its_order() -> None:
    assert [case.name for case in cases_of("seven")][:3] == ["airline", "co2", "elnino"]


@pytest.mark.parametrize("days", [["2020-01-01", "2020-01-15", "2020-02-01"], ["2020-01-01", "2020-01-01"]])
def test_times_off_the_grid_are_refused(days: list[str]) -> None:
    rows = pd.DataFrame({"unique_id": "odd", "ds": pd.to_datetime(days), "y": 1.0})
    with pytest.raises(DataError, match="odd: its times are not distinct periods of 'MS'; resample"):
        regular_case(rows, "MS", 3)


def test_a_gap_at_the_origin_is_filled_from_the_past_alone() -> None:
    case = monthly(np.array([1.0, NAN, 3, 4, NAN, NAN, 100]))
    assert case.filled.tolist() == [1, 2, 3, 4, 36, 68, 100]
    assert case.before(5).filled.tolist() == [1, 2, 3, 4, 4]
    assert case.before(5).observed.tolist() == [True, False, True, True, False]
    with pytest.raises(DataError, match="made: no value was measured in 2 steps"):
        monthly(np.array([NAN, NAN])).filled  # noqa: B018


def test_a_forecaster_sees_the_past_and_nothing_else() -> None:
    y = np.arange(20.0)
    y[[7, 9]] = NAN
    witness = Witness()
    backtest(monthly(y), {"w": witness}, [10, 15])
    # at the first origin nobody knows yet that 10 follows the gap
    assert [past.tolist() for past in witness.pasts] == [[*range(9), 8], [*range(15)]]
    assert [np.flatnonzero(~mask).tolist() for mask in witness.masks] == [[7, 9], [7, 9]]


def test_methods_take_turns_and_a_student_is_taught_once() -> None:
    diary: list[str] = []
    backtest(monthly(np.arange(20.0)), {"a": Witness(1, diary), "b": Student(2, diary)}, [10, 15])
    assert diary == ["1@10", "fit@10", "2@10", "1@15", "2@15"]


def test_the_table_holds_the_scores_of_each_forecast() -> None:
    y = np.concatenate([np.arange(14.0), [5, 5, 5, NAN, 7]])
    frame = backtest(monthly(y), {"five": Witness(5), "seven": Witness(7)}, [14, 16])
    assert frame.columns.tolist() == ["series", "method", "origin", *SCORES, "seconds_fit_predict"]
    assert frame[["series", "method", "origin"]].to_numpy().tolist() == [
        ["made", "five", 14],
        ["made", "seven", 14],
        ["made", "five", 16],
        ["made", "seven", 16],
    ]
    # a certain forecast's CRPS is its distance; the unknown truth is left out: (|5 − 5| + |7 − 5|)/2
    np.testing.assert_allclose(frame["crps"], [0, 2, 1, 1], atol=1e-12)
    np.testing.assert_allclose(frame["mae"], [0, 2, 1, 1])
    np.testing.assert_allclose(frame["mse"], [0, 4, 2, 2])
    # changes over twelve months are 12 and 12 before the first origin, then also 5 − 2 and 5 − 3
    np.testing.assert_allclose(frame["mase"], [0, 2 / 12, 1 / (29 / 4), 1 / (29 / 4)])
    assert frame["covered_80"].tolist() == [1, 0, 0.5, 0.5]
    assert (frame["seconds_fit_predict"] > 0).all()


def test_an_origin_whose_truths_are_all_missing_scores_nothing() -> None:
    y = np.concatenate([np.arange(24.0), [NAN, NAN, NAN]])
    frame = backtest(monthly(y), {"w": Witness()}, [21, 24])
    assert frame[list(SCORES)].iloc[0].notna().all()
    assert frame[list(SCORES)].iloc[1].isna().all()


class Broken(Witness):
    def quantiles(self, y: Array, seasonality: Seasonality, horizon: int, levels: Array, observed: Mask) -> Array:
        return np.full((len(levels), horizon), NAN)


def test_an_answer_that_is_no_forecast_is_refused() -> None:
    with pytest.raises(DataError, match=r"b answered made at origin 10 with shape \(99, 3\) and 297 NaN"):
        backtest(monthly(np.arange(20.0)), {"b": Broken()}, [10])


def made_scores() -> pd.DataFrame:
    """Two series, two methods, two origins."""
    rows = [
        ("x", "naive", 2.0, 0.8, 1.0),
        ("x", "naive", 4.0, 0.6, 1.0),
        ("x", "mine", 1.0, 1.0, 0.9),
        ("x", "mine", 2.0, 1.0, 0.9),
        ("y", "naive", 1.0, 0.8, 0.8),
        ("y", "naive", NAN, NAN, NAN),
        ("y", "mine", 2.0, 0.5, 0.5),
        ("y", "mine", NAN, NAN, NAN),
    ]
    frame = pd.DataFrame(rows, columns=["series", "method", "crps", "covered_80", "pit_covered_80"])
    return frame.assign(seconds_fit_predict=0.5)


def test_the_summary_is_as_worked_by_hand() -> None:
    table = summary(made_scores(), "naive")
    assert table.index.tolist() == ["naive", "mine"]
    assert table.columns.tolist() == ["x", "y", "geometric_mean", "coverage_error", "pit_coverage_error", "seconds"]
    np.testing.assert_allclose(table.loc["naive"], [1, 1, 1, (0.1 + 0) / 2, 0.1, 2])
    np.testing.assert_allclose(table.loc["mine"], [0.5, 2, 1, (0.2 + 0.3) / 2, (0.1 + 0.3) / 2, 2])


def test_a_reference_that_was_not_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="reference best was not run; choose one of: naive, mine"):
        summary(made_scores(), "best")


def test_ridge_halves_the_crps_of_seasonal_naive_on_airline(generator: torch.Generator) -> None:
    pytest.importorskip("statsforecast")
    case = case_of("airline")
    methods = {"SeasonalNaive": StatsForecast("SeasonalNaive"), "RidgeAR": RidgeAR(generator)}
    table = summary(backtest(case, methods, block(case, "final")), "SeasonalNaive")
    # the measured value; other draws of the residuals move it by less than 0.02
    assert table.loc["RidgeAR", "airline"] == pytest.approx(0.495, abs=0.02)
