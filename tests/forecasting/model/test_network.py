"""The forecast of one step: where it starts, that it is a distribution, and what moves it."""

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.model.bins import Bins, place_bins
from stochflow.forecasting.model.fit import new_network
from stochflow.forecasting.model.network import (
    MAX_LOG_STRETCH,
    ForecastHeads,
    ForecastNetwork,
    log_forecast,
    log_observed,
    log_outcomes,
    outcome_mass,
)
from stochflow.forecasting.model.residuals import ResidualDistribution, fit_residuals

SMALL = ForecastConfig(width=8, num_intentions=9, num_bins=33, context_length=6, context_width=8, context_layers=1)
RESIDUALS = np.random.default_rng(0).normal(size=400)


@pytest.fixture
def noise() -> ResidualDistribution:
    return fit_residuals(RESIDUALS, np.ones(400))


@pytest.fixture
def bins() -> Bins:
    return place_bins(RESIDUALS, SMALL.num_bins)


def network(name: str = "mlp", categories: tuple[int, ...] = ()) -> ForecastNetwork:
    return new_network(name, 5, 3, categories, SMALL)


def disturbed(seed: int = 1) -> ForecastNetwork:
    """A network whose heads say something."""
    changed = network()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.5)
    return changed


def states(num: int, seed: int = 2) -> Tensor:
    return torch.randn(num, 5, generator=torch.Generator().manual_seed(seed))


def test_an_untrained_network_is_the_residual_distribution_around_barely_spread_intentions(
    noise: ResidualDistribution, bins: Bins
) -> None:
    fresh = network()
    heads = fresh(states(4))
    policy = heads.log_policy.exp().double()
    assert policy[:, 4].min() > 0.9
    assert float(fresh.intentions[4]) == 0.0
    torch.testing.assert_close(fresh.intentions, -fresh.intentions.flip(0))
    assert (heads.log_stretch == 0).all()
    mass = log_forecast(heads, log_outcomes(heads, fresh, noise, bins)).exp()
    below = [noise.cdf(bins.edges - aim) for aim in fresh.intentions]
    own = torch.stack([torch.cat([low[:1], low.diff(), 1 - low[-1:]]) for low in below])
    torch.testing.assert_close(mass, policy @ own, atol=1e-7, rtol=0)  # π is of single precision
    # and that is almost the residual distribution itself
    assert (mass[0] - own[4]).abs().sum() < 2 * (1 - policy[0, 4])


