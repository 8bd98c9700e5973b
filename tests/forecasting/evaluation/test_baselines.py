"""Baselines: exact where the future is, sums checked another way, and the same answer from the same generator."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.datasets import load_series
from stochflow.forecasting.data.series import Array
from stochflow.forecasting.evaluation import baselines as module
from stochflow.forecasting.evaluation.baselines import Baseline, FeedForward, RidgeAR, StatsForecast
from stochflow.forecasting.evaluation.scoring import LEVELS
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of

MONTHS = seasonality_of("MS")


def forecast(model: Baseline, y: Array, seasonality: Seasonality, horizon: int = 12, levels: Array = LEVELS) -> Array:
    return model.quantiles(y, seasonality, horizon, levels, np.ones(len(y), dtype=bool))


def line_with_season(num: int, season: int) -> Array:
    times = np.arange(num)
    return 0.5 * times - 40 + 10 * np.sin(2 * np.pi * times / season)


def random_walk(num: int, generator: torch.Generator) -> Array:
    return torch.randn(num, generator=generator, dtype=torch.float64).cumsum(0).numpy()


def airline(num: int) -> Array:
    return load_series("airline")["y"].to_numpy()[:num]


@pytest.mark.parametrize("season", [4, 7, 12])
def test_a_line_with_a_season_goes_on_for_ever(season: int, generator: torch.Generator) -> None:
    truth = line_with_season(20 * season, season)
    q = forecast(RidgeAR(generator), truth[:-12], Seasonality(season))
    np.testing.assert_allclose(q, np.tile(truth[-12:], (99, 1)), atol=1e-6)


@pytest.mark.parametrize("season", [1, 4])
def test_one_step_of_the_ridge_is_the_least_squares_with_penalty_rows(season: int, generator: torch.Generator) -> None:
    y = random_walk(120, generator) + np.tile([0, 5, 1, 2], 30)
    z = np.append((y - y.mean()) / y.std(), 0.0)
    # the last row is the one to forecast
    rows = np.arange(14, 121)
    inputs = [z[rows - lag] for lag in range(1, 15)]
    naive = z[rows - 1]
    if season == 4:
        inputs += [np.cos(np.pi * rows / 2), np.sin(np.pi * rows / 2), np.cos(np.pi * rows)]
        naive = naive + z[rows - 4] - z[rows - 5]
    x, target = np.stack(inputs, axis=1), (z[rows] - naive)[:-1]
    x = x - x[:-1].mean(axis=0)
    # a ridge penalty is the same as one more row √λ per weight, with target zero
    stacked = np.concatenate([x[:-1], np.sqrt(0.3) * np.eye(x.shape[1])])
    weights = np.linalg.lstsq(stacked, np.concatenate([target - target.mean(), np.zeros(x.shape[1])]))[0]
    fitted = naive + target.mean() + x @ weights
    residuals = (z[rows] - fitted)[:-1]
    ends = (fitted[-1] + np.array([residuals.min(), residuals.max()])) * y.std() + y.mean()
    # with 5000 draws of 106 residuals none is left out
    extremes = forecast(RidgeAR(generator, num_paths=5000), y, Seasonality(season), 1, np.array([0.0, 1.0]))[:, 0]
    np.testing.assert_allclose(extremes, ends, rtol=1e-6)


def test_spread_grows_as_the_root_of_time_for_a_random_walk(generator: torch.Generator) -> None:
    q = forecast(
        RidgeAR(generator, penalty=1e6), random_walk(4000, generator), Seasonality(1), 16, norm.cdf([-1.0, 1.0])
    )
    half = (q[1] - q[0]) / 2
    # 1000 paths: a quantile at one sigma is good to about 5 % (two standard errors 2·√(p(1−p)/P)/φ(1))
    np.testing.assert_allclose(half[[0, 3, 15]], [1, 2, 4], rtol=0.12)


def test_counts_never_become_negative_and_all_paths_are_on_the_root_scale(generator: torch.Generator) -> None:
    y = 3 * np.abs(random_walk(200, generator)) ** 2 / 10
    y[::3] = 0
    assert forecast(RidgeAR(generator), y, seasonality_of("D")).min() == 0
    assert forecast(RidgeAR(generator), y - 1, seasonality_of("D")).min() < -1


def test_a_filled_gap_is_no_target_to_learn_from(generator: torch.Generator) -> None:
    y = line_with_season(240, 12)
    y[-1] += 100
    observed = np.ones(240, dtype=bool)
    ends = np.array([0.001, 0.999])
    surprised = RidgeAR(generator).quantiles(y, MONTHS, 1, ends, observed)
    observed[-1] = False
    calm = RidgeAR(generator).quantiles(y, MONTHS, 1, ends, observed)
    assert calm[1, 0] - calm[0, 0] < 1e-6 < 10 < surprised[1, 0] - surprised[0, 0]


def test_a_season_that_hardly_fits_is_left_out(generator: torch.Generator) -> None:
    q = forecast(RidgeAR(generator), -np.arange(20.0), MONTHS)
    np.testing.assert_allclose(q[49], -np.arange(20.0, 32.0), atol=1e-6)


def test_the_whole_calendar_sees_a_week_of_hours(generator: torch.Generator) -> None:
    hours = np.arange(24 * 7 * 8 + 24)
    week = np.where(hours // 24 % 7 < 5, 10.0, 0.0) - 3 + np.sin(2 * np.pi * hours / 24)
    errors = {}
    for whole in (False, True):
        q = forecast(RidgeAR(generator, whole_calendar=whole), week[:-24], seasonality_of("h"), 24)
        errors[whole] = np.abs(q[49] - week[-24:]).mean()
    assert errors[True] < 0.1 * errors[False]


def random_models() -> list[type[RidgeAR] | type[FeedForward]]:
    return [RidgeAR, FeedForward]


@pytest.mark.parametrize("kind", random_models())
def test_the_generator_alone_decides_and_global_state_is_left_alone(kind: type[RidgeAR] | type[FeedForward]) -> None:
    before = torch.get_rng_state()
    first, again, other = (
        forecast(kind(torch.Generator().manual_seed(seed)), airline(72), MONTHS) for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()
    assert (np.diff(first, axis=0) >= 0).all()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", random_models())
def test_seven_values_are_refused(kind: type[RidgeAR] | type[FeedForward], generator: torch.Generator) -> None:
    with pytest.raises(DataError, match="7 of 7 values are there; give a series with at least 8"):
        forecast(kind(generator), np.arange(7.0), Seasonality(1))


def test_the_network_learns_a_wave_that_the_last_value_misses(generator: torch.Generator) -> None:
    truth = np.sin(2 * np.pi * np.arange(317) / 12)
    q = forecast(FeedForward(generator), truth[:-12], MONTHS)
    assert np.abs(q[49] - truth[-12:]).mean() < 0.1 * np.abs(truth[304] - truth[-12:]).mean()


def test_a_horizon_too_far_for_the_network_is_refused(generator: torch.Generator) -> None:
    with pytest.raises(DataError, match="40 values are too few to learn 30 steps from; give at least 80"):
        forecast(FeedForward(generator), np.arange(40.0), Seasonality(1), 30)


class Normal:
    """Stands in for a model of statsforecast: N(0, season_length) at every step."""

    asked: list[int]

    def __init__(self, season_length: int) -> None:
        self.season_length = season_length
        Normal.asked.append(season_length)

    def forecast(self, y: Array, h: int, level: list[float] | None) -> dict[str, Array]:
        ends = {f"{side}-{width}": self._end(side, width, h) for width in level or [] for side in ("lo", "hi")}
        return {"mean": np.zeros(h), **ends}

    def _end(self, side: str, width: float, h: int) -> Array:
        return np.full(h, self.season_length * norm.ppf(0.5 + (width if side == "hi" else -width) / 200))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Season lengths with which models are built from now on."""
    Normal.asked = []
    monkeypatch.setattr(module, "extra", lambda name: SimpleNamespace(AutoETS=Normal, AutoTheta=Normal))
    return Normal.asked


