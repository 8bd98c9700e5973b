"""The spread that held-out origins ask for: each series by itself, as far as there is evidence."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.fit import Trained, World, fit_world
from stochflow.forecasting.model.seasonality import Rhythm
from stochflow.forecasting.model.spread import judged, verdicts

NOTHING = Trained(None, "none")


def series_of(y: np.ndarray, uid: str = "a") -> Series:
    num = len(y)
    empty = np.zeros((num, 0))
    return Series(uid, y, np.ones(num, dtype=bool), empty, empty, np.arange(num, dtype=float))


def settings(**changed: Any) -> ForecastConfig:
    return ForecastConfig(network="none", num_bins=65, validation_paths=32, **changed)


def quieter(world: World, share: float) -> World:
    """The same world whose anchors think that they err less."""
    anchors = [replace(one, noise_scale=share * one.noise_scale) for one in world.anchors]
    return replace(world, anchors=anchors)


def test_anchors_that_are_too_sure_of_themselves_are_corrected_series_by_series() -> None:
    rng = np.random.default_rng(3)
    panel = [series_of(50 + rng.normal(size=600), "long"), series_of(50 + rng.normal(size=60), "short")]
    config = settings()
    world = fit_world(panel, Rhythm(1), config, [400, 45])
    origins = [list(range(400, 597, 3)), list(range(45, 58, 3))]
    honest, sure = (
        {uid: verdict.stretch for uid, verdict in judged(NOTHING, panel, each, origins, 2, config).items()}
        for each in (world, quieter(world, 0.5))
    )
    assert honest["long"] == pytest.approx(1.0, abs=0.12)
    assert sure["long"] / honest["long"] == pytest.approx(2.0, rel=0.2)
    assert sure["short"] == pytest.approx(1.0, abs=0.05)
    assert judged(NOTHING, panel, world, [origins[0], []], 2, config).keys() == {"long"}


def test_the_latest_horizons_decide_on_the_spread() -> None:
    rng = np.random.default_rng(5)
    calm_then_wild = np.where(np.arange(2000) < 1920, 1.0, 3.0)
    y = 50 + calm_then_wild * rng.normal(size=2000)
    config = settings()
    # 30 horizons of 2 steps lie in the wild part, a fifth of the series would be calm for the most part
    wild = verdicts(NOTHING, [series_of(y)], Rhythm(1), 2, config)["a"].stretch
    calm = verdicts(NOTHING, [series_of(y[:1920])], Rhythm(1), 2, config)["a"].stretch
    assert calm == pytest.approx(1.0, abs=0.15)
    # half believed: of a factor that is bound by 3, the root
    assert wild == pytest.approx(np.sqrt(3.0), rel=0.1)


def test_every_series_with_held_out_origins_gets_a_factor_unless_it_is_not_wanted() -> None:
    panel = [series_of(np.random.default_rng(0).normal(size=120)), series_of(np.arange(20.0), "brief")]
    assert verdicts(NOTHING, panel, Rhythm(1), 4, settings(calibration_origins=16)).keys() == {"a"}
    assert verdicts(NOTHING, panel, Rhythm(1), 4, settings(calibration_origins=0)) == {}


def test_a_ridge_regression_draws_as_many_paths_as_held_out_origins_ask_and_is_judged_with_them() -> None:
    rng = np.random.default_rng(4)
    y = 50 + lfilter([1.0], [1.0, -0.7], rng.normal(size=900))
    panel, origins = [series_of(y)], [list(range(600, 899, 2))]
    config = settings().model_copy(update={"network": "mlp", "context_min_values": 500})
    world = fit_world(panel, Rhythm(1), config, [600])
    shifted = replace(world, anchors=[replace(one, intercept=one.intercept + 3) for one in world.anchors])
    good, bad = (judged(NOTHING, panel, each, origins, 2, config)["a"] for each in (world, shifted))
    assert good.ridge < 0.3
    assert bad.ridge == 0.3
    # where the ridge is right, intervals of anchors that are wrong need less than without it
    alone = judged(NOTHING, panel, replace(shifted, ridges=[None]), origins, 2, config)["a"]
    assert alone.ridge == 0
    assert bad.stretch < 0.8 * alone.stretch
