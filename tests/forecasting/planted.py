"""Series with planted effects of features, for tests and `benchmarks/forecasting_effects.py`."""

import numpy as np
import pandas as pd

from stochflow.forecasting import StochflowForecaster
from stochflow.forecasting.data.series import Array

EFFECT, NUM, HORIZON = 15.0, 120, 24


def with_events(seed: int) -> tuple[pd.DataFrame, pd.DatetimeIndex]:
    """Ten years of months with trend, season, autoregressive errors and events, and the times after them."""
    generator = np.random.default_rng(seed)
    time, promo = np.arange(NUM), (generator.random(NUM) < 0.1).astype(float)
    errors = np.zeros(NUM)
    for step in range(1, NUM):
        errors[step] = 0.6 * errors[step - 1] + 2 * generator.normal()
    y = 100 + 0.3 * time + 10 * np.sin(2 * np.pi * time / 12) + errors + EFFECT * promo
    times = pd.date_range("2000-01-01", periods=NUM + HORIZON, freq="MS")
    return pd.DataFrame({"ds": times[:NUM], "y": y, "promo": promo}), times[NUM:]


def event_effects(seed: int, network: str) -> tuple[Array, Array]:
    """What an event at step 2, and twelve in a row from there on, add to the forecast, [HORIZON] each."""
    frame, ahead = with_events(seed)
    forecaster = StochflowForecaster(freq="MS", horizon=12, future=["promo"], network=network).fit(frame)

    def forecast(first: int, last: int) -> Array:
        promo = ((np.arange(HORIZON) >= first) & (np.arange(HORIZON) < last)).astype(float)
        return forecaster.predict(HORIZON, future_df=pd.DataFrame({"ds": ahead, "promo": promo}))[
            "stochflow"
        ].to_numpy()

    without = forecast(0, 0)
    return forecast(2, 3) - without, forecast(2, 14) - without


def led_by_x(seed: int, num: int) -> pd.DataFrame:
    """Days of y_t = 50 + 10·x_{t−1} + noise of deviation 1, with white x."""
    generator = np.random.default_rng(seed)
    x, noise = generator.normal(size=(2, num))
    y = 50 + 10 * np.append(0.0, x[:-1]) + noise
    return pd.DataFrame({"ds": pd.date_range("2000-01-01", periods=num), "y": y, "x": x})
