"""Paths against a hand-rolled recursion, and what decides which member and which network a path follows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.bins import TokenBins, place_bins
from stochflow.forecasting.model.fit import new_network
from stochflow.forecasting.model.linear_ensemble import AnchorGrid, Anchors, fit_anchors
from stochflow.forecasting.model.network import ForecastNetwork
from stochflow.forecasting.model.paths import Starts, evenly, join, mixed, sample_paths, starts
from stochflow.forecasting.model.residuals import NoiseKernel, fit_kernel
from stochflow.forecasting.model.seasonality import Rhythm, rhythm_of

MONTHS = rhythm_of("MS")
HORIZON = 15
# a world without noise
SILENT = NoiseKernel(torch.linspace(-1e-12, 1e-12, 5).double(), torch.linspace(0, 1, 5).double())
POINT = TokenBins(torch.linspace(-1e-12, 1e-12, 8).double(), tail=1e-12)


def monthly(num: int = 90, seed: int = 0) -> Series:
    """`num` months and the calendar of `HORIZON` more."""
    time = np.arange(num)
    noise = np.random.default_rng(seed).normal(size=num)
    y = np.exp(0.01 * time + 0.3 * np.sin(2 * np.pi * time / 12) + 0.1 * noise)
    outside = MONTHS.wave_values(np.arange(num + HORIZON, dtype=float))
    return Series("a", y, np.ones(num, dtype=bool), outside, np.zeros((num, 0)), time.astype(float))


def anchors_of(series: Series, grid: AnchorGrid | None = None) -> Anchors:
    return fit_anchors(
        series.y, series.observed, series.outside[: len(series)], MONTHS, grid or AnchorGrid(plain_share=0.0)
    )


def real_noise(anchors: Anchors) -> tuple[NoiseKernel, TokenBins]:
    residuals = anchors.residuals[0][np.isfinite(anchors.residuals[0])]
    return fit_kernel(residuals, np.ones(len(residuals))), place_bins(residuals, 65)


def drawn(
    start: Starts, world: tuple[NoiseKernel, TokenBins], network: ForecastNetwork | None = None, trust: float = 1.0
) -> Tensor:
    return sample_paths(start, MONTHS, network, *world, torch.Generator().manual_seed(5), trust=trust)


def by_hand(anchors: Anchors, member: int, outside: Array, origin: int) -> Array:
    """Values y that one member predicts step by step when nothing surprising happens, [HORIZON]."""
    z, errors = anchors.values[member, :origin].tolist(), anchors.errors[member, :origin].tolist()
    for step in range(HORIZON):
        smooth = 0.0
        for index, lag in enumerate(MONTHS.near):
            smooth += anchors.recall[member, index] * z[-lag] + anchors.forget[member, index] * errors[-lag]
        fitted = smooth + sum(
            weight * z[-lag] for weight, lag in zip(anchors.lag_weights[member], MONTHS.lags, strict=True)
        )
        fitted += anchors.feature_weights[member] @ outside[origin + step] + anchors.intercept[member]
        z.append(fitted)
        errors.append(fitted - smooth)
    raw = np.array(z[origin:]) * anchors.spread[member] + anchors.centre[member]
    return {"identity": raw, "root": raw**2, "log": np.exp(raw)}[str(anchors.transform[member])]


@pytest.mark.parametrize("transform", ["identity", "root", "log"])
def test_without_noise_a_path_is_the_recursion_of_its_anchor(transform: str) -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=(transform,), max_members=5))
    num = len(anchors.weight)
    anchors = replace(anchors, weight=np.full(num, 1 / num))  # one path for each
    start = starts(series, anchors, [90, 60], HORIZON, num)
    paths = drawn(start, (SILENT, POINT)).reshape(2, num, HORIZON)
    for place, origin in enumerate((90, 60)):
        for member in range(num):
            expected = by_hand(anchors, member, series.outside, origin)
            np.testing.assert_allclose(paths[place, member], expected, rtol=1e-6)


def test_members_get_paths_in_proportion_to_their_weight() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, max_members=3))
    anchors = replace(anchors, weight=np.array([0.5, 0.3, 0.2]), ceiling=np.array([1.0, 2.0, 3.0]))
    start = starts(series, anchors, [90, 70], HORIZON, 10)
    ceiling = start.scale[:, 0].reshape(2, 10)
    for row in ceiling:
        assert [int((row == height).sum()) for height in (1.0, 2.0, 3.0)] == [5, 3, 2]
    assert start.context.tolist() == [0] * 10 + [1] * 10
    assert len(start) == 20


def test_rows_hold_what_was_known_before_the_origin() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, max_members=1))
    start = starts(series, anchors, [60], HORIZON, 1)
    np.testing.assert_array_equal(start.values[0], anchors.values[0, 60 - MONTHS.window : 60])
    np.testing.assert_array_equal(start.errors[0], anchors.errors[0, 60 - MONTHS.window : 60])
    known = np.nan_to_num(anchors.residuals[0, 12:60])
    np.testing.assert_array_equal(start.residuals[0], known)
    np.testing.assert_array_equal(start.outside[0], series.outside[60:75])
    # before the first value: that value, and no surprise
    early = starts(series, anchors, [20], HORIZON, 1)
    np.testing.assert_array_equal(early.values[0, :6], np.repeat(anchors.values[0, 0], 6))
    assert (early.residuals[0, :28] == 0).all()


def test_the_same_seed_draws_the_same_paths() -> None:
    series = monthly()
    anchors = anchors_of(series)
    start, world = starts(series, anchors, [90], HORIZON, 20), real_noise(anchors)
    assert torch.equal(drawn(start, world), drawn(start, world))
    other = sample_paths(start, MONTHS, None, *world, torch.Generator().manual_seed(6))
    assert not torch.isclose(drawn(start, world), other).any(dim=1).all()


def leaning(num_features: int) -> ForecastNetwork:
    """A network that always intends the highest token."""
    network = new_network("mlp", num_features, 0, (), ForecastConfig(width=4, num_intentions=5))
    with torch.no_grad():
        network.policy.bias[-1] = 100.0
    return network


def num_features(start: Starts) -> int:
    return 13 + start.outside.shape[-1]


def test_without_trust_there_is_no_network() -> None:
    series = monthly()
    anchors = anchors_of(series)
    start, world = starts(series, anchors, [90], HORIZON, 30), real_noise(anchors)
    network = leaning(num_features(start))
    bare = drawn(start, world)
    assert torch.equal(drawn(start, world, network, trust=0.0), bare)
    assert (drawn(start, world, network)[:, 0] > bare[:, 0]).all()


def test_trust_is_the_share_of_paths_that_the_network_guides() -> None:
    series = monthly()
    anchors = anchors_of(series)
    start, world = starts(series, anchors, [90], HORIZON, 2000), real_noise(anchors)
    network = leaning(num_features(start))
    moved = drawn(start, world, network, trust=0.3)[:, 0] != drawn(start, world)[:, 0]
    assert float(moved.double().mean()) == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 2000))


def test_the_first_step_is_drawn_from_the_kernel() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    start, (kernel, bins) = starts(series, anchors, [90], 1, 4000), real_noise(anchors)
    paths = drawn(start, (kernel, bins))[:, 0].numpy()
    fitted = by_hand(anchors, 0, series.outside, 90)[0]
    surprises = (paths - fitted) / (anchors.noise_scale[0] * anchors.spread[0])
    for level in (0.1, 0.5, 0.9):
        expected = float(kernel.quantile(torch.tensor(level, dtype=torch.float64)))
        assert np.quantile(surprises, level) == pytest.approx(expected, abs=0.12)


def test_a_stretched_network_spreads_the_paths() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    start, world = starts(series, anchors, [90], 1, 2000), real_noise(anchors)
    network = leaning(num_features(start))
    with torch.no_grad():
        network.policy.bias.copy_(torch.tensor([0.0, 0.0, 100.0, 0.0, 0.0]))
        network.stretch.bias.fill_(float(np.log(3)))
    wide, plain = (
        np.quantile(paths[:, 0], [0.25, 0.75]) for paths in (drawn(start, world, network), drawn(start, world))
    )
    assert np.diff(wide) / np.diff(plain) == pytest.approx(3.0, abs=0.3)


def test_roots_never_fall_below_zero_and_logarithms_never_explode() -> None:
    series = monthly()
    for transform in ("root", "log"):
        anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=(transform,), max_members=4))
        loud = replace(anchors, noise_scale=100 * anchors.noise_scale)
        start, world = starts(series, loud, [90], HORIZON, 100), real_noise(anchors)
        paths = drawn(start, world)
        assert torch.isfinite(paths).all()
        assert paths.min() >= 0
        assert paths.min() < 1e-3 * series.y.min()
        if transform == "log":
            highest = np.exp((anchors.ceiling * anchors.spread + anchors.centre).max())
            assert float(paths.max()) == pytest.approx(highest)


def seen_by(network: ForecastNetwork, start: Starts, world: tuple[NoiseKernel, TokenBins]) -> Tensor:
    """Features that the network was shown at every step, [steps, rows, features]."""
    shown: list[Tensor] = []
    handle = network.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0]))
    drawn(start, world, network)
    handle.remove()
    return torch.stack(shown)


def test_the_network_sees_its_own_surprises_in_units_of_the_noise() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    start = starts(series, anchors, [90], HORIZON, 3)
    network = new_network("mlp", num_features(start), 0, (), ForecastConfig(width=4, num_intentions=5))
    with torch.no_grad():
        network.policy.bias.copy_(torch.tensor([0.0, 0.0, 100.0, 0.0, 0.0]))
    # a world that always surprises by the same
    always = NoiseKernel(1.5 + SILENT.knots, SILENT.levels), TokenBins(1.5 + POINT.edges, POINT.tail)
    shown = seen_by(network, start, always)
    before = np.arcsinh(anchors.residuals[0, -6:])
    for step in range(HORIZON):
        known = np.append(before, np.full(step, np.arcsinh(1.5)))[-6:]
        np.testing.assert_allclose(shown[step, :, :6], np.tile(known, (3, 1)), atol=1e-5)
    assert torch.equal(shown[0, 0, -11:], start.outside[0, 0].float())


def test_a_root_goes_on_below_zero_but_shows_no_negative_value() -> None:
    y = np.abs(np.random.default_rng(3).normal(size=90)) + 0.01
    series = replace(monthly(), y=y)
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=("root",), max_members=1))
    loud = replace(anchors, noise_scale=20 * anchors.noise_scale)
    start = starts(series, loud, [90], HORIZON, 50)
    network = new_network("mlp", num_features(start), 0, (), ForecastConfig(width=4, num_intentions=5))
    last = seen_by(network, start, real_noise(anchors))[1:, :, 11]  # ẑ, then the last z
    assert float(last.min()) < -float(anchors.centre[0] / anchors.spread[0])
    generator = torch.Generator().manual_seed(0)
    drawn = sample_paths(start, MONTHS, None, *real_noise(anchors), generator)
    assert float(drawn.min()) == 0.0


def test_an_exploding_member_stays_finite() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, transforms=("identity",), max_members=1))
    exploding = replace(anchors, lag_weights=10 * np.ones_like(anchors.lag_weights))
    paths = drawn(starts(series, exploding, [90], HORIZON, 4), real_noise(anchors))
    assert float(paths.max()) == pytest.approx(50 * anchors.spread[0] + anchors.centre[0])


def test_joined_starts_keep_their_rows_and_number_their_contexts_in_order() -> None:
    first, second = monthly(90, 0), monthly(80, 1)
    parts = [
        starts(first, anchors_of(first), [90, 70], HORIZON, 3),
        starts(second, anchors_of(second), [80], HORIZON, 2),
        starts(first, anchors_of(first), [60], HORIZON, 1),
    ]
    joined = join(parts)
    assert joined.context.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3]
    assert torch.equal(joined.values, torch.cat([part.values for part in parts]))
    assert torch.equal(joined.scale[6:8], parts[1].scale)


def test_the_context_of_a_path_is_that_of_its_origin() -> None:
    series = monthly()
    anchors = anchors_of(series)
    start, world = starts(series, anchors, [90, 90], HORIZON, 20), real_noise(anchors)
    network = new_network("mlp", num_features(start), 0, (2,), ForecastConfig(width=4, num_intentions=5))
    with torch.no_grad():  # the category says where to aim
        network.body[0].weight.zero_()
        network.body[0].weight[:, -4:] = 1.0
        network.body[2].weight.fill_(1.0)
        network.policy.weight[-1] = 50.0
    contexts = torch.tensor([[0.0] * 4, [5.0] * 4])
    paths = sample_paths(start, MONTHS, network, *world, torch.Generator().manual_seed(5), contexts)
    assert paths[20:, 0].mean() > paths[:20, 0].max()


def test_a_rhythm_without_season_needs_no_seasonal_columns() -> None:
    rhythm = Rhythm(1)
    y = np.random.default_rng(1).normal(size=40).cumsum()
    series = Series("a", y, np.ones(40, dtype=bool), np.zeros((45, 0)), np.zeros((40, 0)), np.arange(40.0))
    anchors = fit_anchors(y, series.observed, np.zeros((40, 0)), rhythm, AnchorGrid(plain_share=0.0))
    paths = sample_paths(
        starts(series, anchors, [40], 5, 10), rhythm, None, *real_noise(anchors), torch.Generator().manual_seed(0)
    )
    assert paths.shape == (10, 5)
    assert torch.isfinite(paths).all()


def test_noise_ahead_follows_the_places_of_the_season() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, max_members=1))
    anchors = replace(anchors, unrest=np.arange(1.0, 13.0)[None])
    start = starts(series, anchors, [60, 65], HORIZON, 1)
    places = (np.array([60, 65])[:, None] + np.arange(HORIZON)) % 12
    np.testing.assert_allclose(start.noise.numpy(), anchors.noise_scale[0] * (places + 1.0))


def test_an_offset_is_added_back() -> None:
    series = monthly()
    anchors = anchors_of(series, AnchorGrid(plain_share=0.0, max_members=1))
    paths = [
        drawn(starts(series, replace(anchors, offset=by), [90], HORIZON, 5), (SILENT, POINT)) for by in (0.0, -3.0)
    ]
    np.testing.assert_allclose(paths[1], paths[0] - 3.0)


def test_a_share_of_the_paths_gives_way_evenly() -> None:
    assert evenly(10, 0.5).tolist() == [1, 3, 5, 7, 9]
    assert evenly(8, 0.25).tolist() == [3, 7]
    assert evenly(5, 0.0).tolist() == []
    paths, others = np.zeros((2, 8, 3)), np.arange(2 * 4 * 3.0).reshape(2, 4, 3) + 1
    both = mixed(paths, others, 0.25)
    assert (both[:, [3, 7]] == others[:, :2]).all()
    assert (np.delete(both, [3, 7], axis=1) == 0).all()
    assert (paths == 0).all()
