"""Direct networks: what they learn, and when they are used."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.model import direct
from stochflow.forecasting.model.direct import (
    AVERAGING,
    KNOTS,
    NUM_NETWORKS,
    DirectNetworks,
    Scale,
    Windows,
    bases_of,
    direct_quantiles,
    early_stopping,
    pinball_losses,
    training,
    windows_of,
)
from stochflow.forecasting.model.seasonality import seasonality_of

MONTHS = seasonality_of("MS")
HORIZON = 6


def series_of(y: Array, columns: int = 0) -> Series:
    num = len(y)
    waves = MONTHS.fourier_terms(np.arange(num, dtype=float))
    exogenous = np.concatenate([waves, np.zeros((num, columns))], axis=1)
    return Series("one", y, np.ones(num, dtype=bool), exogenous, np.zeros((num, 0)), np.arange(num, dtype=float))


def waves(num: int = 120) -> Array:
    return 10 + 3 * np.sin(2 * np.pi * np.arange(num) / 12) + 0.1 * np.random.default_rng(0).standard_normal(num)


@pytest.mark.parametrize(
    ("y", "transform"), [([1.0, 2.0, 5.0], "log"), ([0.0, 2.0, 5.0], "root"), ([-1e300, 2e299, 1e300], "identity")]
)
def test_scales_lead_back(y: list[float], transform: str) -> None:
    values = np.array(y)
    scale = Scale.of(values)
    assert scale.transform == transform
    z = scale.forward(values)
    np.testing.assert_allclose([z.mean(), z.std()], [0, 1], atol=1e-12)
    np.testing.assert_allclose(scale.inverse(z), values, rtol=1e-12, atol=1e-12)


def test_an_exponential_does_not_explode() -> None:
    assert Scale.of(np.array([1.0, 2.0, 8.0])).inverse(np.array([1e3])) == pytest.approx(8 * np.exp(3))


def test_networks_start_from_the_last_value_and_from_the_last_season_in_turn() -> None:
    z, quarters = np.arange(20.0) ** 2, seasonality_of("QS")
    bases = bases_of(z, np.array([10, 20]), quarters, 8, 6, NUM_NETWORKS)
    for number in range(0, NUM_NETWORKS, 2):
        np.testing.assert_array_equal(bases[number], [[81.0] * 6, [361.0] * 6])
        expected = [z[[6, 7, 8, 9, 6, 7]], z[[16, 17, 18, 19, 16, 17]]]
        np.testing.assert_array_equal(bases[number + 1], expected)
    # a window that is shorter than the season shows none
    np.testing.assert_array_equal(bases_of(z, np.array([10]), quarters, 3, 6, NUM_NETWORKS)[1], [[81.0] * 6])


def test_windows_end_before_what_they_foretell() -> None:
    y = np.arange(40.0)
    rows = windows_of(series_of(y), y, MONTHS, 4, HORIZON, NUM_NETWORKS)
    assert len(rows.inputs) == 40 - 4 - HORIZON + 1
    np.testing.assert_array_equal(rows.inputs[2, :5], [-3.0, -2.0, -1.0, 0.0, 5.0])
    np.testing.assert_array_equal(rows.differences[0, 2], np.arange(1.0, HORIZON + 1))


def test_the_pinball_loss_has_a_known_value_and_skips_what_was_not_seen() -> None:
    network = DirectNetworks(NUM_NETWORKS, 2, 2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    differences = torch.tensor([2.0, -1e6]).expand(NUM_NETWORKS, 3, 2)
    observed = torch.tensor([1.0, 0.0]).expand(NUM_NETWORKS, 3, 2)
    losses = pinball_losses(network, Windows(torch.ones(NUM_NETWORKS, 3, 2), differences, observed))
    torch.testing.assert_close(losses, torch.full((NUM_NETWORKS,), 2 * float(np.mean(KNOTS))))


def test_weights_are_running_means_of_those_that_adam_leaves() -> None:
    rows = windows_of(series_of(waves()), waves(), MONTHS, 4, HORIZON, NUM_NETWORKS)
    networks = training(rows, torch.arange(len(rows.inputs)), torch.Generator().manual_seed(0), AVERAGING)
    before = [parameter.clone() for parameter in next(networks).parameters()]
    after = list(next(networks).parameters())
    moved = torch.cat([(new - old).abs().ravel() for new, old in zip(after, before, strict=True)])
    # Adam's first step is the learning rate wherever there is a gradient, and a twentieth of it is taken over
    assert (moved > 0).any()
    torch.testing.assert_close(moved.max(), torch.tensor(2e-3 / 20), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("best", "max_steps", "expected", "seen"), [(40, 400, 40, 141), (0, 400, 20, 101), (40, 7, 7, 8)]
)
def test_the_number_of_updates_is_the_one_with_the_least_loss(
    best: int, max_steps: int, expected: int, seen: int
) -> None:
    network = DirectNetworks(NUM_NETWORKS, 2, 2, torch.Generator().manual_seed(0)).requires_grad_(False)
    for parameter in network.parameters():
        parameter.zero_()
    yielded = []

    def errors() -> Iterator[DirectNetworks]:
        while True:
            network.biases[-1].fill_(abs(len(yielded) - best))
            yielded.append(len(yielded))
            yield network

    held = Windows(*(torch.ones(NUM_NETWORKS, 3, 2) * value for value in (1.0, 0.0, 1.0)))
    kept, steps = early_stopping(errors(), held, max_steps)
    assert steps == expected
    assert float(kept.biases[-1][0, 0, 0]) == min(abs(step - best) for step in yielded if step % 20 == 0)
    assert len(yielded) == seen


def test_held_out_windows_are_learned_from_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    learned_from = []

    def spied(windows: Windows, rows: torch.Tensor, *others: Any) -> Iterator[DirectNetworks]:
        learned_from.append(rows.tolist())
        return training(windows, rows, *others)

    monkeypatch.setattr(direct, "training", spied)
    direct_quantiles([series_of(waves())], MONTHS, HORIZON, ForecastConfig(max_steps=20))
    num = 120 - 24 - HORIZON + 1
    assert learned_from == [list(range(int(0.8 * num))), list(range(num))]


def test_a_clear_season_is_learned() -> None:
    y = waves()
    values = direct_quantiles([series_of(y)], MONTHS, HORIZON, ForecastConfig())["one"]
    assert values.shape == (400, HORIZON)
    assert (np.diff(values, axis=0) >= 0).all()
    ahead = 10 + 3 * np.sin(2 * np.pi * np.arange(120, 120 + HORIZON) / 12)
    # the last value alone would be wrong by 2 on average
    assert np.abs(np.median(values, axis=0) - ahead).mean() < 0.5


def test_the_seed_alone_decides() -> None:
    panel = [series_of(waves())]
    config = ForecastConfig(max_steps=20)
    first, again = (direct_quantiles(panel, MONTHS, HORIZON, config)["one"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = direct_quantiles(panel, MONTHS, HORIZON, config.model_copy(update={"seed": 1}))["one"]
    assert (first != other).any()


@pytest.mark.parametrize("changed", [{"network": "none"}, {"direct_share": 0.0}, {"context_min_values": 120}])
def test_settings_can_leave_them_out(changed: dict[str, object]) -> None:
    config = ForecastConfig.checked({"max_steps": 20, **changed})
    assert direct_quantiles([series_of(waves())], MONTHS, HORIZON, config) == {}


def test_features_gaps_constants_and_short_series_leave_them_out() -> None:
    plain, config = series_of(waves()), ForecastConfig(max_steps=20)
    irregular = replace(plain, positions=plain.positions + 0.5 * (plain.positions > 50))
    unseen = replace(plain, observed=np.arange(120) >= 85)
    bad = [series_of(waves(), columns=1), irregular, series_of(np.full(120, 5.0)), series_of(waves(18)), unseen]
    for series in bad:
        assert direct_quantiles([series], MONTHS, HORIZON, config) == {}
    others = [replace(series_of(waves(), columns=1), uid="featured"), plain]
    assert list(direct_quantiles(others, MONTHS, HORIZON, config)) == ["one"]


def test_a_forecaster_pools_them_and_a_saved_one_remembers(tmp_path) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2000-01", periods=90, freq="MS"), "y": waves(90)})
    quick = {"freq": "MS", "horizon": HORIZON, "max_steps": 20, "validation_origins": 4, "validation_paths": 8}
    bare, pool = (StochflowForecaster(**quick, direct_share=share).fit(frame) for share in (0.0, 0.5))
    without, drawn = (each.predict(num_samples=40)["stochflow"].to_numpy() for each in (bare, pool))
    assert (without == drawn).mean() == 0.5
    pool.save(tmp_path / "saved")
    loaded = StochflowForecaster.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(num_samples=40)["stochflow"], drawn)
    pd.testing.assert_frame_equal(loaded.predict(9, level=[80]), pool.predict(9, level=[80]))