def test_the_forecast_sums_to_one_over_the_bins(noise: ResidualDistribution, bins: Bins) -> None:
    moved = disturbed()
    heads = moved(states(50))
    log_dynamics = log_outcomes(heads, moved, noise, bins)
    assert log_dynamics.shape == (50, 9, 33)
    torch.testing.assert_close(log_dynamics.exp().sum(dim=-1), torch.ones(50, 9, dtype=torch.float64))
    torch.testing.assert_close(
        log_forecast(heads, log_dynamics).exp().sum(dim=-1), torch.ones(50, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_the_outcome_that_happened_is_read_off_the_forecast(noise: ResidualDistribution, bins: Bins) -> None:
    moved = disturbed()
    heads = moved(states(33))
    outcomes = torch.arange(33)
    whole = log_forecast(heads, log_outcomes(heads, moved, noise, bins)).gather(-1, outcomes.unsqueeze(-1)).squeeze(-1)
    # where the mass is not zero: impossible outcomes count 1e-30 once, or once per intention
    found = log_observed(heads, moved, noise, bins, outcomes)
    possible = whole > -60
    assert possible.sum() > 20
    torch.testing.assert_close(found[possible], whole[possible], atol=1e-6, rtol=1e-6)
    assert (found[~possible] < -60).all()


def flat_heads(log_stretch: tuple[float, float], aim: int = 4) -> ForecastHeads:
    """One state that surely intends shift `aim`."""
    log_policy = torch.full((1, 9), -80.0)
    log_policy[0, aim] = 0.0
    return ForecastHeads(log_policy, torch.tensor([log_stretch]), torch.zeros(1), torch.zeros(1, 8))


def test_stretching_widens_each_side_on_its_own(noise: ResidualDistribution) -> None:
    aims = torch.zeros(1, dtype=torch.float64)

    def between(heads: ForecastHeads, low: float, high: float) -> float:
        bounds = (torch.tensor([[bound]], dtype=torch.float64) for bound in (low, high))
        return outcome_mass(heads, aims, noise, *bounds).item()

    plain, wide_above = flat_heads((0.0, 0.0)), flat_heads((0.0, float(np.log(2))))
    assert between(wide_above, -1.0, 0.0) == pytest.approx(between(plain, -1.0, 0.0))
    assert between(wide_above, 0.0, 2.0) == pytest.approx(between(plain, 0.0, 1.0))
    assert between(wide_above, 2.0, 1e6) > between(plain, 2.0, 1e6) + 0.05
    assert between(wide_above, -1e6, 1e6) == pytest.approx(1.0)


def test_the_policy_shifts_the_forecast(noise: ResidualDistribution, bins: Bins) -> None:
    fresh = network()
    means = []
    for aim in (4, 7):
        heads = flat_heads((0.0, 0.0), aim)
        mass = log_forecast(heads, log_outcomes(heads, fresh, noise, bins)).exp()
        means.append(float((mass * bins.centres).sum()))
    assert means[1] - means[0] == pytest.approx(float(fresh.intentions[7]), abs=0.15)


def test_heads_stay_in_bounds_for_wild_features() -> None:
    moved = disturbed()
    with torch.no_grad():
        moved.stretch.weight.mul_(1e4)
    heads = moved(1e6 * states(20))
    assert heads.log_stretch.abs().max() == MAX_LOG_STRETCH
    assert all(torch.isfinite(head).all() for head in heads)


def test_features_are_standardised_by_the_sample() -> None:
    scaled = network()
    sample = 100 + 7 * states(200)
    sample[:, 3] = 5.0  # a constant one divides by no zero
    scaled.standardise(sample)
    torch.testing.assert_close(scaled.feature_mean, sample.mean(dim=0))
    assert scaled.feature_std[3] == pytest.approx(1e-3)
    moved = disturbed()
    before = moved(states(3)).hidden
    moved.standardise(sample)
    assert not torch.allclose(moved(states(3)).hidden, before)


def test_the_prior_penalty_is_zero_at_the_linear_forecast_and_grows_with_what_the_heads_add() -> None:
    fresh, moved = network(), disturbed()
    assert fresh.prior_penalty(fresh(states(6))).item() == 0.0
    heads = moved(states(6))
    expected = moved.policy(heads.hidden).square().mean() + heads.log_stretch.square().sum(dim=-1).mean()
    assert moved.prior_penalty(heads).item() == pytest.approx(expected.item())
    assert expected > 0.1


def windows(num: int, seed: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    times = torch.arange(-5.0, 1.0).expand(num, 6)
    features = torch.randn(num, 6, 3, generator=generator)
    return {"features": features, "times": times, "present": torch.ones(num, 6, dtype=torch.bool)}


def test_the_context_speaks_once_it_was_trained() -> None:
    reader = network("transformer")
    codes = torch.zeros(4, 0, dtype=torch.int64)
    same = states(1).expand(4, 5)
    context_vector = reader.context_vector(windows(4), codes)
    assert context_vector is not None
    assert reader(same, context_vector).log_policy.std(dim=0).max() == 0.0  # heads start at zero
    optimiser = torch.optim.Adam(reader.parameters(), lr=0.01)
    goal = torch.tensor([0.5, -0.5, 0.5, -0.5])
    for _ in range(40):
        loss = (reader(same, reader.context_vector(windows(4), codes)).log_stretch[:, 0] - goal).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    said = reader(same, reader.context_vector(windows(4), codes)).log_stretch[:, 0]
    assert (said.sign() == goal.sign()).all()


def test_categories_are_told_apart_once_they_were_trained() -> None:
    knowing = network(categories=(3, 2))
    codes = torch.tensor([[0, 1], [2, 1], [2, 0]])
    start = knowing.context_vector(None, codes)
    assert start is not None
    assert start.shape == (3, 8)
    assert (start == 0).all()
    with torch.no_grad():
        knowing.embeddings[0].weight[2] = 1.0
        knowing.embeddings[1].weight[1] = -1.0
    context_vector = knowing.context_vector(None, codes)
    assert context_vector is not None
    assert context_vector.sum(dim=-1).tolist() == [-4.0, 0.0, 4.0]
    assert knowing(states(3), context_vector).hidden.shape == (3, 8)


def test_a_network_without_context_and_categories_has_no_context_vector() -> None:
    assert network().context_vector(None, torch.zeros(2, 0, dtype=torch.int64)) is None


def test_the_backward_policy_depends_on_the_outcome() -> None:
    moved = disturbed()
    hidden = moved(states(2)).hidden
    log_backward = moved.log_backward(hidden, torch.tensor([0, 20]))
    torch.testing.assert_close(log_backward.exp().sum(dim=-1), torch.ones(2))
    assert not torch.allclose(log_backward, moved.log_backward(hidden, torch.tensor([20, 0])))


def test_initial_weights_come_from_the_seed_alone() -> None:
    first = {name: tensor.clone() for name, tensor in network("transformer").state_dict().items()}
    torch.rand(7, generator=torch.Generator().manual_seed(3))
    for name, tensor in network("transformer").state_dict().items():
        assert torch.equal(tensor, first[name]), name
