"""What the network sees, column by column."""

import numpy as np
import torch

from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of
from stochflow.forecasting.model.state_features import residual_window, state_features

DAYS = seasonality_of("D")


def columns(
    residuals: torch.Tensor, values: torch.Tensor | None = None, seasonality: Seasonality = DAYS, fitted: float = 0.0
) -> torch.Tensor:
    values = torch.zeros(seasonality.window, dtype=torch.float64) if values is None else values
    return state_features(residuals, values, torch.tensor(fitted, dtype=torch.float64), torch.zeros(0), seasonality)


def test_the_window_reaches_four_seasons_or_the_long_one() -> None:
    assert residual_window(Seasonality(1)) == residual_window(DAYS) == 32
    assert residual_window(seasonality_of("MS")) == 48
    assert residual_window(seasonality_of("h")) == 168


def test_recent_residuals_come_first_latest_last() -> None:
    residuals = torch.arange(32, dtype=torch.float64)
    seen = columns(residuals)
    np.testing.assert_allclose(seen[:6], np.arcsinh(np.arange(26, 32)), rtol=1e-6)


def test_volatility_weights_recent_residuals_more_the_faster_it_decays() -> None:
    young, old = torch.zeros(32, dtype=torch.float64), torch.zeros(32, dtype=torch.float64)
    young[-1], old[0] = 1.0, 1.0
    assert columns(young)[7] > columns(young)[6]  # the fast mean notices the last residual more
    assert columns(old)[7] < columns(old)[6]
    steady = torch.full((32,), -2.0, dtype=torch.float64)
    torch.testing.assert_close(columns(steady)[6:8], torch.full((2,), 2.1).log())


def test_seasonal_columns_read_the_same_phase_one_season_back() -> None:
    residuals = torch.zeros(32, dtype=torch.float64)
    residuals[-7] = -3.0
    seen = columns(residuals)
    np.testing.assert_allclose(seen[8], np.log(3 / 4 + 0.1), rtol=1e-6)  # mean size over four seasons
    np.testing.assert_allclose(seen[9], np.arcsinh(-3.0), rtol=1e-6)


def test_levels_are_the_next_value_the_last_and_that_of_a_season_ago_within_five() -> None:
    values = torch.arange(15, dtype=torch.float64) / 4
    seen = columns(torch.zeros(32, dtype=torch.float64), values, fitted=9.0)
    np.testing.assert_allclose(seen[-3:], [5.0, 14 / 4, 8 / 4])


def test_the_shape_follows_the_seasonality_and_the_exogenous_features() -> None:
    for seasonality, expected in ((Seasonality(1), 10), (DAYS, 13), (seasonality_of("h"), 14)):
        residuals = torch.zeros(2, 3, residual_window(seasonality), dtype=torch.float64)
        values = torch.zeros(2, 3, seasonality.window, dtype=torch.float64)
        exogenous = torch.ones(2, 3, 4, dtype=torch.float64)
        seen = state_features(residuals, values, torch.zeros(2, 3, dtype=torch.float64), exogenous, seasonality)
        assert seen.shape == (2, 3, expected + 4)
        assert seen.dtype == torch.float32
        assert (seen[..., -4:] == 1).all()