@pytest.mark.parametrize("levels", [LEVELS, np.array([0.025, 0.5, 0.8]), np.array([0.5])])
def test_a_level_is_an_end_of_a_central_interval(levels: Array, asked: list[int]) -> None:
    q = forecast(StatsForecast("AutoETS"), np.arange(48.0), MONTHS, 2, levels)
    np.testing.assert_allclose(q, np.stack([12 * norm.ppf(levels)] * 2, axis=1), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "freq", "num", "season"),
    [("AutoETS", "W", 200, 1), ("AutoTheta", "W", 200, 52), ("AutoETS", "h", 200, 24), ("AutoETS", "MS", 12, 1)],
)
def test_long_seasons_are_only_for_those_made_for_them(
    name: str, freq: str, num: int, season: int, asked: list[int]
) -> None:
    forecast(StatsForecast(name), np.arange(float(num)), seasonality_of(freq))
    assert asked == [season]


def test_a_missing_package_is_answered_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsforecast", None)
    monkeypatch.setitem(sys.modules, "statsforecast.models", None)
    with pytest.raises(ConfigError, match=r"statsforecast is not installed; run `pip install 'stochflow\[forecast\]'`"):
        StatsForecast("AutoETS")


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'Prophet'; choose one of: SeasonalNaive, AutoTheta, AutoETS, AutoARIMA"):
        StatsForecast("Prophet")


def test_seasonal_naive_is_last_year_with_the_usual_change() -> None:
    pytest.importorskip("statsforecast")
    y = airline(96)
    change = y[12:] - y[:-12]
    q = forecast(StatsForecast("SeasonalNaive"), y, MONTHS, 18)
    years = np.sqrt(np.arange(18) // 12 + 1)
    np.testing.assert_allclose(q[49], y[84 + np.arange(18) % 12])
    expected = norm.ppf(0.9) * np.sqrt((change**2).mean()) * years
    np.testing.assert_allclose(q[89] - q[49], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["AutoETS", "AutoTheta", "AutoARIMA"])
def test_the_automatic_models_answer_in_rising_quantiles_near_the_truth(name: str) -> None:
    pytest.importorskip("statsforecast")
    q = forecast(StatsForecast(name), airline(60), MONTHS)
    assert q.shape == (99, 12)
    assert (np.diff(q, axis=0) >= 0).all()
    truth = airline(72)[60:]
    assert np.abs(q[49] - truth).mean() < np.abs(airline(60).mean() - truth).mean()
