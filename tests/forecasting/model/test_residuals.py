"""The residual distribution: its distribution function, inverse and slope."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from stochflow.forecasting.model.residuals import ResidualDistribution, fit_residuals


def normal_residuals(num: int = 500) -> ResidualDistribution:
    return fit_residuals(np.random.default_rng(0).normal(size=num), np.ones(num))


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=80))
def test_knots_and_levels_increase_whatever_the_residuals(values: list[float]) -> None:
    noise = fit_residuals(np.array(values), np.ones(len(values)))
    assert (noise.knots.diff() > 0).all()
    assert (noise.levels.diff() >= 0).all()
    assert (noise.levels[0], noise.levels[-1]) == (0.0, 1.0)
    assert noise.knots[0] < min(values) <= max(values) < noise.knots[-1]


def test_quantile_and_cdf_undo_each_other() -> None:
    noise = normal_residuals()
    levels = torch.linspace(0.0005, 0.9995, 500, dtype=torch.float64)
    torch.testing.assert_close(noise.cdf(noise.quantile(levels)), levels, atol=1e-9, rtol=0)
    values = torch.linspace(float(noise.knots[0]), float(noise.knots[-1]), 500, dtype=torch.float64)
    torch.testing.assert_close(noise.quantile(noise.cdf(values)), values, atol=1e-6, rtol=0)


def test_beyond_the_ends_the_curve_is_flat() -> None:
    noise = normal_residuals()
    far = torch.tensor([-1e6, 1e6], dtype=torch.float64)
    assert noise.cdf(far).tolist() == [0.0, 1.0]
    assert noise.quantile(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == [
        noise.knots[0],
        noise.knots[-1],
    ]


def test_the_gradient_of_the_curve_is_its_density() -> None:
    noise = normal_residuals()
    # away from the knots, where the slope jumps
    values = ((noise.knots[1:-2] + noise.knots[2:-1]) / 2)[::20].requires_grad_()
    assert gradcheck(noise.cdf, (values,), eps=1e-7, atol=1e-4)
    (density,) = torch.autograd.grad(noise.cdf(values).sum(), values)
    slope = (noise.levels[2:-1] - noise.levels[1:-2]) / (noise.knots[2:-1] - noise.knots[1:-2])
    torch.testing.assert_close(density, slope[::20])


def test_quantiles_are_those_of_the_residuals() -> None:
    values = np.random.default_rng(1).normal(size=2000)
    noise = fit_residuals(values, np.ones(2000))
    for level in (0.01, 0.1, 0.5, 0.9, 0.99):
        found = float(noise.quantile(torch.tensor(level, dtype=torch.float64)))
        assert found == pytest.approx(np.quantile(values, level, method="hazen"), abs=0.03)


def test_a_weight_of_three_is_three_equal_residuals() -> None:
    values, weights = np.array([-1.0, 0.5, 2.0]), np.array([1.0, 3.0, 1.0])
    noise = fit_residuals(values, weights)
    # middles of the masses 0.2, 0.6, 0.2
    levels = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    torch.testing.assert_close(
        noise.quantile(levels), torch.tensor([-1.0, -0.25, 0.5, 1.25, 2.0]).double(), atol=0.02, rtol=0
    )
    scaled = fit_residuals(values, 10 * weights)
    torch.testing.assert_close(scaled.knots, noise.knots)


def test_a_value_that_repeats_holds_its_share() -> None:
    values = np.array([0.0] * 80 + list(np.linspace(-1, -0.1, 10)) + list(np.linspace(0.1, 1, 10)))
    noise = fit_residuals(values, np.ones(100))
    below, above = noise.cdf(torch.tensor([-1e-3, 1e-3], dtype=torch.float64)).tolist()
    assert above - below == pytest.approx(0.8, abs=0.02)
    draws = noise.quantile(torch.linspace(0, 1, 1001, dtype=torch.float64))
    assert float((draws.abs() < 1e-3).double().mean()) == pytest.approx(0.8, abs=0.02)


def test_identical_residuals_make_a_narrow_peak() -> None:
    noise = fit_residuals(np.zeros(5), np.ones(5))
    assert (
        noise.quantile(torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).abs().max()
        < 1e-5
    )
