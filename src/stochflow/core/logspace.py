"""Numerically stable formulas in log space."""

import math

import torch
from torch import Tensor

# stands for zero probability: its logarithm, -69, is finite and exact enough in float32 sums
TINY_PROBABILITY = 1e-30
# largest number of entries over pairs of intention and outcome that is materialised: tens of megabytes
_MAX_PAIRS = 2**23


def safe_log(probabilities: Tensor) -> Tensor:
    """log p with p clamped from below at 1e-30, so that impossible outcomes stay finite. Same shape.

    >>> safe_log(torch.tensor([1.0, 0.0]))
    tensor([  0.0000, -69.0776])
    """
    return probabilities.clamp_min(TINY_PROBABILITY).log()


def masked_log_softmax(logits: Tensor, valid_actions: Tensor | None = None) -> Tensor:
    """log softmax over the last dimension, [..., actions]; actions where the mask is False get log 1e-30.

    >>> masked_log_softmax(torch.zeros(3), torch.tensor([True, True, False]))
    tensor([ -0.6931,  -0.6931, -69.0776])
    """
    if valid_actions is None:
        return torch.log_softmax(logits, dim=-1)
    log_probs = torch.log_softmax(logits.masked_fill(~valid_actions, -torch.inf), dim=-1)
    return log_probs.masked_fill(~valid_actions, math.log(TINY_PROBABILITY))


def pick(values: Tensor, indices: Tensor) -> Tensor:
    """One entry of each row; [..., n], [...] → [...].

    >>> pick(torch.tensor([[0.1, 0.2], [0.3, 0.4]]), torch.tensor([1, 0]))
    tensor([0.2000, 0.3000])
    """
    return values.gather(-1, indices.unsqueeze(-1)).squeeze(-1)


def log_marginal(log_policy: Tensor, log_dynamics: Tensor) -> Tensor:
    """Marginal outcome distribution log M(b|s) = log Σ_a π(a|s)·P(b|s,a).

    >>> policy, dynamics = torch.tensor([1.0, 0.0]), torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    >>> log_marginal(policy.log(), dynamics.log()).exp()
    tensor([0.9000, 0.1000])

    Args:
        log_policy: log π(a|s), [..., actions].
        log_dynamics: log P(b|s,a), [..., actions, outcomes] or broadcastable to it.

    Returns:
        [..., outcomes].
    """
    shared = log_dynamics.ndim <= 3 or len(log_dynamics) == 1
    if shared and log_policy.ndim <= 3 and log_policy.numel() * log_dynamics.shape[-1] > _MAX_PAIRS:
        return _log_product(log_policy, log_dynamics.flatten(0, -3) if log_dynamics.ndim > 2 else log_dynamics)
    return torch.logsumexp(log_policy.unsqueeze(-1) + log_dynamics, dim=-2)


def _log_product(log_policy: Tensor, log_dynamics: Tensor) -> Tensor:
    """`log_marginal` as a matrix product, without a table of pairs; [..., time, A], [time, A, B] → [..., time, B].

    Both factors are scaled by their largest entries, so that only probabilities below 1e-30 are lost.
    """
    peaks = log_dynamics.amax(dim=-2, keepdim=True)
    scaled = (log_dynamics - peaks).exp()  # [time, A, B] or [A, B]
    peak = log_policy.detach().amax(dim=-1, keepdim=True)
    policy = (log_policy - peak).exp()
    if scaled.ndim == 2:
        products = policy @ scaled
    else:  # one product per time step: [time, rows, A] @ [time, A, B]
        by_time = policy.reshape(-1, *policy.shape[-2:]).transpose(0, 1)
        products = (by_time @ scaled).transpose(0, 1).reshape(*policy.shape[:-1], -1)
    return safe_log(products) + peaks.squeeze(-2) + peak


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy H = −Σ p·log p over the last dimension, in nats; [..., n] → [...].

    >>> entropy(torch.full((4,), 0.25).log())
    tensor(1.3863)
    """
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def masked_mean(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of the entries where `mask` is True (all of them without a mask); zero when there are none."""
    if mask is None:
        return values.mean()
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp_min(1)


def log_mean_exp(values: Tensor, dim: int = -1) -> Tensor:
    """log of the mean of exp(values) along `dim`."""
    return torch.logsumexp(values, dim=dim) - math.log(values.shape[dim])
