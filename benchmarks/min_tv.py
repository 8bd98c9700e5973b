"""The smallest total variation that any policy can reach: a linear programme over visits."""

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor

from stochflow.environments.graphs.graph import Graph


def least_tv(graph: Graph, log_reward: Tensor) -> float:
    """min_π ½·Σ_x |P_π(x) − R(x)/Z|; log_reward: [X].

    Visits of possible intentions, v(s,a) ≥ 0 with Σ_a v(s,a) = [s is the root] + Σ v(s',a')·P(s|s',a'), are exactly
    those of policies, and P_π(x) is linear in them. Beside them stand the shortfalls d(x) ≥ R(x)/Z − P_π(x), d ≥ 0:
    both distributions sum to one, so the total variation is Σ d.
    """
    states, actions = graph.valid_actions.nonzero(as_tuple=True)
    num_visits, num_objects = len(states), graph.num_objects
    arriving = _arriving(graph, states, actions)
    leaving = sparse.coo_array(
        (np.ones(num_visits), (states.numpy(), np.arange(num_visits))), shape=(graph.num_states, num_visits)
    )
    balance = sparse.hstack([leaving - arriving[: graph.num_states], sparse.coo_array((graph.num_states, num_objects))])
    shortfall = sparse.hstack([-arriving[graph.num_states :], -sparse.eye_array(num_objects)])
    sources = np.zeros(graph.num_states)
    sources[0] = 1.0
    target = torch.softmax(log_reward.double(), dim=0).numpy()
    cost = np.concatenate([np.zeros(num_visits), np.ones(num_objects)])
    found = linprog(  # type: ignore[call-overload]  # the stubs know dense matrices alone
        cost, A_ub=shortfall, b_ub=-target, A_eq=balance, b_eq=sources, method="highs"
    )
    if not found.success:
        raise ValueError(f"the linear programme of {graph.name} was not solved: {found.message}")
    return float(found.fun)


def _arriving(graph: Graph, states: Tensor, actions: Tensor) -> sparse.csr_array:
    """P(node|s,a) with one column per possible intention, [S + X, num_visits]."""
    shares = graph.dynamics[states, actions]  # [num_visits, C]
    columns, outcomes = (shares > 0).nonzero(as_tuple=True)
    nodes = graph.children[states[columns], outcomes]
    entries = (shares[columns, outcomes].numpy(), (nodes.numpy(), columns.numpy()))
    return sparse.coo_array(entries, shape=(graph.num_nodes, len(states))).tocsr()
