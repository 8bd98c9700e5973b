"""P̂(outcome|s,a) counted from what was seen, and the true one behind the same interface."""

import torch
from torch import Tensor, nn

from stochflow.environments.graphs.graph import Graph

# weights of the kind's distribution, in observations, that a state's own counts are weighed against
_STRENGTHS = tuple(4.0**power for power in range(-1, 11))


class CountedDynamics(nn.Module):
    """Counts of (s, a, outcome), drawn towards what states of the same kind have in common.

    P̂(c|s,a) = (n_sac + κ·P̂_kind(c|a))/(n_sa + κ), with P̂_kind the pooled counts plus one observation spread over the
    outcomes that the intention may have. κ is the one under which the counts are most likely (Dirichlet–multinomial):
    where states of a kind are alike it grows large, and they learn from one another. With `by_state` False they are
    taken to be alike.
    """

    counts: Tensor

    def __init__(self, graph: Graph, by_state: bool) -> None:
        super().__init__()
        self._graph, self._by_state = graph, by_state
        self._table: Tensor | None = None  # estimated once for the same counts
        self._estimated_at = 0
        self.register_buffer("counts", torch.zeros(graph.dynamics.shape, dtype=torch.float64))

    def observe(self, states: Tensor, intentions: Tensor, outcomes: Tensor) -> None:
        """Count steps, [num] each."""
        ones = torch.ones(len(states), dtype=torch.float64)
        self.counts.index_put_((states, intentions, outcomes), ones, accumulate=True)

    def table(self) -> Tensor:
        """P̂, float64, [S, A, C]; zero after intentions that are not possible."""
        if self._table is None or self._estimated_at != self.counts._version:
            self._table, self._estimated_at = self._estimated(), self.counts._version
        return self._table

    def _estimated(self) -> Tensor:
        pooled = self._pooled()
        if self._by_state:
            strength = self._strength(pooled)
            pooled = (self.counts + strength * pooled) / (self.counts.sum(dim=-1, keepdim=True) + strength)
        return pooled * self._graph.valid_actions.unsqueeze(-1)

    def _pooled(self) -> Tensor:
        """P̂_kind of every state, [S, A, C]."""
        kinds = self._graph.kinds
        totals = torch.zeros(int(kinds.max()) + 1, *self.counts.shape[1:], dtype=torch.float64)
        totals.index_add_(0, kinds, self.counts)
        support = self._graph.support.double()
        seen = (totals[kinds] + support / support.sum(dim=-1, keepdim=True).clamp_min(1)) * support
        return seen / seen.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)

    def _strength(self, pooled: Tensor) -> float:
        """κ of the largest likelihood of the counts."""
        seen = self.counts.sum(dim=-1) > 0
        counts, means = self.counts[seen], pooled[seen]

        def log_likelihood(strength: float) -> float:
            prior = (strength * means).clamp_min(1e-12)
            total = torch.tensor(strength, dtype=torch.float64)
            rows = torch.lgamma(total) - torch.lgamma(counts.sum(dim=-1) + total)
            return float(rows.sum() + (torch.lgamma(counts + prior) - torch.lgamma(prior)).sum())

        return max(_STRENGTHS, key=log_likelihood) if len(counts) else _STRENGTHS[-1]


class KnownGraphDynamics(nn.Module):
    """The true dynamics in the place of learned ones; nothing is counted."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def table(self) -> Tensor:
        return self._graph.dynamics


GraphDynamics = CountedDynamics | KnownGraphDynamics
