"""Effects that were planted in series are found where they were planted, and nowhere else."""

import numpy as np
import pandas as pd
import pytest

from stochflow.forecasting import StochflowForecaster
from tests.forecasting.planted import EFFECT, HORIZON, event_effects, led_by_x, with_events


def test_one_event_has_one_effect() -> None:
    found = [event_effects(seed, "none") for seed in range(4)]
    one, twelve = (np.mean(effects, axis=0) for effects in zip(*found, strict=True))
    assert one[2] == pytest.approx(EFFECT, rel=0.1)
    np.testing.assert_allclose(np.delete(one, 2), 0.0, atol=0.05 * EFFECT)
    np.testing.assert_allclose(twelve[2:14], EFFECT, rtol=0.1)
    np.testing.assert_allclose(np.delete(twelve, range(2, 14)), 0.0, atol=0.05 * EFFECT)


def test_a_network_carries_no_event_on() -> None:
    one, twelve = event_effects(2, "mlp")
    np.testing.assert_allclose(one[3:], 0.0, atol=0.05 * EFFECT)
    np.testing.assert_allclose(twelve[14:], 0.0, atol=0.05 * EFFECT)


@pytest.mark.parametrize("num", [80, 200])
def test_a_feature_of_the_past_is_used_at_every_length(num: int) -> None:
    frame = pd.concat([led_by_x(seed, num).assign(unique_id=str(seed)) for seed in range(3)], ignore_index=True)
    forecaster = StochflowForecaster(freq="D", horizon=1, past=["x"], network="none")
    found = forecaster.cross_validation(frame, 1, n_windows=8, step_size=1, level=[80])
    errors = (found["stochflow"] - found["y"]).to_numpy()
    assert np.sqrt(np.square(errors).mean()) < 1.2  # the noise has deviation 1
    assert (found["stochflow-hi-80"] - found["stochflow-lo-80"]).mean() < 1.5 * 2 * 1.28
    gains = forecaster.fit(frame).past_gains
    assert all(list(own) == ["x"] and own["x"] > 0.7 for own in gains.values())


def test_a_default_forecast_reads_a_feature_of_the_past() -> None:
    frame = led_by_x(1, 150)
    forecasts = []
    for x in (-2.0, 0.0, 2.0):
        frame.loc[149, "x"] = x
        fitted = StochflowForecaster(freq="D", horizon=2, past=["x"], max_steps=100).fit(frame)
        forecasts.append(fitted.predict(2)["stochflow"].to_numpy())
    np.testing.assert_allclose(np.diff([made[0] for made in forecasts]), 20.0, rtol=0.1)
    # white noise tells nothing of the step after the next
    np.testing.assert_allclose([made[1] for made in forecasts], 50.0, atol=5.0)


def test_a_feature_of_noise_is_not_used_and_warned_of() -> None:
    frame = led_by_x(2, 120).assign(x=np.random.default_rng(9).normal(size=120))
    with pytest.warns(UserWarning, match="these past columns are not used: x"):
        fitted = StochflowForecaster(freq="D", horizon=4, past="x", network="none").fit(frame)
    assert fitted.past_gains == {"series": {}}
    without = StochflowForecaster(freq="D", horizon=4, network="none").fit(frame.drop(columns="x"))
    pd.testing.assert_frame_equal(fitted.predict(4), without.predict(4))


def test_what_is_used_is_saved_and_kept_by_update(tmp_path: object) -> None:
    frame = led_by_x(3, 120)
    fitted = StochflowForecaster(freq="D", horizon=2, past=["x"], network="none").fit(frame[:110])
    loaded = StochflowForecaster.load(fitted.save(f"{tmp_path}/saved"))
    assert loaded.past_gains == fitted.past_gains != {"series": {}}
    pd.testing.assert_frame_equal(loaded.predict(2), fitted.predict(2), check_exact=True)
    newer = loaded.update(frame).predict(1)["stochflow"].item()
    assert newer == pytest.approx(50 + 10 * frame["x"].iloc[-1], abs=2.0)


def test_the_future_table_must_have_every_event() -> None:
    frame, ahead = with_events(0)
    fitted = StochflowForecaster(freq="MS", future=["promo"], network="none").fit(frame)
    assert len(ahead) == HORIZON
    with pytest.raises(Exception, match="no column 'promo'"):
        fitted.predict(3, future_df=pd.DataFrame({"ds": ahead}))
