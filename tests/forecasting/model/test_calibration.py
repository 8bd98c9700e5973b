"""Calibration on held-out origins: found where it is wrong, neutral with little data, never below a floor."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.calibration import (
    calibrate,
    calibrate_at,
    select_ridge_share,
    select_stretch,
    stretch_paths,
)
from stochflow.forecasting.model.fit import TrainedNetwork
from stochflow.forecasting.model.linear_models import LinearModels, fit_linear_models
from stochflow.forecasting.model.seasonality import Seasonality

NO_FLOOR = -np.inf


def normal(width: float, num: int = 600, steps: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a normal ensemble with `width` times the standard deviation of the truth, and the truth."""
    rng = np.random.default_rng(seed)
    centre = 10 * rng.normal(size=(num, 1, steps))
    return centre + width * rng.normal(size=(num, 64, steps)), centre[:, 0] + rng.normal(size=(num, steps))


@pytest.mark.parametrize("width", [0.6, 1.0, 1.5])
def test_the_stretch_of_a_normal_ensemble_that_is_too_narrow_or_wide_is_found(width: float) -> None:
    paths, truth = normal(width)
    factor = select_stretch(paths, truth, NO_FLOOR, evidence=1e6)
    # 2,400 values: the error of the coverage is 0.008, that of the factor over two times as much
    assert factor == pytest.approx(1 / width, rel=0.06)
    low, high = np.quantile(stretch_paths(paths, factor, NO_FLOOR), [0.1, 0.9], axis=1, method="weibull")
    assert ((truth >= low) & (truth <= high)).mean() == pytest.approx(0.8, abs=0.01)


def test_little_evidence_leaves_the_spread_as_it_is() -> None:
    paths, truth = normal(0.5)
    factors = [select_stretch(paths, truth, NO_FLOOR, evidence) for evidence in (0, 3, 30, 1e6)]
    assert factors[0] == 1.0
    assert factors[1] == pytest.approx(1.0, abs=0.01)
    assert factors[2] == pytest.approx(np.sqrt(factors[3]))  # the logarithm is halved
    assert factors == sorted(factors)


def test_nothing_known_asks_for_nothing() -> None:
    paths, truth = normal(0.5, num=20)
    assert select_stretch(paths, np.full_like(truth, np.nan), NO_FLOOR, 100.0) == 1.0
    assert select_stretch(np.ones_like(paths), np.ones_like(truth), NO_FLOOR, 100.0) == 1.0
    # half of it unknown: the other half decides
    half = np.where(np.arange(20)[:, None] < 10, truth, np.nan)
    assert select_stretch(paths, half, NO_FLOOR, 100.0) == select_stretch(paths[:10], truth[:10], NO_FLOOR, 100.0)


def test_coverage_is_not_bought_with_a_worse_crps() -> None:
    # right but for every fourth value, which no sensible interval reaches
    paths, truth = normal(1.0)
    lost = np.where(np.arange(len(truth))[:, None] % 4 == 0, truth + 1000, truth)
    factor = select_stretch(paths, lost, NO_FLOOR, evidence=1e6)
    assert factor == pytest.approx(3.0)  # a thousand away, every step towards it pays
    near = np.where(np.arange(len(truth))[:, None] % 4 == 0, truth * 0 + paths.mean(axis=1) + 2.2, truth)
    assert select_stretch(paths, near, NO_FLOOR, evidence=1e6) < 1.6


def test_order_and_median_stay_and_quantiles_do_not_cross() -> None:
    paths = normal(1.0, num=3)[0][:, 1:]  # an odd number: the median is one of them
    for floor in (NO_FLOOR, float(paths.min())):
        moved = stretch_paths(paths, 1.7, floor)
        assert (moved.argsort(axis=1, kind="stable") == paths.argsort(axis=1, kind="stable")).all()
        np.testing.assert_allclose(np.median(moved, axis=1), np.median(paths, axis=1), rtol=1e-12, atol=1e-12)
        assert (np.diff(np.quantile(moved, np.linspace(0.01, 0.99, 99), axis=1), axis=0) >= 0).all()
    np.testing.assert_allclose(
        stretch_paths(paths, 1.7, NO_FLOOR) - np.median(paths, axis=1, keepdims=True),
        1.7 * (paths - np.median(paths, axis=1, keepdims=True)),
    )
    assert stretch_paths(paths, 1.0, NO_FLOOR) is paths


def test_what_cannot_be_negative_stays_so_and_zeros_stay_zeros() -> None:
    rng = np.random.default_rng(0)
    paths = rng.gamma(2.0, size=(5, 400, 3)) * (rng.random((5, 400, 3)) < 0.7)
    for factor in (0.5, 3.0):
        moved = stretch_paths(paths, factor, 0.0)
        assert moved.min() == 0
        assert ((moved == 0) == (paths == 0)).all()
    # as steep as the line at the median, on both sides
    near = np.array([0.999, 0.9995, 1.0, 1.0005, 1.001])[:, None]
    np.testing.assert_allclose(stretch_paths(near, 2.0, 0.0)[:, 0], [0.998, 0.999, 1.0, 1.001, 1.002], rtol=2e-6)
    # above a floor at the median there is no way down
    dry = np.array([0.0, 0.0, 0.0, 1.0])[:, None]
    assert stretch_paths(dry, 2.0, 0.0)[:, 0].tolist() == [0.0, 0.0, 0.0, 2.0]


