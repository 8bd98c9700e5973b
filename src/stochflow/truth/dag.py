"""What is true of a graph: the terminal distribution of a policy, and the best that any policy can do.

KL(P_π(x)‖R/Z) is the smallest KL(P_π(τ)‖R/Z·Π p_B) over backward policies p_B(s|s'), and the best p_B is the posterior
μ(s)·M(s'|s)/μ(s'). With it log p_B − log M = log μ(s) − log μ(s') telescopes along an episode, so one Blahut–Arimoto
step in every state at once is π(a|s) ∝ π(a|s)·exp E[log R(x) − log P_π(x) | s,a], which lowers the divergence. Momentum
makes it many times faster, and is dropped whenever it would not lower it.

How far a policy is from the optimum is known at every moment: no policy has a KL below the tangent of the
divergence at P_π, min_π' E_π'[log P_π(x) − log R(x)/Z], and that is a shortest path.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stochflow.core.logspace import TINY_PROBABILITY, safe_log
from stochflow.environments.graphs.graph import Graph

TOLERANCE = 1e-8
MAX_SWEEPS = 4000
_SWEEPS_PER_CHECK = 8
_ROUNDING = 1e-15


def outcome_marginals(dynamics: Tensor, policies: Tensor) -> Tensor:
    """M(outcome|s) = Σ_a π(a|s)·P(outcome|s,a); [S, A, C], [S, A] → [S, C]."""
    return torch.einsum("sa,sac->sc", policies, dynamics)


def node_visits(graph: Graph, marginals: Tensor) -> Tensor:
    """μ: probability that an episode passes through each node, [S, C] → [S + X]; the objects' part is P_π(x)."""
    visits = torch.zeros(graph.num_nodes, dtype=marginals.dtype)
    visits[0] = 1.0
    by_step = marginals.flatten()
    for level in graph.levels:
        visits.index_add_(0, level.targets, visits[level.sources] * by_step[level.steps])
    return visits


def object_log_probs(graph: Graph, log_policy: Tensor) -> Tensor:
    """log P_π(x) of every object under the true dynamics, float64; [S, A] → [X]."""
    policies = log_policy.double().exp() * graph.valid_actions
    return safe_log(node_visits(graph, outcome_marginals(graph.dynamics, policies))[graph.num_states :])


