"""How features of the past go on, against small cases by hand."""

import numpy as np
import torch

from stochflow.forecasting.model.effects import past_lags
from stochflow.forecasting.model.past_model import PastModel
from stochflow.forecasting.model.seasonality import Seasonality

YEARS = Seasonality(1)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_what_lies_before_an_origin_is_known() -> None:
    past = np.random.default_rng(0).normal(size=(60, 2))
    lags, origins = past_lags(YEARS), np.array([8, 60])
    found = PastModel.fit(past, YEARS).lagged_ahead(past, origins, 4, generator()).reshape(2, 4, 2, len(lags))
    for row, origin in enumerate(origins):
        for step in range(4):
            for number, lag in enumerate(lags):
                if lag > step:
                    np.testing.assert_array_equal(found[row, step, :, number], past[origin + step - lag])
    # what is drawn once is the same at every later lag
    np.testing.assert_array_equal(found[:, 1, :, 0], found[:, 2, :, 1])
    assert (found[0, 1, :, 0] != past[8]).all()


def test_values_before_the_first_are_means() -> None:
    past = np.random.default_rng(0).normal(size=(60, 1))
    found = PastModel.fit(past, YEARS).lagged_ahead(past, np.array([2]), 1, generator())[0, 0]
    np.testing.assert_array_equal(found, [past[1, 0], past[0, 0], 0.0, 0.0, 0.0, 0.0])


def test_an_autoregression_goes_on_and_columns_move_together() -> None:
    rng = np.random.default_rng(1)
    past = np.zeros((400, 2))
    for time in range(1, 400):
        shock = rng.normal()
        past[time] = 0.9 * past[time - 1] + 0.4 * shock * np.array([1.0, -2.0])
    model = PastModel.fit(past, YEARS)
    np.testing.assert_allclose(model.weights.sum(axis=1), 0.9, atol=0.1)
    past[-6:] = [1.0, -1.0]
    found = model.lagged_ahead(past, np.full(2000, 400), 3, generator()).reshape(2000, 3, 2, 6)[:, 2, :, 0]
    first = model.intercept + model.weights.sum(axis=1) * past[-1]
    second = model.intercept + model.weights[:, 0] * first + model.weights[:, 1:].sum(axis=1) * past[-1]
    np.testing.assert_allclose(found.mean(axis=0), second, atol=0.1)
    assert np.corrcoef(found.T)[0, 1] < -0.9
