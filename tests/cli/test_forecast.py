"""`stochflow forecast` on tables with features."""

import re
from pathlib import Path

import pytest

from stochflow.forecasting.config import ForecastConfig
from tests.cli.conftest import Stochflow
from tests.forecasting.planted import led_by_x


def test_forecast_lists_its_settings(run_cli: Stochflow) -> None:
    result = run_cli("forecast", "--list-settings")
    assert result.code == 0
    for name in ForecastConfig.model_fields:
        assert name in result.out


def test_forecast_says_which_features_of_the_past_it_uses(run_cli: Stochflow, tmp_path: Path) -> None:
    led_by_x(0, 80).to_csv(tmp_path / "led.csv", index=False)
    result = run_cli("forecast", "led.csv", "--horizon", 1, "--network", "none", "--past", "x")
    assert (result.code, result.err.strip()) == (0, "")
    assert re.search(r"x: used by 1 series, CRPS \d\d% less on held-out origins\.", result.out)


@pytest.mark.parametrize(("value", "what"), [("inf", "'inf' in x is no finite number"), ("4", "'x' is constant")])
def test_forecast_refuses_features_that_tell_nothing(run_cli: Stochflow, tmp_path: Path, value: str, what: str) -> None:
    frame = led_by_x(0, 40)
    frame.loc[frame.index > 0, "x"] = 4.0
    frame.loc[0, "x"] = float(value)
    frame.to_csv(tmp_path / "led.csv", index=False)
    result = run_cli("forecast", "led.csv", "--network", "none", "--past", "x")
    assert (result.code, "Traceback" in result.err) == (2, False)
    assert what in result.err


def test_forecast_names_the_event_that_the_future_table_lacks(run_cli: Stochflow, tmp_path: Path) -> None:
    led_by_x(0, 40).to_csv(tmp_path / "led.csv", index=False)
    led_by_x(0, 60)[40:][["ds"]].to_csv(tmp_path / "later.csv", index=False)
    result = run_cli("forecast", "led.csv", "--network", "none", "--future", "x", "--future-data", "later.csv")
    assert result.code == 2
    assert "there is no column 'x'" in result.err
