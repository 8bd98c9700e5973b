"""Orders of whole designs: the probability of what came of them, and what will probably come of each."""

import math

import pandas as pd
import torch
from torch import Tensor

from stochflow.core.codes import encode
from stochflow.core.logspace import pick
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.objectives.planning.order_values import OrderDraws, expected_of_orders
from stochflow.sampling.policies import OpenLoopPolicy, Policy
from stochflow.sampling.rollout import Walk
from stochflow.truth.orders import ordered_log_probs

NUM_ORDERS = 32  # that may have led to a design, of which one has
NUM_OUTCOMES = 16  # by which an order is judged where they cannot be listed
_BLOCK = 1024  # orders whose probability is computed at once


def outcome_log_probs(
    policy: Policy, walk: Walk, environment: SequenceEnvironment, generator: torch.Generator
) -> Tensor:
    """log m(x) = log Σ_y q(y)·P(x|y) of what came of the orders of a walk, float64, [num].

    Exact for a list of orders and where all orders can be listed; elsewhere `bounded_log_probs`.
    """
    if isinstance(policy, OpenLoopPolicy):
        return policy.log_probs(walk, environment)
    if not environment.enumerable:
        return bounded_log_probs(policy, walk, environment, generator)
    log_orders = policy.terminal_log_probs(environment.without_noise)
    everything = ordered_log_probs(log_orders, environment.channel, environment.max_steps)
    return everything[encode(walk.outcomes, environment.num_actions)]


def bounded_log_probs(
    policy: Policy,
    walk: Walk,
    environment: SequenceEnvironment,
    generator: torch.Generator,
    num_orders: int = NUM_ORDERS,
) -> Tensor:
    """An estimate of log m(x) that is too large on average, so that J is never too large; float64, [num].

    With w(y) = q(y)·P(x|y)/r(y|x) it is log of the mean of w over y_1, the order that x came of, and y_2 … y_n, drawn
    from r(y|x) = Π_t P(x_t|y_t)/Σ_a P(x_t|a). Given x, y_1 has the density q(y)·P(x|y)/m(x) = w(y)·r(y|x)/m(x). The
    mean of w does not depend on which of the n orders is the first, so its expectation is that under the density
    s = (mean of w/m)·Π r of orders whose first is one of them by lot:

        E[log mean of w] = log m(x) + KL(s‖Π r) ≥ log m(x),

    and the more orders, the smaller the divergence (Sobolev and Vetrov 2019, arXiv:1909.00413).
    """
    channel, length = environment.channel, environment.max_steps
    backward, log_totals = _reversed(channel, length)
    uniform = torch.rand(length, num_orders - 1, len(walk), generator=generator, dtype=torch.float64).numpy()
    made = walk.outcomes.numpy()
    letters = [backward.realised(made[None, :, t].repeat(num_orders - 1, 0), t, uniform[t]) for t in range(length)]
    drawn = torch.stack([torch.from_numpy(column) for column in letters], dim=-1)
    orders = torch.cat([walk.intentions.unsqueeze(0), drawn]).flatten(0, 1)
    log_orders = torch.cat([_log_orders(policy, block, environment) for block in orders.split(_BLOCK)])
    log_mean = torch.logsumexp(log_orders.view(num_orders, -1), dim=0) - math.log(num_orders)
    return log_mean + pick(log_totals.expand(len(walk), -1, -1), walk.outcomes).sum(dim=-1)


def prospects(
    orders: Tensor, environment: SequenceEnvironment, draws: OrderDraws | None, threshold: float
) -> pd.DataFrame:
    """What will probably come of each order: the chance that it comes as it is, its score, the share above a threshold.

    Scores are expected ones, exactly where all designs can be listed and otherwise over draws, and NaN where one of
    these would have to be paid for.
    """
    expected, above = _scores_of_outcomes(orders, environment, draws, threshold)
    figures = {
        "exact_probability": environment.channel.exact_probability(orders),
        "expected_score": expected,
        "share_above": above,
    }
    return pd.DataFrame({name: figure.numpy() for name, figure in figures.items()})


def _scores_of_outcomes(
    orders: Tensor, environment: SequenceEnvironment, draws: OrderDraws | None, threshold: float
) -> tuple[Tensor, Tensor]:
    """Expected score, and share of outcomes that score above a threshold; [n, L] → [n] twice."""
    channel, length = environment.channel, environment.max_steps
    if environment.enumerable:
        scores, rows = environment.task.all_scores, encode(orders, environment.num_actions)
        figures = (scores, (scores > threshold).double())
        expected, above = (expected_of_orders(figure, channel, length)[rows] for figure in figures)
        return expected, above
    assert draws is not None, "outcomes were drawn with the orders"
    made = draws.outcomes(orders, channel)
    known = environment.known(made.flatten(0, 1)).view(made.shape[:2])
    scores = torch.full(made.shape[:2], torch.nan, dtype=torch.float64)
    if bool(known.any()):
        scores[known] = environment.score(made[known]).double()
    shares = torch.where(known, (scores > threshold).double(), torch.nan)
    return scores.mean(dim=0), shares.mean(dim=0)


def _reversed(channel: Channel, length: int) -> tuple[Channel, Tensor]:
    """r(a|b) = P(b|a)/Σ_a P(b|a) as a channel, and log Σ_a P(b|a), [L, K], for every position."""
    columns = channel.matrices.expand(length, -1, -1).transpose(-1, -2)
    totals = columns.sum(dim=-1, keepdim=True)
    # a letter that never comes is never asked for
    shares = torch.where(totals > 0.0, columns / totals, 1.0 / columns.shape[-1])
    return Channel(shares, "reversed"), totals.squeeze(-1).log()


def _log_orders(policy: Policy, orders: Tensor, environment: SequenceEnvironment) -> Tensor:
    """log q(y); [n, L] → [n]."""
    walk = Walk(orders, orders, torch.ones_like(orders, dtype=torch.bool), torch.zeros(orders.shape))
    return policy.log_probs(walk, environment.without_noise)
