"""What whole orders are worth: in a space that can be listed by the best distribution of orders, elsewhere by draws."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.environments.channels import Channel
from stochflow.truth.orders import best_orders, channel_factors, contracted

_GAP = 1e-2  # nats: below what is still unknown of rewards, and a flatter q* is learned more easily
_NARROW = 30.0  # nats below the most frequent order, beyond which nothing is ordered


def order_values(log_rewards: Tensor, channel: Channel, length: int) -> Tensor:
    """log q*(y) + log Z − min KL of every order, float64; [K^L] → [K^L].

    Without noise the tree of orders has a plan that reaches its leaves with probabilities exp V/Σ exp V, which is q*;
    and V of its root is log Z less the smallest KL, as it is with feedback.

    Args:
        log_rewards: log R(x) of every sequence, known or believed, in lexicographic order.
        channel: what is believed to come of an order.

    >>> from stochflow.environments.channels import uniform_slip
    >>> log_rewards = torch.tensor([95.0, 2.0, 2.0, 1.0], dtype=torch.float64).log()  # of AA, AB, BA, BB
    >>> values = order_values(log_rewards, uniform_slip(2, alpha=0.2), length=2)
    >>> torch.softmax(values, dim=0).round(decimals=2).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    found = best_orders(log_rewards, channel, length, gap=_GAP)
    log_orders = found.log_orders.clamp_min(float(found.log_orders.max()) - _NARROW)
    return torch.log_softmax(log_orders, dim=0) + torch.logsumexp(log_rewards.double(), dim=0) - found.kl


def expected_of_orders(figures: Tensor, channel: Channel, length: int) -> Tensor:
    """Σ_x P(x|y)·f(x) of every order y, exactly, float64; [K^L] → [K^L]."""
    return contracted(figures.double(), [factor.T for factor in channel_factors(channel, length)])


def known_share(paid: Tensor, channel: Channel, length: int) -> Tensor:
    """How well the outcomes of every order are known, with the spread that `paid` has among sequences; [K^L] → [K^L].

    An order has many outcomes, and the share of them that was paid for differs little from order to order: as it is,
    it would hardly matter beside the values of orders.

    Args:
        paid: True for sequences that were paid for, in lexicographic order.
    """
    shares = expected_of_orders(paid, channel, length)
    spread = float(shares.std())
    return shares * (float(paid.double().std()) / spread) if spread > 0.0 else shares


class OrderDraws:
    """Outcomes of orders, always by the same random numbers, so that orders differ by their letters alone.

    Attributes:
        uniform: one number from [0, 1) per draw and position, float64, [num, L].
    """

    def __init__(self, uniform: Tensor) -> None:
        self.uniform = uniform

    def mean(self, figure: Callable[[Tensor], Tensor], orders: Tensor, channel: Channel) -> Tensor:
        """Mean of a figure, [n, L] → [n], over what comes of each order; [n, L] → [n].

        >>> from stochflow.environments.channels import uniform_slip
        >>> draws = OrderDraws(torch.rand(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
        >>> whole = draws.mean(lambda made: made.all(dim=1).double(), torch.ones(1, 3).long(), uniform_slip(2, 0.2))
        >>> abs(float(whole) - 0.9**3) < 0.05
        True
        """
        made = self.outcomes(orders, channel)
        return figure(made.flatten(0, 1)).view(len(made), -1).mean(dim=0)

    def outcomes(self, orders: Tensor, channel: Channel) -> Tensor:
        """What comes of each order in each draw; [n, L] → [num, n, L]."""
        made = [
            channel.realised(letters.numpy(), position, numbers[:, None].expand(-1, len(letters)).numpy())
            for position, (letters, numbers) in enumerate(zip(orders.T, self.uniform.T, strict=True))
        ]
        return torch.stack([torch.from_numpy(letters) for letters in made], dim=-1)
