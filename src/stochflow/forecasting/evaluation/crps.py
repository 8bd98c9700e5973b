"""The continuous ranked probability score of an ensemble."""

from torch import Tensor


def fair_crps(members: Tensor, truth: Tensor) -> Tensor:
    """E|X − y| − ½ E|X − X'| with the estimator that is unbiased for a finite ensemble.

    Args:
        members: draws, [..., P, steps].
        truth: what happened, [..., steps].

    Returns:
        [..., steps].
    """
    num = members.shape[-2]
    distance = (members - truth.unsqueeze(-2)).abs().mean(dim=-2)
    ordered = members.sort(dim=-2).values
    rank = 2 * _arange(ordered, num) - num - 1
    # Σ_i Σ_j |x_i − x_j| = 2 Σ_i (2i − n − 1) x_(i)
    return distance - (rank.unsqueeze(-1) * ordered).sum(dim=-2) / (num * (num - 1))


def _arange(like: Tensor, num: int) -> Tensor:
    return like.new_ones(num).cumsum(dim=0)
