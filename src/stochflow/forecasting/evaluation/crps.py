"""The continuous ranked probability score of an ensemble."""

from torch import Tensor


def fair_crps(members: Tensor, truth: Tensor) -> Tensor:
    """Unbiased estimate of E|X − y| − ½ E|X − X'|; members [..., P, steps] and truth [..., steps] → [..., steps]."""
    num = members.shape[-2]
    distance = (members - truth.unsqueeze(-2)).abs().mean(dim=-2)
    ordered = members.sort(dim=-2).values
    rank = 2 * ordered.new_ones(num).cumsum(dim=0) - num - 1
    # Σ_i Σ_j |x_i − x_j| = 2 Σ_i (2i − n − 1) x_(i)
    return distance - (rank.unsqueeze(-1) * ordered).sum(dim=-2) / (num * (num - 1))
