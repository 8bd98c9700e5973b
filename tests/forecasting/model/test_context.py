"""Windows of the context encoder: where they end, and how they are scaled."""

import numpy as np
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.context import context_windows, window_scaled
from stochflow.forecasting.model.linear_models import fit_linear_models
from stochflow.forecasting.model.seasonality import Seasonality

PLAIN = Seasonality(1)


def series_of(y: np.ndarray, exogenous: np.ndarray) -> Series:
    num = len(y)
    return Series("a", y, np.ones(num, dtype=bool), exogenous, np.zeros((num, 0)), np.arange(num, dtype=float))


def test_context_windows_end_before_their_origin() -> None:
    rng = np.random.default_rng(1)
    panel = [series_of(rng.normal(size=num), rng.random((num, 1))) for num in (60, 70)]
    panel[1].observed[40] = False
    models = fit_linear_models(panel, PLAIN, ForecastConfig(num_bins=33))
    windows = context_windows(panel, models, 6)
    inputs = windows.at(torch.tensor([1, 0, 1]), torch.tensor([44, 2, 70]))
    assert inputs["features"].shape == (3, 6, 3)
    np.testing.assert_allclose(inputs["features"][0, :, 2], panel[1].exogenous[38:44, 0])
    assert inputs["present"][0].tolist() == [True, True, False, True, True, True]
    assert inputs["present"][1].tolist() == [False] * 4 + [True] * 2
    assert inputs["times"][0].tolist() == [-5, -4, -3, -2, -1, 0]
    values = models.ensembles[1].values[0, 64:]
    scaled = (values - values.mean()) / values.std()
    np.testing.assert_allclose(inputs["features"][2, :, 0], scaled, rtol=1e-4)


def test_windows_are_scaled_by_what_is_present() -> None:
    values, present = torch.tensor([[1.0, 3.0, 100.0], [2.0, 2.0, 2.0]]), torch.tensor([[True, True, False]] * 2)
    assert window_scaled(values, present).tolist() == [[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert window_scaled(values, torch.zeros(2, 3, dtype=torch.bool)).abs().max() == 0
