"""Settings of a forecaster are checked before any data are read."""

from typing import Any

import numpy as np
import pytest

from stochflow.core.errors import ConfigError
from stochflow.forecasting.config import ForecastConfig, check_horizon
from stochflow.forecasting.forecaster import StochflowForecaster


def test_defaults_are_valid_and_come_back_from_plain_values() -> None:
    assert ForecastConfig.checked(ForecastConfig().model_dump()) == ForecastConfig()


def test_an_unknown_setting_is_answered_with_those_of_a_forecaster() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'colour'; known are: network, objective, point_loss"):
        ForecastConfig.checked({"colour": "red"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "rnn"}, "setting 'network'.*'auto', 'none', 'mlp' or 'transformer'"),
        ({"learning_rate": 0.0}, "setting 'learning_rate'.*greater than 0"),
        ({"num_bins": 5}, "setting 'num_bins'.*greater than or equal to 9"),
        ({"seed": 1.5}, "setting 'seed'"),
        ({"context_width": 30}, "context_width is 30; give a multiple of 4"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StochflowForecaster(**settings)


def test_every_field_says_what_it_does() -> None:
    assert all(field.description for field in ForecastConfig.model_fields.values())


@pytest.mark.parametrize("horizon", [0, -3, True, 1.5, "3", None, 100_001])
def test_a_horizon_is_a_number_of_steps(horizon: int) -> None:
    with pytest.raises(ConfigError, match=r"horizon is .*; give the number of steps to forecast, 1 or more"):
        check_horizon(horizon)


def test_a_horizon_of_one_is_enough() -> None:
    check_horizon(1)
    check_horizon(np.int64(100_000))  # type: ignore[arg-type]
