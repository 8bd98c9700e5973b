"""Effects of features against what was planted, without noise and with one-step errors by hand."""

import numpy as np
import pytest

from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.effects import past_lags, regressors_of
from stochflow.forecasting.model.linear_ensemble import EnsembleGrid, fit_ensemble
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of

MONTHS = seasonality_of("MS")


@pytest.mark.parametrize("autoregression", [0.0, 0.7, 1.0])
def test_an_effect_is_found_under_any_memory_of_the_errors(autoregression: float) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(150, 2)).cumsum(axis=0) * 0.3
    errors = np.zeros(150)
    for time in range(1, 150):
        errors[time] = autoregression * errors[time - 1] + 0.3 * rng.normal()
    y = 40 + features @ [2.0, -1.0] + errors
    calendar = MONTHS.fourier_terms(np.arange(150.0))
    grid = EnsembleGrid(plain_share=0.0, transforms=("identity",))
    ensemble = fit_ensemble(y, np.ones(150, dtype=bool), calendar, MONTHS, grid, features=features)
    found = ensemble.effects * ensemble.spread[:, None]
    np.testing.assert_allclose(found, np.broadcast_to([2.0, -1.0], found.shape), atol=0.3)
    # what is lagged is y less the effects
    left = (y - ensemble.centre[0]) / ensemble.spread[0] - features @ ensemble.effects[0]
    np.testing.assert_allclose(ensemble.values[0], left)


def test_without_features_nothing_is_explained() -> None:
    y = np.random.default_rng(0).normal(size=60).cumsum()
    bare = fit_ensemble(y, np.ones(60, dtype=bool), np.zeros((60, 0)), Seasonality(1), EnsembleGrid())
    assert bare.effects.shape == (len(bare.weight), 0)


def test_regressors_are_known_features_and_lags_of_used_columns() -> None:
    exogenous, past = np.arange(36.0).reshape(12, 3), np.arange(20.0).reshape(10, 2) + 100
    series = Series(
        "a",
        np.zeros(10),
        np.ones(10, dtype=bool),
        exogenous,
        past,
        np.arange(10.0),
        known=(1, 2),
        used_past=np.array([1]),
    )
    found = regressors_of(series, Seasonality(1))
    assert past_lags(Seasonality(1)).tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(found[:, 0], exogenous[:10, 1])
    np.testing.assert_array_equal(found[7, 1:], past[[6, 5, 4, 3, 2, 1], 1])
    np.testing.assert_array_equal(found[2, 1:], [past[1, 1], past[0, 1], 0, 0, 0, 0])
    np.testing.assert_array_equal(series.calendar, exogenous[:, [0, 2]])