def expected_values(
    graph: Graph, dynamics: Tensor, object_values: Tensor, policies: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """E[v(x)] from every node and after every intention, under a policy or, without one, the best policy for v.

    Args:
        dynamics: P(outcome|s,a), [S, A, C].
        object_values: v of every object, [X].
        policies: π(a|s), [S, A].

    Returns:
        [S + X] and [S, A]; −inf after an intention that is not possible.
    """
    values = torch.zeros(graph.num_nodes, dtype=torch.float64)
    values[graph.num_states :] = object_values
    after = torch.zeros(graph.valid_actions.shape, dtype=torch.float64)
    invalid = ~graph.valid_actions
    for level in reversed(graph.levels):
        states = level.states
        ahead = (values[level.children] * level.possible).unsqueeze(-1)
        gains = (dynamics[states] @ ahead).squeeze(-1)  # [states, A]
        after[states] = gains
        if policies is None:
            values[states] = gains.masked_fill(invalid[states], -torch.inf).amax(dim=-1)
        else:
            values[states] = (policies[states] * gains).sum(dim=-1)
    return values, after.masked_fill(invalid, -torch.inf)


@dataclass(frozen=True)
class GraphOptimum:
    """The smallest KL(P_π‖R/Z) that any policy can reach on a graph.

    Attributes:
        kl: KL of the policy that was found.
        min_kl: what no policy gets below; at most `tolerance` less than `kl`.
        log_z: log Σ_x R(x).
        log_policy: log π(a|s) that reaches it, log 1e-30 where an intention is not possible, [S, A].
        marginals: M(outcome|s) of that policy, [S, C].
        visits: μ of that policy, [S + X].
        advances: E[log R(x) − log P(x)] from every node on, [S + X].
    """

    kl: float
    min_kl: float
    log_z: float
    log_policy: Tensor
    marginals: Tensor
    visits: Tensor
    advances: Tensor

    @cached_property
    def log_probs(self) -> Tensor:
        """log P(x), [X]."""
        return safe_log(self.visits[self.marginals.shape[0] :])


def graph_optimum(
    graph: Graph,
    log_reward: Tensor,
    dynamics: Tensor | None = None,
    start: Tensor | None = None,
    tolerance: float = TOLERANCE,
    max_sweeps: int = MAX_SWEEPS,
) -> GraphOptimum:
    """Solve a graph to within `tolerance` nats, or as far as `max_sweeps` go.

    Args:
        log_reward: log R(x) of every object, [X].
        dynamics: P(outcome|s,a) to believe instead of the true one, [S, A, C].
        start: log π(a|s) to start from instead of uniform intentions, [S, A].
    """
    log_z = float(torch.logsumexp(log_reward.double(), dim=0))
    search = _Search(graph, graph.dynamics if dynamics is None else dynamics, log_reward.double() - log_z)
    now = search.at(torch.zeros(graph.valid_actions.shape, dtype=torch.float64) if start is None else start.double())
    before, momentum, min_kl = now, 0, -torch.inf
    for sweep in range(max_sweeps):
        if sweep % _SWEEPS_PER_CHECK == 0:
            min_kl = max(min_kl, search.lower_bound(now))
            if now.kl - min_kl < tolerance:
                break
        share = momentum / (momentum + 3)
        ahead = now if not momentum else search.at(now.log_policy + share * (now.log_policy - before.log_policy))
        found = search.improved(ahead)
        if found.kl < now.kl + _ROUNDING:
            before, now, momentum = now, found, momentum + 1
        elif momentum:
            momentum = 0
        else:  # nothing but rounding is left
            break
    # rounding may put the bound a hair above the policy that it bounds
    min_kl = min(max(min_kl, search.lower_bound(now), 0.0), max(now.kl, 0.0))
    advances = expected_values(graph, search.dynamics, search.surplus(now) + log_z, now.policies)[0]
    return GraphOptimum(now.kl, min_kl, log_z, now.log_policy, now.marginals, now.visits, advances)


@dataclass(frozen=True)
class _Point:
    """A policy with everything that follows from it."""

    log_policy: Tensor
    policies: Tensor
    marginals: Tensor
    visits: Tensor
    kl: float


@dataclass(frozen=True)
class _Search:
    graph: Graph
    dynamics: Tensor
    log_target: Tensor

    def at(self, logits: Tensor) -> _Point:
        """The policy ∝ exp(logits) over the possible intentions."""
        valid = self.graph.valid_actions
        log_policy = torch.log_softmax(logits.masked_fill(~valid, -torch.inf), dim=-1)
        # a policy that reached zero could never come back
        log_policy = log_policy.clamp_min(math.log(TINY_PROBABILITY))
        policies = log_policy.exp() * valid
        marginals = outcome_marginals(self.dynamics, policies)
        visits = node_visits(self.graph, marginals)
        probs = visits[self.graph.num_states :]
        kl = float((probs * (safe_log(probs) - self.log_target)).sum())
        return _Point(log_policy, policies, marginals, visits, kl)

    def surplus(self, point: _Point) -> Tensor:
        """log of target over P_π, [X]."""
        return self.log_target - safe_log(point.visits[self.graph.num_states :])

    def improved(self, point: _Point) -> _Point:
        """One step π(a|s) ∝ π(a|s)·exp E[log R − log P_π | s,a] in every state."""
        _, after = expected_values(self.graph, self.dynamics, self.surplus(point), point.policies)
        return self.at(point.log_policy + torch.where(self.graph.valid_actions, after, 0.0))

    def lower_bound(self, point: _Point) -> float:
        """No policy has a smaller KL than this: the tangent of the divergence at P_π, minimised over policies."""
        return -float(expected_values(self.graph, self.dynamics, self.surplus(point))[0][0])
