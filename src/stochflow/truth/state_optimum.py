"""The best outcome distribution that one state can reach through a channel.

For child values V_b the problem is  max_π Σ_b M_b·(V_b − log M_b),  M = πP.  Its optimum is the soft value of
the state. Without noise it is log Σ exp V_b; noise can only lower it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel

_ITERATIONS_PER_CHECK = 8


class StateOptimum(NamedTuple):
    """Solutions for a batch of states.

    Attributes:
        values: V(s), [states].
        log_marginals: log M(b|s) at the optimum, [states, K].
        policies: π(a|s) that reaches it, [states, K].
    """

    values: Tensor
    log_marginals: Tensor
    policies: Tensor


def state_optimum(child_values: Tensor, channel: Channel, position: int, tolerance: float = 1e-7) -> StateOptimum:
    """The solution of states at one position: in closed form for uniform slip, by iteration for other channels.

    Args:
        child_values: V_b, [states, K].
        tolerance: of an iteration.
    """
    if channel.slip is not None:
        return water_filling(child_values, channel.slip)
    return blahut_arimoto(child_values, channel.matrix(position), tolerance)


def water_filling(child_values: Tensor, alpha: float) -> StateOptimum:
    """Closed form for uniform slip: M_b = max(α/K, c·exp V_b) with c such that M sums to one.

    Args:
        child_values: V_b, [states, K].
        alpha: slip probability in [0, 1).
    """
    num_tokens = child_values.shape[-1]
    floor = alpha / num_tokens
    peak = child_values.amax(dim=-1, keepdim=True)
    weights = (child_values - peak).exp()
    descending = weights.sort(dim=-1, descending=True).values
    num_above = torch.arange(1, num_tokens + 1, dtype=weights.dtype, device=weights.device)
    scales = (1.0 - (num_tokens - num_above) * floor) / descending.cumsum(dim=-1)
    # the j largest children stand above the floor for the largest j that is consistent with itself
    consistent = scales * descending >= floor
    scale = scales.gather(-1, consistent.sum(dim=-1, keepdim=True).clamp_min(1) - 1)
    marginals = (scale * weights).clamp_min(floor)
    # above the floor log M is exact in log space even where exp V underflows
    above = marginals > floor if floor > 0 else torch.ones_like(marginals, dtype=torch.bool)
    log_marginals = torch.where(above, scale.log() + child_values - peak, safe_log(marginals))
    values = (marginals * (child_values - log_marginals)).sum(dim=-1)
    policies = ((marginals - floor) / (1.0 - alpha)).clamp_min(0.0)
    return StateOptimum(values, log_marginals, policies / policies.sum(dim=-1, keepdim=True))


def blahut_arimoto(
    child_values: Tensor,
    dynamics: Tensor,
    tolerance: float = 1e-7,
    max_iterations: int = 20_000,
    allowed: Tensor | None = None,
    start: Tensor | None = None,
) -> StateOptimum:
    """Solution for any channel by π_a ∝ π_a·exp(η·Σ_b P(b|a)·(V_b − log M_b)).

    The largest bracket over a bounds V(s) from above and its mean under π from below, so the loop stops when the
    two meet within `tolerance`. The step η is one over the channel's Dobrushin coefficient: noise contracts
    relative entropy at least by that factor, so the longer step still improves every iterate.

    Args:
        child_values: V_b, [states, K].
        dynamics: P(b|a), [K, K] or one per state, [states, K, K].
        allowed: True for the intentions that there are, [states, K]; all without it.
        start: π to begin with, [states, K]; uniform without it.
    """
    distances = torch.cdist(dynamics, dynamics, p=1.0) / 2
    steps = (1.0 / distances.amax(dim=(-2, -1)).clamp_min(1e-3)).expand(len(child_values))
    # one column per state from here on: torch goes through many columns of a few numbers several times as fast
    targets = child_values.T.contiguous()
    uniform = torch.full_like(targets, 1.0 / len(targets))
    log_policies = uniform.log() if start is None else safe_log(start).T.contiguous()
    if allowed is not None:
        allowed = allowed.T.contiguous()
        # minus infinity stays: what is not allowed has probability zero from the first step to the last
        log_policies = torch.log_softmax(log_policies.masked_fill(~allowed, -torch.inf), dim=0)
    pending = torch.arange(len(child_values), device=child_values.device)
    for done in range(0, max_iterations, _ITERATIONS_PER_CHECK):
        states = pending if done else slice(None)
        block = dynamics if dynamics.ndim == 2 else dynamics[states]
        local, local_targets, local_steps = log_policies[:, states], targets[:, states], steps[states]
        for _ in range(_ITERATIONS_PER_CHECK):
            gains = _gains(local.exp(), local_targets, block)
            local = torch.log_softmax(torch.addcmul(local, local_steps, gains), dim=0)
        log_policies[:, states] = local
        # a few states sit where a policy just reaches zero and converge slowly: only they go on
        policies = local.exp()
        gains = _gains(policies, local_targets, block)
        reachable = gains if allowed is None else gains.masked_fill(~allowed[:, states], -torch.inf)
        open_gap = reachable.amax(dim=0) - (policies * gains).sum(dim=0) >= tolerance
        pending = pending[open_gap]
        if not len(pending):
            break
    policies = log_policies.exp()
    log_marginals = safe_log(_apply(policies, dynamics))
    values = (policies * _pull_back(targets - log_marginals, dynamics)).sum(dim=0)
    return StateOptimum(values, log_marginals.T.contiguous(), policies.T.contiguous())


def _gains(policies: Tensor, child_values: Tensor, dynamics: Tensor) -> Tensor:
    """Σ_b P(b|a)·(V_b − log M_b), [K, states]."""
    return _pull_back(child_values - safe_log(_apply(policies, dynamics)), dynamics)


def _apply(policies: Tensor, dynamics: Tensor) -> Tensor:
    """M_b = Σ_a π_a·P(b|a), [K, states]."""
    if dynamics.ndim == 2:
        return dynamics.T @ policies
    return (policies.T.unsqueeze(-2) @ dynamics).squeeze(-2).T


def _pull_back(outcome_values: Tensor, dynamics: Tensor) -> Tensor:
    """Σ_b P(b|a)·v_b, [K, states]."""
    if dynamics.ndim == 2:
        return dynamics @ outcome_values
    return (dynamics @ outcome_values.T.unsqueeze(-1)).squeeze(-1).T
