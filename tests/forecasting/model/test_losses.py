"""Objectives of a forecasting network at constructed solutions."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.model.bins import Bins, place_bins
from stochflow.forecasting.model.fit import new_network
from stochflow.forecasting.model.losses import balance, divergence, forecast_loss, median_error
from stochflow.forecasting.model.network import (
    ForecastHeads,
    ForecastNetwork,
    forecast_mean,
    log_forecast,
    log_observed,
    log_outcomes,
)
from stochflow.forecasting.model.residuals import ResidualDistribution, fit_residuals

RESIDUALS = np.random.default_rng(0).normal(size=400)
OBSERVED = torch.linspace(-2.5, 2.5, 20, dtype=torch.float64)


def settings(**changed: Any) -> ForecastConfig:
    return ForecastConfig(width=8, num_intentions=9, num_bins=17, **changed)


@pytest.fixture
def noise() -> ResidualDistribution:
    return fit_residuals(RESIDUALS, np.ones(400))


@pytest.fixture
def bins() -> Bins:
    return place_bins(RESIDUALS, 17)


@pytest.fixture
def network() -> ForecastNetwork:
    return new_network("mlp", 3, 0, (), settings())


@pytest.fixture
def heads(network: ForecastNetwork) -> ForecastHeads:
    """Heads of 20 states that lean in different ways."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        network.policy.weight.normal_(generator=generator)
        network.stretch.weight.normal_(std=0.3, generator=generator)
    return network(torch.randn(20, 3, generator=generator))


def loss(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins, **changed: Any
) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return forecast_loss(heads, network, noise, bins, OBSERVED, settings(**changed), generator)


