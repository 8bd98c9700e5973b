"""Paths against a hand-rolled recursion, and what decides which member and which network a path follows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.bins import Bins, place_bins
from stochflow.forecasting.model.fit import new_network
from stochflow.forecasting.model.linear_ensemble import EnsembleGrid, LinearEnsemble, fit_ensemble
from stochflow.forecasting.model.linear_models import LinearModels
from stochflow.forecasting.model.network import ForecastNetwork
from stochflow.forecasting.model.paths import PathStarts, join, path_starts, sample_paths
from stochflow.forecasting.model.residuals import ResidualDistribution, fit_residuals
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of

MONTHS = seasonality_of("MS")
HORIZON = 15
SILENT = ResidualDistribution(torch.linspace(-1e-12, 1e-12, 5).double(), torch.linspace(0, 1, 5).double())
POINT = Bins(torch.linspace(-1e-12, 1e-12, 8).double(), tail=1e-12)


def models_of(noise: ResidualDistribution, bins: Bins, seasonality: Seasonality = MONTHS) -> LinearModels:
    return LinearModels(seasonality, [], [], [], noise, bins)


NOISELESS = models_of(SILENT, POINT)


def monthly(num: int = 90, seed: int = 0) -> Series:
    """`num` months and the calendar of `HORIZON` more."""
    time = np.arange(num)
    noise = np.random.default_rng(seed).normal(size=num)
    y = np.exp(0.01 * time + 0.3 * np.sin(2 * np.pi * time / 12) + 0.1 * noise)
    exogenous = MONTHS.fourier_terms(np.arange(num + HORIZON, dtype=float))
    return Series("a", y, np.ones(num, dtype=bool), exogenous, np.zeros((num, 0)), time.astype(float))


def ensemble_of(series: Series, grid: EnsembleGrid | None = None) -> LinearEnsemble:
    return fit_ensemble(
        series.y, series.observed, series.exogenous[: len(series)], MONTHS, grid or EnsembleGrid(plain_share=0.0)
    )


def real_noise(ensemble: LinearEnsemble) -> LinearModels:
    residuals = ensemble.residuals[0][np.isfinite(ensemble.residuals[0])]
    return models_of(fit_residuals(residuals, np.ones(len(residuals))), place_bins(residuals, 65), ensemble.seasonality)


def drawn(
    start: PathStarts, models: LinearModels, network: ForecastNetwork | None = None, weight: float = 1.0
) -> Tensor:
    return sample_paths(start, models, network, torch.Generator().manual_seed(5), network_weight=weight)


def by_hand(ensemble: LinearEnsemble, member: int, exogenous: Array, origin: int) -> Array:
    """Values y that one member predicts step by step without noise, [HORIZON]."""
    z, errors = ensemble.values[member, :origin].tolist(), ensemble.errors[member, :origin].tolist()
    for step in range(HORIZON):
        smooth = 0.0
        for index, lag in enumerate(MONTHS.smoothing_lags):
            smooth += ensemble.ar[member, index] * z[-lag] + ensemble.ma[member, index] * errors[-lag]
        fitted = smooth + sum(
            weight * z[-lag] for weight, lag in zip(ensemble.lag_weights[member], MONTHS.lags, strict=True)
        )
        fitted += ensemble.calendar_weights[member] @ exogenous[origin + step] + ensemble.intercept[member]
        z.append(fitted)
        errors.append(fitted - smooth)
    raw = np.array(z[origin:]) * ensemble.spread[member] + ensemble.centre[member]
    return {"identity": raw, "root": raw**2, "log": np.exp(raw)}[str(ensemble.transform[member])]


@pytest.mark.parametrize("transform", ["identity", "root", "log"])
def test_without_noise_a_path_is_the_recursion_of_its_member(transform: str) -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=(transform,), max_members=5))
    num = len(ensemble.weight)
    ensemble = replace(ensemble, weight=np.full(num, 1 / num))  # one path for each
    start = path_starts(series, ensemble, [90, 60], HORIZON, num)
    paths = drawn(start, NOISELESS).reshape(2, num, HORIZON)
    for place, origin in enumerate((90, 60)):
        for member in range(num):
            expected = by_hand(ensemble, member, series.exogenous, origin)
            np.testing.assert_allclose(paths[place, member], expected, rtol=1e-6)


def test_members_get_paths_in_proportion_to_their_weight() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, max_members=3))
    ensemble = replace(ensemble, weight=np.array([0.5, 0.3, 0.2]), ceiling=np.array([1.0, 2.0, 3.0]))
    start = path_starts(series, ensemble, [90, 70], HORIZON, 10)
    ceiling = start.scale[:, 0].reshape(2, 10)
    for row in ceiling:
        assert [int((row == height).sum()) for height in (1.0, 2.0, 3.0)] == [5, 3, 2]
    assert start.context.tolist() == [0] * 10 + [1] * 10


def test_rows_hold_what_was_known_before_the_origin() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, max_members=1))
    start = path_starts(series, ensemble, [60], HORIZON, 1)
    np.testing.assert_array_equal(start.values[0], ensemble.values[0, 60 - MONTHS.window : 60])
    np.testing.assert_array_equal(start.errors[0], ensemble.errors[0, 60 - MONTHS.window : 60])
    known = np.nan_to_num(ensemble.residuals[0, 12:60])
    np.testing.assert_array_equal(start.residuals[0], known)
    np.testing.assert_array_equal(start.exogenous[0], series.exogenous[60:75])
    # before the first value: that value, and no residual
    early = path_starts(series, ensemble, [20], HORIZON, 1)
    np.testing.assert_array_equal(early.values[0, :6], np.repeat(ensemble.values[0, 0], 6))
    assert (early.residuals[0, :28] == 0).all()


def test_the_same_seed_draws_the_same_paths() -> None:
    series = monthly()
    ensemble = ensemble_of(series)
    start, models = path_starts(series, ensemble, [90], HORIZON, 20), real_noise(ensemble)
    assert torch.equal(drawn(start, models), drawn(start, models))
    other = sample_paths(start, models, None, torch.Generator().manual_seed(6))
    assert not torch.isclose(drawn(start, models), other).any(dim=1).all()


def leaning(num_features: int) -> ForecastNetwork:
    """A network that always intends the largest shift."""
    network = new_network("mlp", num_features, 0, (), ForecastConfig(width=4, num_intentions=5))
    with torch.no_grad():
        network.policy.bias[-1] = 100.0
    return network


def num_features(start: PathStarts) -> int:
    return 13 + start.exogenous.shape[-1]


def test_with_weight_zero_the_network_has_no_effect() -> None:
    series = monthly()
    ensemble = ensemble_of(series)
    start, models = path_starts(series, ensemble, [90], HORIZON, 30), real_noise(ensemble)
    network = leaning(num_features(start))
    bare = drawn(start, models)
    assert torch.equal(drawn(start, models, network, weight=0.0), bare)
    assert (drawn(start, models, network)[:, 0] > bare[:, 0]).all()


def test_the_weight_is_the_share_of_paths_that_follow_the_network() -> None:
    series = monthly()
    ensemble = ensemble_of(series)
    start, models = path_starts(series, ensemble, [90], HORIZON, 2000), real_noise(ensemble)
    network = leaning(num_features(start))
    moved = drawn(start, models, network, weight=0.3)[:, 0] != drawn(start, models)[:, 0]
    assert float(moved.double().mean()) == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 2000))


def test_the_first_step_is_drawn_from_the_residual_distribution() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    start, models = path_starts(series, ensemble, [90], 1, 4000), real_noise(ensemble)
    paths = drawn(start, models)[:, 0].numpy()
    fitted = by_hand(ensemble, 0, series.exogenous, 90)[0]
    residuals = (paths - fitted) / (ensemble.noise_scale[0] * ensemble.spread[0])
    for level in (0.1, 0.5, 0.9):
        expected = float(models.noise.quantile(torch.tensor(level, dtype=torch.float64)))
        assert np.quantile(residuals, level) == pytest.approx(expected, abs=0.12)


def test_a_stretched_network_spreads_the_paths() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    start, models = path_starts(series, ensemble, [90], 1, 2000), real_noise(ensemble)
    network = leaning(num_features(start))
    with torch.no_grad():
        network.policy.bias.copy_(torch.tensor([0.0, 0.0, 100.0, 0.0, 0.0]))
        network.stretch.bias.fill_(float(np.log(3)))
    wide, plain = (
        np.quantile(paths[:, 0], [0.25, 0.75]) for paths in (drawn(start, models, network), drawn(start, models))
    )
    assert np.diff(wide) / np.diff(plain) == pytest.approx(3.0, abs=0.3)


def test_roots_never_fall_below_zero_and_logarithms_never_explode() -> None:
    series = monthly()
    for transform in ("root", "log"):
        ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=(transform,), max_members=4))
        loud = replace(ensemble, noise_scale=100 * ensemble.noise_scale)
        start, models = path_starts(series, loud, [90], HORIZON, 100), real_noise(ensemble)
        paths = drawn(start, models)
        assert torch.isfinite(paths).all()
        assert paths.min() >= 0
        assert paths.min() < 1e-3 * series.y.min()
        if transform == "log":
            highest = np.exp((ensemble.ceiling * ensemble.spread + ensemble.centre).max())
            assert float(paths.max()) == pytest.approx(highest)


def seen_by(network: ForecastNetwork, start: PathStarts, models: LinearModels) -> Tensor:
    """Features that the network was shown at every step, [steps, rows, features]."""
    shown: list[Tensor] = []
    handle = network.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0]))
    drawn(start, models, network)
    handle.remove()
    return torch.stack(shown)


def test_the_network_sees_its_own_standardised_residuals() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    start = path_starts(series, ensemble, [90], HORIZON, 3)
    network = new_network("mlp", num_features(start), 0, (), ForecastConfig(width=4, num_intentions=5))
    with torch.no_grad():
        network.policy.bias.copy_(torch.tensor([0.0, 0.0, 100.0, 0.0, 0.0]))
    # every residual is the same
    always = models_of(ResidualDistribution(1.5 + SILENT.knots, SILENT.levels), Bins(1.5 + POINT.edges, POINT.tail))
    shown = seen_by(network, start, always)
    before = np.arcsinh(ensemble.residuals[0, -6:])
    for step in range(HORIZON):
        known = np.append(before, np.full(step, np.arcsinh(1.5)))[-6:]
        np.testing.assert_allclose(shown[step, :, :6], np.tile(known, (3, 1)), atol=1e-5)
    assert torch.equal(shown[0, 0, -11:], start.exogenous[0, 0].float())


def test_a_root_goes_on_below_zero_but_shows_no_negative_value() -> None:
    y = np.abs(np.random.default_rng(3).normal(size=90)) + 0.01
    series = replace(monthly(), y=y)
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=("root",), max_members=1))
    loud = replace(ensemble, noise_scale=20 * ensemble.noise_scale)
    start = path_starts(series, loud, [90], HORIZON, 50)
    network = new_network("mlp", num_features(start), 0, (), ForecastConfig(width=4, num_intentions=5))
    last = seen_by(network, start, real_noise(ensemble))[1:, :, 11]  # ẑ, then the last z
    assert float(last.min()) < -float(ensemble.centre[0] / ensemble.spread[0])
    generator = torch.Generator().manual_seed(0)
    drawn = sample_paths(start, real_noise(ensemble), None, generator)
    assert float(drawn.min()) == 0.0


def test_an_exploding_member_stays_finite() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    exploding = replace(ensemble, lag_weights=10 * np.ones_like(ensemble.lag_weights))
    paths = drawn(path_starts(series, exploding, [90], HORIZON, 4), real_noise(ensemble))
    assert float(paths.max()) == pytest.approx(50 * ensemble.spread[0] + ensemble.centre[0])


def test_joined_starts_keep_their_rows_and_number_their_contexts_in_order() -> None:
    first, second = monthly(90, 0), monthly(80, 1)
    parts = [
        path_starts(first, ensemble_of(first), [90, 70], HORIZON, 3),
        path_starts(second, ensemble_of(second), [80], HORIZON, 2),
        path_starts(first, ensemble_of(first), [60], HORIZON, 1),
    ]
    joined = join(parts)
    assert joined.context.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3]
    assert torch.equal(joined.values, torch.cat([part.values for part in parts]))
    assert torch.equal(joined.scale[6:8], parts[1].scale)


def test_the_context_of_a_path_is_that_of_its_origin() -> None:
    series = monthly()
    ensemble = ensemble_of(series)
    start, models = path_starts(series, ensemble, [90, 90], HORIZON, 20), real_noise(ensemble)
    network = new_network("mlp", num_features(start), 0, (2,), ForecastConfig(width=4, num_intentions=5))
    with torch.no_grad():  # the category says where to aim
        network.body[0].weight.zero_()
        network.body[0].weight[:, -4:] = 1.0
        network.body[2].weight.fill_(1.0)
        network.policy.weight[-1] = 50.0
    contexts = torch.tensor([[0.0] * 4, [5.0] * 4])
    paths = sample_paths(start, models, network, torch.Generator().manual_seed(5), contexts)
    assert paths[20:, 0].mean() > paths[:20, 0].max()


def test_a_series_without_season_needs_no_seasonal_columns() -> None:
    seasonality = Seasonality(1)
    y = np.random.default_rng(1).normal(size=40).cumsum()
    series = Series("a", y, np.ones(40, dtype=bool), np.zeros((45, 0)), np.zeros((40, 0)), np.arange(40.0))
    ensemble = fit_ensemble(y, series.observed, np.zeros((40, 0)), seasonality, EnsembleGrid(plain_share=0.0))
    paths = drawn(path_starts(series, ensemble, [40], 5, 10), real_noise(ensemble))
    assert paths.shape == (10, 5)
    assert torch.isfinite(paths).all()


def test_noise_ahead_follows_the_position_in_the_season() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, max_members=1))
    ensemble = replace(ensemble, seasonal_scale=np.arange(1.0, 13.0)[None])
    start = path_starts(series, ensemble, [60, 65], HORIZON, 1)
    places = (np.array([60, 65])[:, None] + np.arange(HORIZON)) % 12
    np.testing.assert_allclose(start.noise_std.numpy(), ensemble.noise_scale[0] * (places + 1.0))


def test_an_offset_is_added_back() -> None:
    series = monthly()
    ensemble = ensemble_of(series, EnsembleGrid(plain_share=0.0, max_members=1))
    paths = [
        drawn(path_starts(series, replace(ensemble, offset=by), [90], HORIZON, 5), NOISELESS) for by in (0.0, -3.0)
    ]
    np.testing.assert_allclose(paths[1], paths[0] - 3.0)
