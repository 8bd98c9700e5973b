"""Policy + graph → episodes; the one loop over time."""

from collections.abc import Mapping

import torch
from torch import Tensor

from stochflow.graphs.graph import Graph
from stochflow.rollout import Exploration, Walk, draw


@torch.no_grad()
def walk(
    graph: Graph,
    log_policy: Tensor,
    num: int,
    generators: Mapping[str, torch.Generator],
    exploration: Exploration | None = None,
) -> Walk:
    """Sample episodes; steps after the end of one are not valid.

    Args:
        log_policy: log π(a|s) of every state, [S, A].
        generators: "policy" draws intentions, "channel" draws outcomes.
    """
    behaviour = (exploration or Exploration()).behaviour(log_policy.double().cpu(), graph.valid_actions)
    cumulative = graph.dynamics.cumsum(dim=-1)
    nodes = torch.zeros(num, dtype=torch.int64)
    steps = []
    for _ in range(graph.max_steps):
        valid = nodes < graph.num_states
        states = torch.where(valid, nodes, 0)
        intentions = draw(behaviour[states], generators["policy"])
        rows = cumulative[states, intentions]
        uniform = torch.rand(num, 1, generator=generators["channel"], dtype=torch.float64)
        # scaled by the row's own total: rounding in the sum must not open an index past the last outcome
        outcomes = (uniform * rows[:, -1:] >= rows).sum(dim=-1)
        nodes = torch.where(valid, graph.children[states, outcomes], nodes)
        chosen = behaviour[states, intentions].log()
        steps.append((intentions, outcomes, valid, torch.where(valid, chosen, 0.0)))
    return Walk(*(torch.stack(column, dim=1) for column in zip(*steps, strict=True)))


def nodes_on(graph: Graph, outcomes: Tensor, valid: Tensor) -> Tensor:
    """Nodes on the way of episodes, the root first, after the end the object; [num, time] → [num, time + 1]."""
    nodes = [torch.zeros(len(outcomes), dtype=torch.int64)]
    for column, going in zip(outcomes.unbind(dim=1), valid.unbind(dim=1), strict=True):
        last = nodes[-1]
        nodes.append(torch.where(going, graph.children[torch.where(going, last, 0), column], last))
    return torch.stack(nodes, dim=1)


def objects_of(graph: Graph, outcomes: Tensor, valid: Tensor) -> Tensor:
    """Object that each episode made, counted from zero; [num, time] → [num]."""
    return nodes_on(graph, outcomes, valid)[:, -1] - graph.num_states
