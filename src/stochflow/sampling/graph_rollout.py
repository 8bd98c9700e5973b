"""Policy + graph → episodes; the one loop over time."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from stochflow.environments.graphs.graph import Graph
from stochflow.sampling.rollout import Exploration, Walk, draw

# rows of a policy by state, float64, on the CPU; [num] → [num, A]
PolicyRows = Callable[[Tensor], Tensor]
# episodes below which nobody looks for states that they share: looking costs more than it saves
_FEW = 64


@torch.no_grad()
def walk(
    graph: Graph,
    log_policy: Tensor | PolicyRows,
    num: int,
    generators: Mapping[str, torch.Generator],
    exploration: Exploration | None = None,
) -> Walk:
    """Sample episodes; steps after the end of one are not valid.

    Args:
        log_policy: log π(a|s) of every state, [S, A], or what gives the rows of some.
        generators: "policy" draws intentions, "channel" draws outcomes.
    """
    behaviour_at = _behaviour(graph, log_policy, exploration or Exploration())
    nodes = torch.zeros(num, dtype=torch.int64)
    steps = []
    for _ in range(graph.max_steps):
        valid = nodes < graph.num_states
        if not bool(valid.any()):  # all episodes have ended
            break
        states = torch.where(valid, nodes, 0)
        behaviour = behaviour_at(states)
        intentions = draw(behaviour, generators["policy"])
        # a world that obeys draws nothing
        outcomes = intentions if graph.obedient else _outcomes(graph, states, intentions, generators["channel"])
        nodes = torch.where(valid, graph.children[states, outcomes], nodes)
        chosen = behaviour.gather(-1, intentions.unsqueeze(-1)).squeeze(-1).log()
        steps.append((intentions, outcomes, valid, torch.where(valid, chosen, 0.0)))
    missing = (0, graph.max_steps - len(steps))
    return Walk(*(pad(torch.stack(column, dim=1), missing) for column in zip(*steps, strict=True)))


def _outcomes(graph: Graph, states: Tensor, intentions: Tensor, generator: torch.Generator) -> Tensor:
    """What comes of intentions; [num] each."""
    rows = graph.cumulative[states, intentions]
    uniform = torch.rand(len(states), 1, generator=generator, dtype=torch.float64)
    # scaled by the row's own total: rounding in the sum must not open an index past the last outcome
    return (uniform * rows[:, -1:] >= rows).sum(dim=-1)


def _behaviour(graph: Graph, log_policy: Tensor | PolicyRows, exploration: Exploration) -> PolicyRows:
    """Probabilities of intentions where episodes stand, from a table or asked for; [num] → [num, A]."""
    if isinstance(log_policy, Tensor):
        table = exploration.behaviour(log_policy.double().cpu(), graph.valid_actions)
        return lambda states: table[states]

    def asked(states: Tensor) -> Tensor:
        if exploration == Exploration():
            return log_policy(states).exp()
        return exploration.behaviour(log_policy(states), graph.valid_actions[states])

    def asked_once(states: Tensor) -> Tensor:
        if len(states) < _FEW:
            return asked(states)
        distinct, which = states.unique(return_inverse=True)
        return asked(distinct)[which]

    return asked_once


def longest(valid: Tensor) -> int:
    """Steps of the longest episode of a batch; [num, time] → a number."""
    return int(valid.sum(dim=1).amax()) if valid.numel() else 0


def nodes_on(graph: Graph, outcomes: Tensor, valid: Tensor) -> Tensor:
    """Nodes on the way of episodes, the root first, after the end the object; [num, time] → [num, time + 1]."""
    nodes, time = [torch.zeros(len(outcomes), dtype=torch.int64)], longest(valid)
    for column, going in zip(outcomes.T[:time], valid.T[:time], strict=True):
        last = nodes[-1]
        nodes.append(torch.where(going, graph.children[torch.where(going, last, 0), column], last))
    return torch.stack(nodes + nodes[-1:] * (outcomes.shape[1] - time), dim=1)


def objects_of(graph: Graph, outcomes: Tensor, valid: Tensor) -> Tensor:
    """Object that each episode made, counted from zero; [num, time] → [num]."""
    return nodes_on(graph, outcomes, valid)[:, -1] - graph.num_states