def test_values_above_a_floor_are_calibrated_too() -> None:
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(size=(600, 1, 4)))
    paths, truth = scale * np.exp(0.4 * rng.normal(size=(600, 64, 4))), scale[:, 0] * np.exp(rng.normal(size=(600, 4)))
    factor = select_stretch(paths, truth, 0.0, evidence=1e6)
    low, high = np.quantile(stretch_paths(paths, factor, 0.0), [0.1, 0.9], axis=1, method="weibull")
    assert factor > 2
    assert ((truth >= low) & (truth <= high)).mean() == pytest.approx(0.8, abs=0.01)


def test_values_on_the_floor_and_certain_steps_tell_nothing() -> None:
    paths, truth = (np.exp(values / 10) for values in normal(0.6))
    night = np.zeros_like(paths[:300])
    both = np.concatenate([paths, night]), np.concatenate([truth, night[:, 0]])
    assert select_stretch(*both, 0.0, 1e6) == pytest.approx(select_stretch(paths, truth, 0.0, 1e6))


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (0.1, 0.1), (0.2, 0.2), (0.5, 0.3)])
def test_another_forecast_gets_the_share_that_it_is_right(rate: float, share: float) -> None:
    # one says 0 and the other 1: the CRPS of the mixture is least where its share is the rate of ones
    truth = (np.arange(100) % 10 < 10 * rate).astype(float)[:, None]
    zeros, ones = np.zeros((100, 100, 1)), np.ones((100, 30, 1))
    assert select_ridge_share(zeros, ones, truth, most=0.3) == pytest.approx(share)


NOTHING = TrainedNetwork(None, "none")


def series_of(y: np.ndarray, uid: str = "a") -> Series:
    num = len(y)
    empty = np.zeros((num, 0))
    return Series(uid, y, np.ones(num, dtype=bool), empty, empty, np.arange(num, dtype=float))


def settings(**changed: Any) -> ForecastConfig:
    return ForecastConfig(network="none", num_bins=65, validation_paths=32, **changed)


def overconfident(models: LinearModels, share: float) -> LinearModels:
    """The same models with underestimated errors."""
    ensembles = [replace(one, noise_scale=share * one.noise_scale) for one in models.ensembles]
    return replace(models, ensembles=ensembles)


def test_overconfident_models_are_corrected_series_by_series() -> None:
    rng = np.random.default_rng(3)
    panel = [series_of(50 + rng.normal(size=600), "long"), series_of(50 + rng.normal(size=60), "short")]
    config = settings()
    models = fit_linear_models(panel, Seasonality(1), config, [400, 45])
    origins = [list(range(400, 597, 3)), list(range(45, 58, 3))]
    honest, sure = (
        {uid: found.stretch for uid, found in calibrate_at(origins, NOTHING, panel, each, 2, config).items()}
        for each in (models, overconfident(models, 0.5))
    )
    assert honest["long"] == pytest.approx(1.0, abs=0.12)
    assert sure["long"] / honest["long"] == pytest.approx(2.0, rel=0.2)
    assert sure["short"] == pytest.approx(1.0, abs=0.05)
    assert calibrate_at([origins[0], []], NOTHING, panel, models, 2, config).keys() == {"long"}


def test_the_latest_horizons_decide_on_the_scale() -> None:
    rng = np.random.default_rng(5)
    volatility = np.where(np.arange(2000) < 1920, 1.0, 3.0)
    y = 50 + volatility * rng.normal(size=2000)
    config = settings()
    # 30 horizons of 2 steps lie in the volatile part, a fifth of the series would be calm for the most part
    late = calibrate(NOTHING, [series_of(y)], Seasonality(1), 2, config)["a"].stretch
    early = calibrate(NOTHING, [series_of(y[:1920])], Seasonality(1), 2, config)["a"].stretch
    assert early == pytest.approx(1.0, abs=0.15)
    # the logarithm is halved: of a factor that is bounded by 3, the root
    assert late == pytest.approx(np.sqrt(3.0), rel=0.1)


def test_every_series_with_held_out_origins_is_calibrated_unless_it_is_switched_off() -> None:
    panel = [series_of(np.random.default_rng(0).normal(size=120)), series_of(np.arange(20.0), "brief")]
    assert calibrate(NOTHING, panel, Seasonality(1), 4, settings(calibration_origins=16)).keys() == {"a"}
    assert calibrate(NOTHING, panel, Seasonality(1), 4, settings(calibration_origins=0)) == {}


def test_the_ridge_share_has_the_least_held_out_crps_and_the_scale_is_that_of_the_mixture() -> None:
    rng = np.random.default_rng(4)
    y = 50 + lfilter([1.0], [1.0, -0.7], rng.normal(size=900))
    panel, origins = [series_of(y)], [list(range(600, 899, 2))]
    config = settings().model_copy(update={"network": "mlp", "context_min_values": 500})
    models = fit_linear_models(panel, Seasonality(1), config, [600])
    shifted = replace(models, ensembles=[replace(one, intercept=one.intercept + 3) for one in models.ensembles])
    good, bad = (calibrate_at(origins, NOTHING, panel, each, 2, config)["a"] for each in (models, shifted))
    assert good.ridge_share < 0.3
    assert bad.ridge_share == 0.3
    # where the ridge is right, intervals of biased models need less scaling than without it
    alone = calibrate_at(origins, NOTHING, panel, replace(shifted, ridges=[None]), 2, config)["a"]
    assert alone.ridge_share == 0
    assert bad.stretch < 0.8 * alone.stretch
