"""The attainable optimum without feedback: whole strings are ordered, and the channel acts on each as a whole.

A policy of the prefix tree sees every outcome before its next intention. Whoever orders strings y from a distribution
q(y) does not: P(x|y) = Π_t P_t(x_t|y_t), and what is made has the distribution m = qP. The problem

    min_q KL(qP ‖ R/Z)

is convex. Its slope at order y is g(y) = Σ_x P(x|y)·log(m(x)·Z/R(x)), up to a constant that no distribution feels. A
convex function lies above its tangent, so the minimum is at least min_y g(y): every q comes with a certificate.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.core.logspace import TINY_PROBABILITY
from stochflow.environments.channels import Channel
from stochflow.truth.prefix_tree import kl_to_target

GAP = 1e-6
LEAST_SHARE = 1e-7  # of an order that counts in `num_orders`
# iterations, and iterations × strings: a minute at most
_MAX_ITERATIONS, _MAX_WORK = 4000, 2**29
_BLOCK = 32  # matrices of neighbouring positions are joined up to this size: fewer and larger products


@dataclass(frozen=True)
class Orders:
    """Orders whose outcomes come closest to R/Z, and how close they are known to be to the best.

    Attributes:
        log_orders: log q(y) of every string in lexicographic order, [K^L].
        log_probs: log m(x) of what comes of them, [K^L].
        kl: KL(m‖R/Z) of these orders, in nats.
        lower_bound: what no orders can fall below.
        num_iterations: steps that were taken.
    """

    log_orders: Tensor
    log_probs: Tensor
    kl: float
    lower_bound: float
    num_iterations: int

    @property
    def gap(self) -> float:
        """By how much `kl` may be above the smallest one, at most."""
        return max(self.kl - self.lower_bound, 0.0)

    @property
    def num_orders(self) -> int:
        """How many strings are ordered with a probability above 1e-7."""
        return int((self.log_orders > math.log(LEAST_SHARE)).sum())


def best_orders(
    log_reward: Tensor, channel: Channel, length: int, gap: float = GAP, max_iterations: int | None = None
) -> Orders:
    """The orders of the smallest KL(qP‖R/Z), to within `gap` nats or as close as so many iterations come.

    A step is q ← q·exp(−g) normalised: mirror descent with the longest step that can never go up, because
    KL(qP‖q'P) ≤ KL(q‖q'). Nesterov's momentum on log q takes it from a point further ahead, and begins anew when the
    slope there points back (O'Donoghue and Candès 2015): the gap then falls about as 1/steps² instead of 1/steps.

    Args:
        log_reward: log R(x) of every sequence in lexicographic order, [K^L].
        max_iterations: by default 4,000, fewer for spaces above 2^17.

    >>> from stochflow.environments.channels import uniform_slip
    >>> log_reward = torch.tensor([0.95, 0.02, 0.02, 0.01], dtype=torch.float64).log()  # of AA, AB, BA, BB
    >>> found = best_orders(log_reward, uniform_slip(2, alpha=0.2), length=2)
    >>> found.log_orders.exp().round(decimals=3).tolist()  # only AA: slips make more than enough of the others
    [1.0, 0.0, 0.0, 0.0]
    >>> found.log_probs.exp().round(decimals=3).tolist()
    [0.81, 0.09, 0.09, 0.01]
    >>> found.gap < 1e-6
    True
    """
    channel.check_length(length)
    factors = channel_factors(channel, length)
    transposed = [factor.T for factor in factors]
    log_target = log_reward.double() - torch.logsumexp(log_reward.double(), dim=0)
    if max_iterations is None:
        max_iterations = min(_MAX_ITERATIONS, _MAX_WORK // len(log_target))
    log_orders = previous = log_target  # ignoring the noise
    last_orders = log_target.exp()
    best_kl, best_log_orders, lower_bound = math.inf, log_target, 0.0
    num_iterations = momentum_age = 0
    while best_kl - lower_bound >= gap and num_iterations < max_iterations:
        num_iterations += 1
        ahead = log_orders + momentum_age / (momentum_age + 3) * (log_orders - previous)
        ahead = ahead - torch.logsumexp(ahead, dim=0)
        orders = ahead.exp()
        kl, slopes = _kl_and_slopes(orders, log_target, factors, transposed)
        lower_bound = max(lower_bound, float(slopes.min()))
        if kl < best_kl:
            best_kl, best_log_orders = kl, ahead
        if float(slopes @ (orders - last_orders)) > 0.0:
            momentum_age = 0
        last_orders, previous = orders, log_orders
        log_orders, momentum_age = ahead - slopes, momentum_age + 1
    log_probs = ordered_log_probs(best_log_orders, channel, length)
    return Orders(best_log_orders, log_probs, max(best_kl, 0.0), lower_bound, num_iterations)


def ordered_log_probs(log_orders: Tensor, channel: Channel, length: int) -> Tensor:
    """log m(x) = log Σ_y q(y)·P(x|y) of every sequence; impossible ones get log 1e-30. [K^L] → [K^L].

    Args:
        log_orders: log q(y) in lexicographic order, [K^L].
    """
    outcomes = contracted(log_orders.double().exp(), channel_factors(channel, length))
    return outcomes.clamp_min(TINY_PROBABILITY).log()


def orders_kl(log_orders: Tensor, log_reward: Tensor, channel: Channel, length: int) -> float:
    """KL(qP‖R/Z) of given orders in nats; all [K^L].

    >>> from stochflow.environments.channels import noiseless
    >>> log_reward = torch.tensor([3.0, 1.0, 1.0, 2.0], dtype=torch.float64).log()
    >>> abs(orders_kl(torch.log_softmax(log_reward, dim=0), log_reward, noiseless(2), length=2)) < 1e-12
    True
    """
    return kl_to_target(ordered_log_probs(log_orders, channel, length), log_reward)


def channel_factors(channel: Channel, length: int) -> list[Tensor]:
    """Matrices whose Kronecker product is P(x|y), [K^n, K^n] each for n neighbouring positions, from first to last."""
    factors: list[Tensor] = []
    for position in range(length):
        matrix = channel.matrix(position)
        if factors and len(factors[-1]) * len(matrix) <= _BLOCK:
            factors[-1] = torch.kron(factors[-1], matrix)
        else:
            factors.append(matrix)
    return factors


def contracted(values: Tensor, factors: Iterable[Tensor]) -> Tensor:
    """v·(F_1 ⊗ … ⊗ F_n) without the large matrix, by one small product per factor; [K^L] → [K^L].

    With the factors of a channel this is Σ_y v(y)·P(x|y) for every x; with their transposes Σ_x P(x|y)·v(x) for every
    y.
    """
    for factor in factors:
        # the axis of this factor comes first and goes last, so after all of them the axes stand as before
        values = (values.reshape(len(factor), -1).T @ factor).reshape(-1)
    return values


def _kl_and_slopes(
    orders: Tensor, log_target: Tensor, factors: list[Tensor], transposed: list[Tensor]
) -> tuple[float, Tensor]:
    """KL(qP‖R/Z) and its slopes g(y) = Σ_x P(x|y)·log(m(x)·Z/R(x)); [K^L] → number, [K^L]."""
    outcomes = contracted(orders, factors)
    # min g stays a bound: log Σ of the raised outcomes, by which it might be too large, is below 2^20·1e-30
    log_ratios = outcomes.clamp_min(TINY_PROBABILITY).log() - log_target
    return float(outcomes @ log_ratios), contracted(log_ratios, transposed)
