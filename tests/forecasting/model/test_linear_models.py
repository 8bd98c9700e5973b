"""Linear models of a panel: what they share, and what they do not learn from."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.linear_models import fit_linear_models
from stochflow.forecasting.model.seasonality import Seasonality

PLAIN = Seasonality(1)


def settings(**changed: Any) -> ForecastConfig:
    return ForecastConfig(**{"num_bins": 33, **changed})


def white(num: int = 120, seed: int = 0, columns: int = 0) -> Series:
    y, empty = 10 + np.random.default_rng(seed).normal(size=num), np.zeros((num, 0))
    return Series("a", y, np.ones(num, dtype=bool), np.ones((num, columns)), empty, np.arange(num, dtype=float))


def test_residual_distribution_and_bins_know_nothing_after_the_end_of_training() -> None:
    series = white(100)
    changed = replace(series, y=np.append(series.y[:80], 50 + series.y[80:] ** 2))
    before, after = (fit_linear_models([each], PLAIN, settings(), [80]) for each in (series, changed))
    assert torch.equal(before.noise.knots, after.noise.knots)
    assert torch.equal(before.bins.edges, after.bins.edges)


def test_long_plain_series_have_a_ridge_regression_of_what_came_before() -> None:
    wanted = settings(context_min_values=300)
    long, short = white(400), white(250)
    known = fit_linear_models([long, short], PLAIN, wanted, [350, 250])
    changed = replace(long, y=np.append(long.y[:350], 100 + long.y[350:]))
    ridge, later = known.ridges[0], fit_linear_models([changed], PLAIN, wanted, [350]).ridges[0]
    assert ridge is not None
    assert later is not None
    np.testing.assert_array_equal(ridge.residuals, later.residuals)
    assert len(ridge.residuals) == 350 - 14
    assert known.ridges[1] is None
    irregular = replace(long, positions=long.positions + 0.5 * (long.positions > 50))
    others = [white(400, columns=1), irregular, replace(long, y=1e20 * long.y)]
    assert fit_linear_models(others, PLAIN, wanted).ridges == [None] * 3
    for unwanted in ({"network": "none"}, {"ridge_share": 0}):
        assert fit_linear_models([long], PLAIN, settings(context_min_values=300, **unwanted)).ridges == [None]
    # however little is called long, so light a penalty needs more
    assert fit_linear_models([white(150)], PLAIN, settings(context_min_values=0)).ridges == [None]


def test_the_models_pool_the_residuals_of_all_series() -> None:
    panel = [white(60), white(150, seed=2)]
    models = fit_linear_models(panel, PLAIN, settings())
    finite = [one.residuals[np.isfinite(one.residuals)] for one in models.ensembles]
    largest = max(np.abs(values).max() for values in finite)
    assert float(models.bins.edges[-1]) == pytest.approx(
        max(1.25 * largest, 4 * np.median(np.abs(np.concatenate(finite))))
    )
    assert float(models.noise.knots[0]) < min(values.min() for values in finite)
    assert models.bins.num_bins == 33
