"""The ridge regression: from any origin of what it has learned, above its floor, and as a share of other paths."""

import numpy as np
import torch

from stochflow.forecasting.data.series import Array
from stochflow.forecasting.model.ridge_ar import Ridge, main_season, naive_step, season_fourier, with_ridge_paths
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of

NO_FLOOR = -np.inf
MONTHS = seasonality_of("MS")


def fit(y: Array, seasonality: Seasonality = MONTHS, floor: float = NO_FLOOR) -> Ridge:
    return Ridge.fit(y, np.ones(len(y), dtype=bool), seasonality, floor)


def rain(num: int = 200) -> Array:
    """Never below zero, and often there."""
    return np.maximum(np.random.default_rng(0).normal(size=num), 0.0)


def test_from_every_origin_a_line_with_a_season_goes_on(generator: torch.Generator) -> None:
    times = np.arange(240)
    y = 0.5 * times + 10 * np.sin(2 * np.pi * times / 12)
    origins = np.array([150, 177, 228])
    found = fit(y[:150]).paths(y, origins, 12, 3, generator)
    expected = y[origins[:, None] + np.arange(12)]
    np.testing.assert_allclose(found, np.repeat(expected[:, None], 3, axis=1), atol=1e-6)


def test_several_origins_at_once_are_each_by_itself(generator: torch.Generator) -> None:
    y = np.random.default_rng(1).normal(size=150).cumsum()
    ridge, state = fit(y[:120]), generator.get_state()
    both = ridge.paths(y, np.array([120, 140]), 4, 5, generator)
    first = ridge.paths(y, np.array([120]), 4, 5, generator.set_state(state))
    second = ridge.paths(y, np.array([140]), 4, 5, generator)
    np.testing.assert_allclose(both, np.concatenate([first, second]), rtol=1e-12)


def test_the_floor_moves_with_the_data_and_nothing_falls_below(generator: torch.Generator) -> None:
    y, state = rain(), generator.get_state()
    origin = np.array([200])
    above_zero = fit(y, floor=0.0).paths(y, origin, 6, 200, generator)
    shifted = fit(y - 7, floor=-7.0).paths(y - 7, origin, 6, 200, generator.set_state(state))
    np.testing.assert_allclose(shifted, above_zero - 7, atol=1e-9)
    assert above_zero.min() == 0
    # what lies below the floor after the end of learning counts as the floor
    late = np.append(y[:190], np.full(10, -5.0))
    assert np.isfinite(fit(y[:190], floor=0.0).paths(late, origin, 6, 10, generator)).all()


def test_a_regression_that_explodes_stays_finite(generator: torch.Generator) -> None:
    y = 1.5 ** np.arange(60.0)
    assert np.isfinite(fit(y, Seasonality(1)).paths(y, np.array([60]), 3000, 2, generator)).all()


def test_a_share_of_other_paths_is_drawn_after_the_end(generator: torch.Generator) -> None:
    y, paths = rain(), np.full((20, 6), -1.0)
    ridge = fit(y, floor=0.0)
    found = with_ridge_paths(paths, 0.3, ridge, y, generator)
    drawn = (found >= 0).all(axis=1)
    assert drawn.sum() == 6
    assert (found[~drawn] == -1).all()
    assert (with_ridge_paths(paths, 0.3, None, y, generator) == paths).all()
    assert (with_ridge_paths(paths, 0.0, ridge, y, generator) == paths).all()


def test_the_main_season_leaves_the_week_of_hours_out() -> None:
    assert main_season(seasonality_of("h")) == Seasonality(24, 0, ((24.0, 3),))


def test_days_know_the_year_and_long_seasons_have_three_harmonics() -> None:
    assert season_fourier(1) == ()
    assert season_fourier(12) == ((12.0, 6),)
    assert season_fourier(7) == ((7.0, 3), (365.25, 2))
    assert season_fourier(24) == ((24.0, 3),)


def test_the_naive_step_repeats_last_seasons_change() -> None:
    z = np.array([[1.0, 2, 4, 8, 16]])
    assert naive_step(z, 4, 3).tolist() == [8 + 2 - 1]
    assert naive_step(z, 4, 1).tolist() == [8]
