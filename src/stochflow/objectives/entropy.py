"""The entropy ratio r_γ and the dynamics loss: regularisers on the entropy of a policy by depth."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stochflow.config.schema import ObjectiveConfig
from stochflow.core.arrays import Array
from stochflow.core.logspace import entropy

_MAX_SHARE = 1.0 - 1e-6
_LEAST_MIXTURE = 1e-12


def normalised_entropy(log_policy: Tensor, choices: Tensor | None = None) -> Tensor:
    """h(s) = H(π(·|s))/log|A(s)| in [0, 1]; [..., A] → [...]. Zero for a single action.

    Args:
        choices: |A(s)|, the number of possible actions, [...]; None where it is A everywhere.
    """
    found, num_actions = entropy(log_policy), log_policy.shape[-1]
    if choices is not None:
        return torch.where(choices > 1, found / choices.clamp_min(2).to(found.dtype).log(), 0.0)
    return found / math.log(num_actions) if num_actions > 1 else torch.zeros_like(found)


def weighted_quantiles(values: Tensor, weights: Tensor, quantiles: tuple[float, ...]) -> Tensor:
    """Quantiles of each column, linear between neighbours; differentiable in `values`.

    With equal weights they are those of `torch.quantile`. Entries of weight zero do not count.

    Args:
        values: [rows, columns].
        weights: not negative, [rows, columns].

    Returns:
        [num_quantiles, columns]; zero for a column without weight.
    """
    counted = weights > 0
    order = values.detach().masked_fill(~counted, torch.inf).argsort(dim=0, stable=True)
    values, weights = values.gather(0, order), weights.gather(0, order)
    num_counted = counted.sum(dim=0, keepdim=True)
    final = (num_counted - 1).clamp_min(0)
    middles = weights.cumsum(dim=0) - weights / 2
    first, last = middles[:1], middles.gather(0, final)
    shares = torch.tensor(quantiles, dtype=middles.dtype, device=middles.device).unsqueeze(-1)
    targets = first + shares * (last - first)
    # the two neighbours of each target among the counted rows; what does not count stands last
    below = ((middles <= targets.unsqueeze(1)) & (weights > 0)).sum(dim=1) - 1
    lower = below.clamp_min(0)
    upper = torch.minimum(lower + 1, final)
    below_target = middles.gather(0, lower)
    gap = (middles.gather(0, upper) - below_target).clamp_min(1e-12)
    share = ((targets - below_target) / gap).clamp(0.0, 1.0)
    result = values.gather(0, lower) * (1.0 - share) + values.gather(0, upper) * share
    return torch.where(num_counted > 0, result, 0.0)


def entropy_ratio(entropy_high: Tensor, entropy_low: Tensor, gammas: Tensor) -> Tensor:
    """r_γ = H_high/(γ·H_high + (1 − γ)·H_low) in [1, 1/γ]; 0/0 counts as 1.

    Args:
        entropy_high: q-quantile of h per depth, [time].
        entropy_low: (1 − q)-quantile of h per depth, [time].
        gammas: γ values in (0, 1), [num_gammas].

    Returns:
        [time, num_gammas].
    """
    high, low = entropy_high.unsqueeze(-1), entropy_low.unsqueeze(-1)
    mixture = gammas * high + (1.0 - gammas) * low
    positive = mixture > _LEAST_MIXTURE
    return torch.where(positive, high / torch.where(positive, mixture, 1.0), 1.0)


def dynamics_loss(entropies: Tensor, visits: Tensor, ratios: Tensor, gammas: Tensor) -> Tensor:
    """L_dyn = −Σ_s μ(s)·h(s)·[log ρ + (1 − γ)·(1 − h(s))·log(1 − ρ)] with ρ = γ·r_γ; averaged over γ.

    Args:
        entropies: h(s), [rows, time].
        visits: μ(s), the share of each visited state; sums to one, [rows, time].
        ratios: r_γ per depth, [time, num_gammas].
        gammas: [num_gammas].
    """
    shares = (gammas * ratios).clamp_max(_MAX_SHARE)
    openness = entropies.unsqueeze(-1)
    bracket = shares.log() + (1.0 - gammas) * (1.0 - openness) * torch.log1p(-shares)
    return -(visits.unsqueeze(-1) * openness * bracket).sum(dim=(0, 1)).mean()


class EntropyTerms(NamedTuple):
    """What the entropy adds to a KL loss.

    Attributes:
        penalty: −λ_r·mean log r_γ + λ_d·L_dyn, a scalar.
        log_ratio: mean of log r_γ over depths and γ.
        dynamics: L_dyn.
    """

    penalty: Tensor
    log_ratio: Tensor
    dynamics: Tensor


def entropy_terms(
    log_policy: Tensor, weights: Tensor, config: ObjectiveConfig, progress: float, choices: Tensor | None = None
) -> EntropyTerms:
    """Both entropy terms of SGFN-KL for a batch of states.

    Args:
        log_policy: log π(·|s), [rows, time, K].
        weights: how often each state was visited, zero where there is none, [rows, time].
        progress: share of the budget that is spent; with the linear schedule both λ fall to zero with it.
        choices: number of possible actions, as in `normalised_entropy`.
    """
    if config.lambda_ratio == 0.0 and config.lambda_dynamics == 0.0:
        log_policy = log_policy.detach()  # logged all the same, but nothing to differentiate
    entropies = normalised_entropy(log_policy, choices)
    gammas = torch.tensor(config.gammas, dtype=entropies.dtype, device=entropies.device)
    high, low = weighted_quantiles(entropies, weights, (config.quantile, 1.0 - config.quantile))
    ratios = entropy_ratio(high, low, gammas)
    # a depth that no episode has reached has no ratio
    log_ratio = ratios[(weights > 0).any(dim=0)].log().mean()
    dynamics = dynamics_loss(entropies, weights / weights.sum(), ratios, gammas)
    penalty = _fade(config, progress) * (config.lambda_dynamics * dynamics - config.lambda_ratio * log_ratio)
    return EntropyTerms(penalty, log_ratio, dynamics)


def _fade(config: ObjectiveConfig, progress: float) -> float:
    """What is left of both λ."""
    return 1.0 - progress if config.lambda_schedule == "linear" else 1.0


class EntropyGradient(NamedTuple):
    """The entropy terms of a batch whose steps all count alike, and the gradient of the penalty.

    Attributes:
        penalty, log_ratio, dynamics: as in `EntropyTerms`.
        gradient: of the penalty in the normalised entropy h of every step, [batch, time]; None where both λ are zero.
    """

    penalty: float
    log_ratio: float
    dynamics: float
    gradient: Array | None


def entropy_gradient(entropies: Array, config: ObjectiveConfig, progress: float) -> EntropyGradient:
    """What `entropy_terms` says where every step counts alike, with the gradient in closed form.

    Args:
        entropies: h(s_t), [batch, time].
    """
    size, length = entropies.shape
    gammas = np.array(config.gammas, entropies.dtype)[:, None]
    rest = 1.0 - gammas
    ascending = np.sort(entropies, axis=0)
    shares = [_neighbours(size, quantile) for quantile in (config.quantile, 1.0 - config.quantile)]
    # [time]; what depends on γ is [num_gammas, time]
    high, low = ((1.0 - share) * ascending[below] + share * ascending[above] for (below, above), share in shares)
    mixture = gammas * high + rest * low
    positive = mixture > _LEAST_MIXTURE
    mixture = np.where(positive, mixture, 1.0)
    ratios = np.where(positive, high / mixture, 1.0)
    open_shares = np.minimum(gammas * ratios, _MAX_SHARE)
    log_ratios, log_open, log_closed = np.log(ratios), np.log(open_shares), np.log1p(-open_shares)
    # Σ h and Σ h·(1 − h) of every depth are all that the dynamics loss needs of the batch
    totals = np.add.reduce(entropies, axis=0)
    products = totals - np.add.reduce(entropies * entropies, axis=0)
    num_ratios = length * len(gammas)
    visit = 1.0 / (size * num_ratios)  # μ(s), and the mean over γ
    log_ratio = np.add.reduce(log_ratios, axis=(0, 1)) / num_ratios
    dynamics = -visit * np.add.reduce(totals * log_open + rest * products * log_closed, axis=(0, 1))
    fade = _fade(config, progress)
    on_ratio, on_dynamics = fade * config.lambda_ratio, fade * config.lambda_dynamics
    penalty = on_dynamics * dynamics - on_ratio * log_ratio
    if config.lambda_ratio == 0.0 and config.lambda_dynamics == 0.0:
        return EntropyGradient(penalty, log_ratio, dynamics, None)
    bracket = log_open[:, None] + (rest * log_closed)[:, None] * (1.0 - 2.0 * entropies)  # [num_gammas, batch, time]
    gradient = -on_dynamics * visit * np.add.reduce(bracket, axis=0)
    inside = gammas * ratios < _MAX_SHARE
    in_shares = -visit * (totals - rest * products * open_shares / (1.0 - open_shares)) * inside
    in_log_ratio = np.where(positive, on_dynamics * in_shares - on_ratio / num_ratios, 0.0)
    safe_high = np.where(positive, high, 1.0)
    in_high = np.add.reduce(in_log_ratio * (1.0 / safe_high - gammas / mixture), axis=0)
    in_low = np.add.reduce(in_log_ratio * (-rest / mixture), axis=0)
    order, every_depth = entropies.argsort(axis=0, kind="stable"), np.arange(length)
    for (pair, share), quantile_gradient in zip(shares, (in_high, in_low), strict=True):
        for place, part in zip(pair, (1.0 - share, share), strict=True):
            gradient[order[place], every_depth] += part * quantile_gradient
    return EntropyGradient(penalty, log_ratio, dynamics, gradient)


def _neighbours(size: int, quantile: float) -> tuple[tuple[int, int], float]:
    """Between which two of so many sorted numbers a quantile lies, and the share of the second."""
    place = quantile * (size - 1)
    below = min(int(place), size - 1)
    return (below, min(below + 1, size - 1)), place - below
