"""Series with hardly a value, or with hardly one where it counts, still give forecasts that make sense."""

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import DataError
from stochflow.forecasting.data.encoder import MIN_OBSERVED
from stochflow.forecasting.forecaster import StochflowForecaster

SHAPES = {
    "noise": lambda n: np.random.default_rng(n).normal(size=n),
    "negative": lambda n: -10 - np.random.default_rng(n).random(n),
    "trend": lambda n: 100 + np.arange(n, dtype=float),
    "constant": lambda n: np.full(n, -7.0),
    "zero": lambda n: np.zeros(n),
    "large": lambda n: 1e12 * (1 + np.random.default_rng(n).random(n)),
}


def forecast(y: np.ndarray, freq: str | None, **settings: object) -> np.ndarray:
    """Median and 90 % interval of four steps, [4, 3]."""
    times = pd.RangeIndex(len(y)) if freq is None else pd.date_range("2020-01-01", periods=len(y), freq=freq)
    chosen = {"network": "none", "num_paths": 200, **settings}
    forecaster = StochflowForecaster(freq=freq, horizon=4, **chosen).fit(pd.DataFrame({"ds": times, "y": y}))
    return forecaster.predict(level=[90])[["stochflow-lo-90", "stochflow", "stochflow-hi-90"]].to_numpy()


@pytest.mark.parametrize("freq", ["h", "D", "MS", "YS", None])
@pytest.mark.parametrize("shape", SHAPES)
def test_few_values_are_enough(shape: str, freq: str | None) -> None:
    for num in (MIN_OBSERVED, MIN_OBSERVED + 1, 11, 16):
        y = SHAPES[shape](num)
        found = forecast(y, freq)
        assert (np.diff(found, axis=1) >= 0).all()
        reach = max(20 * y.std(), 1e-6 * np.abs(y).max(), 1e-6)
        assert np.abs(found - y.mean()).max() < reach


def test_values_before_a_long_open_gap_are_enough() -> None:
    y = np.random.default_rng(0).normal(size=400)
    y[MIN_OBSERVED:] = np.nan  # two weeks of hours: the lag of a week lies in the gap
    assert np.abs(forecast(y, "h")).max() < 20


def test_a_network_is_not_trained_where_a_gap_leaves_nothing_to_learn_from() -> None:
    y = np.random.default_rng(0).normal(size=400)
    y[1:380] = np.nan
    np.testing.assert_array_equal(forecast(y, "h", network="mlp", max_steps=4), forecast(y, "h"))


def test_cross_validation_counts_values_and_not_steps() -> None:
    y = np.random.default_rng(0).normal(size=100)
    y[1:90] = np.nan
    frame = pd.DataFrame({"ds": pd.RangeIndex(100), "y": y})
    with pytest.raises(DataError, match="no series has 22 values"):
        StochflowForecaster(horizon=4, network="none").cross_validation(frame, n_windows=2)


@pytest.mark.parametrize("network", ["mlp", "transformer"])
@pytest.mark.parametrize("shape", ["constant", "zero"])
def test_a_network_learns_nothing_from_a_constant_and_does_no_harm(shape: str, network: str) -> None:
    quick = {"max_steps": 4, "check_every": 2, "context_length": 8, "min_gain": 0.0}
    y = SHAPES[shape](120)
    np.testing.assert_allclose(forecast(y, "D", network=network, **quick), y[0], atol=1e-6)
