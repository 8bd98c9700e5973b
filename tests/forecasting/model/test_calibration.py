"""A spread that held-out origins correct: found where it is wrong, left where little is known, never below a floor."""

import numpy as np
import pytest

from stochflow.forecasting.model.calibration import asked_share, asked_stretch, stretched

NO_FLOOR = -np.inf


def normal(width: float, num: int = 600, steps: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a normal ensemble that is `width` times as wide as the world, and what happened."""
    rng = np.random.default_rng(seed)
    centre = 10 * rng.normal(size=(num, 1, steps))
    return centre + width * rng.normal(size=(num, 64, steps)), centre[:, 0] + rng.normal(size=(num, steps))


@pytest.mark.parametrize("width", [0.6, 1.0, 1.5])
def test_the_stretch_of_a_normal_ensemble_that_is_too_narrow_or_wide_is_found(width: float) -> None:
    paths, truth = normal(width)
    factor = asked_stretch(paths, truth, NO_FLOOR, evidence=1e6)
    # 2,400 values: the error of the coverage is 0.008, that of the factor over two times as much
    assert factor == pytest.approx(1 / width, rel=0.06)
    low, high = np.quantile(stretched(paths, factor, NO_FLOOR), [0.1, 0.9], axis=1, method="weibull")
    assert ((truth >= low) & (truth <= high)).mean() == pytest.approx(0.8, abs=0.01)


def test_little_evidence_leaves_the_spread_as_it_is() -> None:
    paths, truth = normal(0.5)
    factors = [asked_stretch(paths, truth, NO_FLOOR, evidence) for evidence in (0, 3, 30, 1e6)]
    assert factors[0] == 1.0
    assert factors[1] == pytest.approx(1.0, abs=0.01)
    assert factors[2] == pytest.approx(np.sqrt(factors[3]))  # half believed
    assert factors == sorted(factors)


def test_nothing_known_asks_for_nothing() -> None:
    paths, truth = normal(0.5, num=20)
    assert asked_stretch(paths, np.full_like(truth, np.nan), NO_FLOOR, 100.0) == 1.0
    assert asked_stretch(np.ones_like(paths), np.ones_like(truth), NO_FLOOR, 100.0) == 1.0
    # half of it unknown: the other half decides
    half = np.where(np.arange(20)[:, None] < 10, truth, np.nan)
    assert asked_stretch(paths, half, NO_FLOOR, 100.0) == asked_stretch(paths[:10], truth[:10], NO_FLOOR, 100.0)


def test_coverage_is_not_bought_with_a_worse_crps() -> None:
    # right but for every fourth value, which no sensible interval reaches
    paths, truth = normal(1.0)
    lost = np.where(np.arange(len(truth))[:, None] % 4 == 0, truth + 1000, truth)
    factor = asked_stretch(paths, lost, NO_FLOOR, evidence=1e6)
    assert factor == pytest.approx(3.0)  # a thousand away, every step towards it pays
    near = np.where(np.arange(len(truth))[:, None] % 4 == 0, truth * 0 + paths.mean(axis=1) + 2.2, truth)
    assert asked_stretch(paths, near, NO_FLOOR, evidence=1e6) < 1.6


def test_order_and_median_stay_and_quantiles_do_not_cross() -> None:
    paths = normal(1.0, num=3)[0][:, 1:]  # an odd number: the median is one of them
    for floor in (NO_FLOOR, float(paths.min())):
        moved = stretched(paths, 1.7, floor)
        assert (moved.argsort(axis=1, kind="stable") == paths.argsort(axis=1, kind="stable")).all()
        np.testing.assert_allclose(np.median(moved, axis=1), np.median(paths, axis=1), rtol=1e-12, atol=1e-12)
        assert (np.diff(np.quantile(moved, np.linspace(0.01, 0.99, 99), axis=1), axis=0) >= 0).all()
    np.testing.assert_allclose(
        stretched(paths, 1.7, NO_FLOOR) - np.median(paths, axis=1, keepdims=True),
        1.7 * (paths - np.median(paths, axis=1, keepdims=True)),
    )
    assert stretched(paths, 1.0, NO_FLOOR) is paths


def test_what_cannot_be_negative_stays_so_and_zeros_stay_zeros() -> None:
    rng = np.random.default_rng(0)
    paths = rng.gamma(2.0, size=(5, 400, 3)) * (rng.random((5, 400, 3)) < 0.7)
    for factor in (0.5, 3.0):
        moved = stretched(paths, factor, 0.0)
        assert moved.min() == 0
        assert ((moved == 0) == (paths == 0)).all()
    # as steep as the line at the median, on both sides
    near = np.array([0.999, 0.9995, 1.0, 1.0005, 1.001])[:, None]
    np.testing.assert_allclose(stretched(near, 2.0, 0.0)[:, 0], [0.998, 0.999, 1.0, 1.001, 1.002], rtol=2e-6)
    # above a floor at the median there is no way down
    dry = np.array([0.0, 0.0, 0.0, 1.0])[:, None]
    assert stretched(dry, 2.0, 0.0)[:, 0].tolist() == [0.0, 0.0, 0.0, 2.0]


def test_values_above_a_floor_are_calibrated_too() -> None:
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(size=(600, 1, 4)))
    paths, truth = scale * np.exp(0.4 * rng.normal(size=(600, 64, 4))), scale[:, 0] * np.exp(rng.normal(size=(600, 4)))
    factor = asked_stretch(paths, truth, 0.0, evidence=1e6)
    low, high = np.quantile(stretched(paths, factor, 0.0), [0.1, 0.9], axis=1, method="weibull")
    assert factor > 2
    assert ((truth >= low) & (truth <= high)).mean() == pytest.approx(0.8, abs=0.01)


def test_values_on_the_floor_and_certain_steps_tell_nothing() -> None:
    paths, truth = (np.exp(values / 10) for values in normal(0.6))
    night = np.zeros_like(paths[:300])
    both = np.concatenate([paths, night]), np.concatenate([truth, night[:, 0]])
    assert asked_stretch(*both, 0.0, 1e6) == pytest.approx(asked_stretch(paths, truth, 0.0, 1e6))


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (0.1, 0.1), (0.2, 0.2), (0.5, 0.3)])
def test_another_forecast_gets_the_share_that_it_is_right(rate: float, share: float) -> None:
    # one says 0 and the other 1: the CRPS of the mixture is least where its share is the rate of ones
    truth = (np.arange(100) % 10 < 10 * rate).astype(float)[:, None]
    zeros, ones = np.zeros((100, 100, 1)), np.ones((100, 30, 1))
    assert asked_share(zeros, ones, truth, most=0.3) == pytest.approx(share)
