"""Held-out origins, rows to learn from, and a network that learns what there is to learn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.fit import (
    TrainedNetwork,
    TrainingStates,
    Validation,
    features_at,
    hold_out,
    new_network,
    train_network,
    training_states,
)
from stochflow.forecasting.model.linear_models import fit_linear_models
from stochflow.forecasting.model.network import ForecastNetwork
from stochflow.forecasting.model.seasonality import Seasonality
from stochflow.forecasting.model.stages import Stage

PLAIN = Seasonality(1)


def settings(**changed: Any) -> ForecastConfig:
    small = {"width": 16, "num_intentions": 5, "num_bins": 33, "validation_paths": 32, "validation_origins": 24}
    tiny_context = {"context_length": 6, "context_width": 8, "context_layers": 1}
    return ForecastConfig(**{**small, **tiny_context, **changed})


def series_of(y: np.ndarray, exogenous: np.ndarray | None = None) -> Series:
    num = len(y)
    exogenous = np.zeros((num, 0)) if exogenous is None else exogenous
    return Series("a", y, np.ones(num, dtype=bool), exogenous, np.zeros((num, 0)), np.arange(num, dtype=float))


def white(num: int = 120, seed: int = 0) -> Series:
    return series_of(10 + np.random.default_rng(seed).normal(size=num))


def moody(num: int = 300) -> Series:
    """Noise that is ten times as loud where a known feature is one."""
    rng = np.random.default_rng(1)
    loud = (rng.random(num) < 0.5).astype(float)
    return series_of(rng.normal(size=num) * np.where(loud == 1, 1.0, 0.1), loud[:, None])


def test_origins_lie_after_the_end_of_training_and_end_inside_the_series() -> None:
    panel = [white(num) for num in (60, 100, 300, 5000)]
    ends, origins = hold_out(panel, 6, 10)
    for series, end, places in zip(panel, ends, origins, strict=True):
        assert 36 <= end <= places[0]
        assert places[-1] + 6 == len(series)
        assert places == sorted(set(places))
        assert len(places) <= 10
        assert len(series) - end <= 0.35 * len(series) + 1
    assert ends[-1] == 4000  # a fifth of a long series
    assert ends[2] == 300 - 16 * 6  # sixteen horizons of a shorter one


def test_series_that_are_too_short_are_learned_from_whole() -> None:
    ends, origins = hold_out([white(40), white(60), white(100)], 12, 8)
    assert ends[0] == 40
    assert [len(places) > 0 for places in origins] == [False, True, True]
    # a horizon that does not fit into what may be held out
    assert hold_out([white(100)], 50, 8) == ([100], [[]])


def test_only_origins_with_observed_targets_are_used() -> None:
    silent_end = white(120)
    silent_end.observed[78:] = False
    assert hold_out([silent_end], 4, 8) == ([120], [[]])
    partly = white(120)
    partly.observed[100:] = False
    (end,), (places,) = hold_out([partly], 4, 20)
    assert end == 78
    assert places
    assert max(places) < 100
    mostly_missing = white(120)
    mostly_missing.observed[5:75] = False
    assert hold_out([mostly_missing], 4, 8) == ([120], [[]])


def states_of(blocks: list[int]) -> TrainingStates:
    block = torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks))
    place = torch.arange(len(block))
    return TrainingStates(place.float().unsqueeze(-1), place.double(), torch.ones(len(block)), block, place, block)


def test_a_drawn_run_stays_inside_its_block_and_repeats_nothing(generator: torch.Generator) -> None:
    rows = states_of([5, 3, 7])
    index, run, first = rows.draw(400, 4, generator)
    assert len(first) == 100
    for number in range(100):
        mine = index[run == number].tolist()
        start = int(first[number])
        end = {0: 5, 1: 8, 2: 15}[int(rows.block[start])]
        assert mine == list(range(start, min(start + 4, end)))
    assert set(first.tolist()) == set(range(15))
    # a single block ends where the table does
    index, run, first = states_of([6]).draw(200, 4, generator)
    for number in range(50):
        start = int(first[number])
        assert index[run == number].tolist() == list(range(start, min(start + 4, 6)))


def test_rows_are_drawn_by_weight(generator: torch.Generator) -> None:
    rows = replace(states_of([4]), weights=torch.tensor([0.0, 1.0, 3.0, 0.0]))
    index, run, _ = rows.draw(4000, 1, generator)
    assert torch.equal(run, torch.arange(4000))
    assert float((index == 2).double().mean()) == pytest.approx(0.75, abs=4 * np.sqrt(0.1875 / 4000))
    assert set(index.tolist()) == {1, 2}


def test_rows_hold_the_residual_that_followed_and_count_series_equally() -> None:
    panel = [white(60), white(150, seed=2)]
    models = fit_linear_models(panel, PLAIN, settings(), [50, 150])
    rows = training_states(panel, models, [50, 150], num_members=2)
    assert rows.time[rows.series == 0].max() == 49
    for row in range(0, len(rows.time), 37):
        ensemble = models.ensembles[int(rows.series[row])]
        member = int(rows.block[row]) % 2
        assert rows.residuals[row] == ensemble.residuals[member, int(rows.time[row])]
    for number in (0, 1):
        assert float(rows.weights[rows.series == number].sum()) == pytest.approx(1.0, abs=1e-5)
    steps = rows.time.diff()[rows.block.diff() == 0]
    assert (steps > 0).all()


def test_features_do_not_look_ahead() -> None:
    series = moody(100)
    models = fit_linear_models([series], PLAIN, settings(), [80])
    changed = replace(series, y=np.append(series.y[:90], 100 + series.y[90:]))
    other = fit_linear_models([changed], PLAIN, settings(), [80])
    times = np.arange(20, 91)
    before = features_at(series, models.ensembles[0], 0, times)
    assert torch.equal(before, features_at(changed, other.ensembles[0], 0, times))
    later = np.array([91])
    assert not torch.equal(
        features_at(series, models.ensembles[0], 0, later), features_at(changed, other.ensembles[0], 0, later)
    )


def test_an_untrained_network_gains_nothing() -> None:
    panel = [white(150)]
    config = settings()
    ends, origins = hold_out(panel, 4, config.validation_origins)
    models = fit_linear_models(panel, PLAIN, config, ends)
    validation = Validation(panel, models, origins, 4, config)
    rows = training_states(panel, models, ends, 2)
    network = new_network("mlp", rows.features.shape[1], 0, (), config)
    gain, error, evidence = validation.gain(network, None)
    assert abs(gain) < 0.01
    assert 0 <= error < 0.01
    assert evidence == pytest.approx((max(origins[0]) - min(origins[0])) / 4 + 1)


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_noise_that_follows_a_known_feature_is_learned(name: str) -> None:
    config = settings(network=name, max_steps=100, check_every=50, learning_rate=0.01, batch_size=128)
    series = moody(600)
    trained = train_network([series], PLAIN, 4, config)
    assert trained.network is not None
    assert trained.name == name
    # the linear ensemble's one scale fits neither state; knowing both would save an eighth of its CRPS
    assert trained.gain > 0.05
    assert trained.network_weight > 0.8
    features = features_at(series, fit_linear_models([series], PLAIN, config).ensembles[0], 0, np.arange(400, 600))
    context_vector = torch.zeros(200, config.context_width) if name == "transformer" else None
    log_stretch = trained.network(features, context_vector).log_stretch.detach().mean(dim=-1)
    loud = torch.as_tensor(series.exogenous[400:, 0] == 1)
    assert log_stretch[loud].mean() - log_stretch[~loud].mean() > 0.4
    assert trained.gain == max(gain for _, gain in trained.history)
    assert (trained.steps, trained.gain) in trained.history


def test_training_ends_after_its_patience_and_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = iter([0.1, 0.05, 0.4, 0.2, 0.4, 0.3, 0.9])
    validated: list[torch.Tensor] = []

    def gain(_: Validation, network: ForecastNetwork, windows: None) -> tuple[float, float, float]:
        validated.append(network.policy.weight.detach().clone())
        return next(gains), 0.1, 20.0

    monkeypatch.setattr(Validation, "gain", gain)
    seen: list[Stage] = []
    config = settings(network="mlp", max_steps=200, check_every=2, patience=3)
    trained = train_network([moody(150)], PLAIN, 4, config, report=seen.append)
    assert trained.network is not None
    assert (trained.steps, trained.gain, trained.error) == (6, 0.4, 0.1)
    assert torch.equal(trained.network.policy.weight, validated[2])
    assert not torch.equal(validated[2], validated[-1])
    # three looks without progress, the second 0.4 among them
    reports = [(stage.done, stage.gain) for stage in seen if stage.name == "mlp network"]
    assert [step for step, _ in reports] == [2, 4, 6, 8, 10, 12]
    assert trained.history == reports


def test_what_is_kept_is_the_running_mean_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Validation, "gain", lambda *_: (0.5, 0.1, 20.0))
    moved = []
    for averaging in (0.0, 0.9):
        config = settings(network="mlp", max_steps=1, check_every=1, averaging=averaging)
        network = train_network([moody(150)], PLAIN, 4, config).network
        assert network is not None
        moved.append(network.stretch.weight.detach())  # heads start at zero
    assert moved[0].abs().max() > 1e-4
    torch.testing.assert_close(moved[1], 0.1 * moved[0])


def test_training_is_reproduced_bit_for_bit_by_its_seed() -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        config = settings(network="mlp", max_steps=20, check_every=10, min_gain=0.0, learning_rate=0.01, seed=seed)
        network = train_network([moody(200)], PLAIN, 4, config).network
        assert network is not None
        return network.state_dict()

    first, second, other = weights(3), weights(3), weights(4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["stretch.weight"], other["stretch.weight"])


@pytest.mark.parametrize("changed", [{"network": "none"}, {"max_steps": 0}])
def test_without_a_network_nothing_is_trained(changed: dict[str, Any]) -> None:
    assert train_network([moody(150)], PLAIN, 4, settings(**changed)) == TrainedNetwork(None, "none")


def test_a_gain_below_the_least_one_counts_as_none() -> None:
    config = settings(network="mlp", max_steps=10, check_every=10, min_gain=0.9)
    trained = train_network([moody(150)], PLAIN, 4, config)
    assert trained.network is None
    assert trained.network_weight == 0.0


def test_the_network_weight_is_the_probability_that_the_gain_is_real_discounted_by_the_evidence() -> None:
    network = new_network("mlp", 3, 0, (), settings())
    sure = TrainedNetwork(network, "mlp", gain=0.02, error=0.01, evidence=1e9)
    assert sure.network_weight == pytest.approx(0.97725, abs=1e-4)
    assert TrainedNetwork(network, "mlp", gain=0.02, error=0.0, evidence=5.0).network_weight == pytest.approx(0.5)
    assert TrainedNetwork(network, "mlp", gain=0.02, error=0.0, evidence=0.0).network_weight == 0.0


@pytest.mark.parametrize("objective", ["sgfn-db", "sgfn-kl"])
def test_every_objective_trains(objective: str) -> None:
    config = settings(network="mlp", objective=objective, max_steps=10, check_every=5, point_loss="mae")
    trained = train_network([moody(150)], PLAIN, 4, config)
    assert all(np.isfinite(gain) for _, gain in trained.history)