def test_forward_kl_is_minus_the_log_of_what_happened(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    found = loss(heads, network, noise, bins)
    mass = log_forecast(heads, log_outcomes(heads, network, noise, bins)).exp().detach()
    expected = -np.mean([np.log(float(mass[row, bins.encode(OBSERVED)[row]])) for row in range(20)])
    assert found.item() == pytest.approx(expected, rel=1e-6)
    # the way through all bins gives the same
    whole = loss(heads, network, noise, bins, point_loss="mse", point_weight=0.0)
    assert whole.item() == pytest.approx(expected, rel=1e-6)


def test_the_divergence_is_zero_when_the_forecast_is_the_reward(generator: torch.Generator) -> None:
    log_reward = 3 * torch.randn(6, 9, dtype=torch.float64, generator=generator)
    zero = divergence(torch.log_softmax(log_reward, dim=-1), log_reward)
    torch.testing.assert_close(zero, torch.zeros_like(zero), atol=1e-12, rtol=0)


def test_the_divergence_by_hand_and_by_finite_differences(generator: torch.Generator) -> None:
    uniform, log_reward = torch.full((1, 2), 0.5).double().log(), torch.tensor([[0.75, 0.25]]).double().log() + 7.0
    expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    assert divergence(uniform, log_reward).item() == pytest.approx(expected)
    logits = torch.randn(3, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    reward = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    assert gradcheck(lambda values: divergence(torch.log_softmax(values, dim=-1), reward), (logits,))


def balanced(network: ForecastNetwork, generator: torch.Generator) -> tuple[ForecastHeads, Tensor, Tensor]:
    """Heads, dynamics and rewards with F π P̂ = R π_B for every intention and outcome: π_B is the posterior."""
    log_policy = torch.log_softmax(torch.randn(1, 9, generator=generator), dim=-1).double()
    # the same dynamics for every intention: the posterior is the policy, which the state's head can say
    log_row = torch.log_softmax(torch.randn(1, 1, 17, dtype=torch.float64, generator=generator), dim=-1)
    log_reward = log_row[:, 0] + 1.5
    with torch.no_grad():
        network.backward_state.bias.copy_(log_policy[0])
    heads = ForecastHeads(log_policy, torch.zeros(1, 2), torch.tensor([1.5]).double(), torch.zeros(1, 8))
    return heads, log_row.expand(1, 9, 17), log_reward


def test_the_balance_residual_is_zero_on_a_balanced_flow(network: ForecastNetwork, generator: torch.Generator) -> None:
    heads, log_dynamics, log_reward = balanced(network, generator)
    for _ in range(20):
        residual = balance(heads, network, log_dynamics, log_reward, generator)
        torch.testing.assert_close(residual, torch.zeros_like(residual), atol=1e-5, rtol=0)
    unbalanced = balance(heads, network, log_dynamics, log_reward - 0.7, generator)
    assert unbalanced.item() == pytest.approx(0.7, abs=1e-5)
    # an outcome that the backward policy explains wrongly
    with torch.no_grad():
        network.backward_outcome.weight[:, 0] = 5.0
    wrong = torch.stack([balance(heads, network, log_dynamics, log_reward, generator) for _ in range(20)])
    assert wrong.abs().min() > 0.01


def test_the_dynamics_learn_nothing_from_the_balance(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins, generator: torch.Generator
) -> None:
    log_reward = -(bins.centres - OBSERVED.unsqueeze(-1)).abs()
    log_dynamics = log_outcomes(heads, network, noise, bins)
    balance(heads, network, log_dynamics, log_reward, generator).square().mean().backward(retain_graph=True)
    assert network.stretch.weight.grad is None
    assert network.policy.weight.grad is not None
    assert network.flow.weight.grad is not None
    whole = loss(heads, network, noise, bins, objective="sgfn-db")
    whole.backward()
    assert network.stretch.weight.grad is not None
    assert network.stretch.weight.grad.abs().max() > 0


def test_balance_adds_the_likelihood_of_the_dynamics(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    log_reward = -(bins.centres - OBSERVED.unsqueeze(-1)).abs() / 0.5
    log_dynamics = log_outcomes(heads, network, noise, bins)
    residual = balance(heads, network, log_dynamics, log_reward, torch.Generator().manual_seed(2))
    likelihood = log_observed(heads, network, noise, bins, bins.encode(OBSERVED)).mean()
    found = loss(heads, network, noise, bins, objective="sgfn-db", reward_scale=0.5)
    assert found.item() == pytest.approx((residual.square().mean() - likelihood).item(), rel=1e-6)


def test_the_policy_learns_nothing_from_the_likelihood_beside_the_balance(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    log_reward = -(bins.centres - OBSERVED.unsqueeze(-1)).abs()
    log_dynamics = log_outcomes(heads, network, noise, bins)
    residual = balance(heads, network, log_dynamics, log_reward, torch.Generator().manual_seed(2))
    (alone,) = torch.autograd.grad(residual.square().mean(), network.policy.weight, retain_graph=True)
    (whole,) = torch.autograd.grad(loss(heads, network, noise, bins, objective="sgfn-db"), network.policy.weight)
    torch.testing.assert_close(whole, alone)
    assert alone.abs().max() > 0


def test_the_divergence_objective_is_its_mean_from_the_reward_around_what_happened(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    log_marginal = log_forecast(heads, log_outcomes(heads, network, noise, bins))
    expected = divergence(log_marginal, -(bins.centres - OBSERVED.unsqueeze(-1)).abs() / 2.0).mean()
    found = loss(heads, network, noise, bins, objective="sgfn-kl", reward_scale=2.0)
    assert found.item() == pytest.approx(expected.item())


def certain(mass: dict[int, float]) -> Tensor:
    """log masses of one state, [1, 17]; bins that are not named are impossible."""
    log_mass = torch.full((1, 17), -69.0, dtype=torch.float64)
    for index, share in mass.items():
        log_mass[0, index] = np.log(share)
    return log_mass


def test_the_error_of_the_median_at_known_masses(bins: Bins) -> None:
    residual = torch.tensor([0.3], dtype=torch.float64)
    # half of the mass is reached a third into bin 10
    median = bins.edges[9] + (bins.edges[10] - bins.edges[9]) / 3
    found = median_error(certain({3: 0.25, 10: 0.75}), bins, residual)
    assert found.item() == pytest.approx((median - 0.3).abs().item())


def test_a_median_in_an_open_bin_is_its_edge(bins: Bins) -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    assert median_error(certain({16: 1.0}), bins, zero).item() == pytest.approx(float(bins.edges[-1]))
    assert median_error(certain({0: 1.0}), bins, zero).item() == pytest.approx(float(-bins.edges[0]))


def test_the_error_of_the_median_has_the_gradient_of_finite_differences(bins: Bins, generator: torch.Generator) -> None:
    logits = torch.randn(3, 17, dtype=torch.float64, generator=generator, requires_grad=True)
    assert gradcheck(
        lambda values: median_error(torch.log_softmax(values, dim=-1), bins, OBSERVED[:3]), (logits,), atol=1e-4
    )


@pytest.mark.parametrize("objective", ["forward-kl", "sgfn-kl"])
@pytest.mark.parametrize("kind", ["mse", "mae"])
def test_the_point_loss_counts_by_its_weight(
    objective: str, kind: str, heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    bare = loss(heads, network, noise, bins, objective=objective, point_loss="none")
    log_marginal = log_forecast(heads, log_outcomes(heads, network, noise, bins))
    squared = (forecast_mean(heads, network, noise) - OBSERVED).square()
    extra = (squared if kind == "mse" else median_error(log_marginal, bins, OBSERVED)).mean()
    found = loss(heads, network, noise, bins, objective=objective, point_loss=kind, point_weight=2.5)
    assert found.item() == pytest.approx((bare + 2.5 * extra).item(), rel=1e-6)


def test_the_mean_of_a_forecast_is_that_of_its_fine_bins(
    network: ForecastNetwork, noise: ResidualDistribution, generator: torch.Generator
) -> None:
    log_policy = torch.log_softmax(torch.randn(5, 9, dtype=torch.float64, generator=generator), dim=-1)
    log_stretch = 0.5 * torch.randn(5, 2, dtype=torch.float64, generator=generator)
    heads = ForecastHeads(log_policy, log_stretch, torch.zeros(5), torch.zeros(5, 8))
    # beyond every stretched residual, in bins of 0.01
    fine = Bins(torch.linspace(-30, 30, 6001, dtype=torch.float64), tail=1.0)
    mass = log_forecast(heads, log_outcomes(heads, network, noise, fine)).exp()
    torch.testing.assert_close(forecast_mean(heads, network, noise), mass @ fine.centres, atol=1e-4, rtol=0)


def test_the_mean_of_a_forecast_has_the_gradient_of_finite_differences(
    network: ForecastNetwork, noise: ResidualDistribution, generator: torch.Generator
) -> None:
    def mean(logits: Tensor, log_stretch: Tensor) -> Tensor:
        heads = ForecastHeads(torch.log_softmax(logits, dim=-1), log_stretch, torch.zeros(3), torch.zeros(3, 8))
        return forecast_mean(heads, network, noise)

    logits = torch.randn(3, 9, dtype=torch.float64, generator=generator, requires_grad=True)
    log_stretch = 0.3 * torch.randn(3, 2, dtype=torch.float64, generator=generator)
    assert gradcheck(mean, (logits, log_stretch.requires_grad_()))


def test_the_entropy_term_rewards_open_and_firm_states_side_by_side(
    network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    open_state, firm = torch.full((1, 9), -np.log(9.0)).float(), torch.full((1, 9), -80.0)
    firm[0, 4] = 0.0
    rest = torch.zeros(20, 2), torch.zeros(20), torch.zeros(20, 8)
    alike = ForecastHeads(open_state.expand(20, 9), *rest)
    mixed = ForecastHeads(torch.cat([open_state.expand(10, 9), firm.expand(10, 9)]), *rest)

    def term(heads: ForecastHeads) -> float:
        with_term, without = (loss(heads, network, noise, bins, entropy_weight=weight) for weight in (0.5, 0.0))
        return (with_term - without).item()

    assert term(alike) == pytest.approx(0.0, abs=1e-6)  # r = 1
    assert term(mixed) == pytest.approx(-0.5 * np.log(2), abs=1e-4)  # r = 1/γ = 2


@pytest.mark.parametrize("objective", ["forward-kl", "sgfn-db", "sgfn-kl"])
@pytest.mark.parametrize("point_loss", ["none", "mse", "mae"])
def test_losses_and_gradients_stay_finite_at_extreme_logits(
    objective: str, point_loss: str, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins
) -> None:
    with torch.no_grad():
        network.policy.bias.copy_(torch.tensor([1e4, -1e4] * 4 + [1e4]))
        network.stretch.bias.copy_(torch.tensor([-1e4, 1e4]))
    far = torch.tensor([-1e3, 0.0, 1e3], dtype=torch.float64)
    config = settings(objective=objective, point_loss=point_loss, entropy_weight=0.1)
    heads = network(torch.tensor([[1e8, -1e8, 0.0]] * 3))
    found = forecast_loss(heads, network, noise, bins, far, config, torch.Generator().manual_seed(0))
    found.backward()
    assert torch.isfinite(found)
    for name, parameter in network.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


def test_the_likelihood_has_the_gradient_of_finite_differences(noise: ResidualDistribution, bins: Bins) -> None:
    network = new_network("mlp", 3, 0, (), settings())
    outcomes = torch.tensor([2, 8, 13])

    def likelihood(logits: Tensor, log_stretch: Tensor) -> Tensor:
        heads = ForecastHeads(torch.log_softmax(logits, dim=-1), log_stretch, torch.zeros(3), torch.zeros(3, 8))
        return log_observed(heads, network, noise, bins, outcomes)

    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(3, 9, dtype=torch.float64, generator=generator, requires_grad=True)
    log_stretch = 0.3 * torch.randn(3, 2, dtype=torch.float64, generator=generator)
    # a difference that does not step over a knot of the piecewise linear curve
    assert gradcheck(likelihood, (logits, log_stretch.requires_grad_()), eps=1e-8, atol=1e-4, rtol=1e-3)
