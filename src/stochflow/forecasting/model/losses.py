"""Training losses of the forecasting network.

Forward KL is the negative log-likelihood −log M of the data. The control objectives reward a path by
R = exp(−Σ_t |u_t − b_t|/τ): the reward is a product over steps, so the optimal flow after a state is known, and
detailed balance and divergence are stated step by step with the step's own reward.
"""

import torch
from torch import Tensor

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.model.bins import Bins
from stochflow.forecasting.model.network import (
    ForecastHeads,
    ForecastNetwork,
    forecast_mean,
    log_forecast,
    log_observed,
    log_outcomes,
)
from stochflow.forecasting.model.residuals import ResidualDistribution
from stochflow.objectives.detailed_balance import db_residual
from stochflow.objectives.entropy import entropy_ratio, normalised_entropy


def forecast_loss(
    heads: ForecastHeads,
    network: ForecastNetwork,
    noise: ResidualDistribution,
    bins: Bins,
    residuals: Tensor,
    config: ForecastConfig,
    generator: torch.Generator,
) -> Tensor:
    """Mean loss over states, given the residuals [rows] that followed them."""
    outcomes = bins.encode(residuals)
    extra = _entropy_term(heads, config)
    if config.point_loss == "mse":
        mean = forecast_mean(heads, network, noise)
        extra = extra + config.point_weight * (mean - residuals).square().mean()
    if config.objective == "forward-kl" and config.point_loss != "mae":  # needs M at one bin only
        return extra - log_observed(heads, network, noise, bins, outcomes).mean()
    log_dynamics = log_outcomes(heads, network, noise, bins)
    log_marginal = log_forecast(heads, log_dynamics)
    log_reward = -(bins.centres - residuals.unsqueeze(-1)).abs() / config.reward_scale
    match config.objective:
        case "forward-kl":
            loss = -log_marginal.gather(-1, outcomes.unsqueeze(-1)).mean()
        case "sgfn-kl":
            loss = divergence(log_marginal, log_reward).mean()
        case "sgfn-db":
            loss = balance(heads, network, log_dynamics, log_reward, generator).square().mean()
            # the dynamics are trained by likelihood only, not by the balance
            fixed = heads._replace(log_policy=heads.log_policy.detach())
            loss = loss - log_observed(fixed, network, noise, bins, outcomes).mean()
    if config.point_loss == "mae":
        loss = loss + config.point_weight * median_error(log_marginal, bins, residuals).mean()
    return loss + extra


def divergence(log_marginal: Tensor, log_reward: Tensor) -> Tensor:
    """KL(M(·|s) ‖ R/Σ R) of each state; [rows, B] → [rows]."""
    target = torch.log_softmax(log_reward, dim=-1)
    return (log_marginal.exp() * (log_marginal - target)).sum(dim=-1)


def balance(
    heads: ForecastHeads, network: ForecastNetwork, log_dynamics: Tensor, log_reward: Tensor, generator: torch.Generator
) -> Tensor:
    """Detailed-balance residual δ of one sampled transition per state, [rows]; its end has flow R(b)."""
    intended = torch.multinomial(heads.log_policy.detach().exp(), 1, generator=generator)
    chosen = log_dynamics.detach().gather(-2, intended.unsqueeze(-1).expand(-1, 1, log_dynamics.shape[-1])).squeeze(-2)
    outcome = torch.multinomial(chosen.exp(), 1, generator=generator)
    log_backward = network.log_backward(heads.hidden, outcome.squeeze(-1))
    return db_residual(
        heads.log_flow,
        heads.log_policy.gather(-1, intended).squeeze(-1),
        chosen.gather(-1, outcome).squeeze(-1),
        log_reward.gather(-1, outcome).squeeze(-1),
        log_backward.gather(-1, intended).squeeze(-1),
    )


def median_error(log_marginal: Tensor, bins: Bins, residuals: Tensor) -> Tensor:
    """Absolute error of the predictive median, [rows]."""
    mass = log_marginal.exp()
    # the median by linear interpolation of the distribution function, differentiable in the masses
    cumulative = mass.cumsum(dim=-1)
    place = (cumulative < 0.5).sum(dim=-1).clamp(1, bins.num_bins - 2)
    below = cumulative.gather(-1, (place - 1).unsqueeze(-1)).squeeze(-1)
    inside = mass.gather(-1, place.unsqueeze(-1)).squeeze(-1).clamp_min(1e-12)
    low, high = bins.edges[place - 1], bins.edges[place]
    median = low + ((0.5 - below) / inside).clamp(0.0, 1.0) * (high - low)
    return (median - residuals).abs()


def _entropy_term(heads: ForecastHeads, config: ForecastConfig) -> Tensor | float:
    """−weight · log r_γ with γ = ½: the ratio of high to low policy entropies over the batch."""
    if config.entropy_weight == 0.0:
        return 0.0
    openness = normalised_entropy(heads.log_policy)
    high, low = torch.quantile(openness, 0.9), torch.quantile(openness, 0.1)
    return -config.entropy_weight * entropy_ratio(high[None], low[None], openness.new_tensor([0.5])).log().mean()
