"""Flows on a graph that are balanced by construction, and networks that are tables of them."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.graphs.graph import Graph
from stochflow.models.graph_network import GraphNetwork
from stochflow.objectives.learners import GraphLearner
from stochflow.sampling.object_memory import ObjectMemory
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.dag import node_visits, outcome_marginals
from tests.small_tasks import graph_experiment, graph_learner

LOG_Z = 1.5


class Tables(GraphNetwork):
    """Stands in for a network: a policy, flows and a backward policy over parents and intentions, as tables.

    Args:
        policies: π(a|s), [S, A].
        flows: F of every node, [S + X].
        pairs: π_B(s,a|s'), [S + X, parents, A].
    """

    dtype = torch.float64

    def __init__(self, graph: Graph, policies: Tensor, flows: Tensor, pairs: Tensor) -> None:
        super().__init__(graph, 1, 0)
        self.tables = policies, flows, pairs

    def hidden(self, nodes: Tensor) -> Tensor:
        return nodes

    def log_policy(self, hidden: Tensor, states: Tensor) -> Tensor:
        return safe_log(self.tables[0][states])

    def log_flow(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        return safe_log(self.tables[1][nodes])

    def log_backward(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        return safe_log(self.tables[2][nodes])

    def outputs(self, nodes: Tensor) -> Tensor:
        """Log-probabilities are their own logits."""
        states = torch.where(nodes < self.graph.num_states, nodes, 0)
        flows = safe_log(self.tables[1][nodes]) - self.log_completions[nodes]
        return torch.cat(
            [self.log_policy(nodes, states), self.log_backward(nodes, nodes).flatten(1), flows.unsqueeze(-1)], dim=-1
        )


def parents_of(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """States and outcomes that lead to every node, and which of them exist; [S + X, parents] each."""
    steps = graph.parents.clamp_min(0)
    return steps // graph.num_outcomes, steps % graph.num_outcomes, graph.parents >= 0


def normalised(pairs: Tensor) -> Tensor:
    """π_B of given weights, [S + X, parents, A]; the root has none."""
    return pairs / pairs.sum(dim=(-2, -1), keepdim=True).clamp_min(1e-12)


def uniform_pairs(graph: Graph) -> Tensor:
    """The same share for every parent and intention that may have led to a node."""
    states, outcomes, exist = parents_of(graph)
    return normalised((graph.support[states, :, outcomes] & exist.unsqueeze(-1)).double())


def random_pairs(graph: Graph) -> Tensor:
    weights = uniform_pairs(graph)
    return normalised(
        weights * torch.rand(weights.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    )


def flow_up(graph: Graph, pairs: Tensor) -> Tables:
    """Random rewards, the flows that π_B sends up from them through the true dynamics, and the policy of these flows.

    Without noise it is balanced for every π_B; with noise it is the solution of expected balance.
    """
    flows = torch.zeros(graph.num_nodes, dtype=torch.float64)
    rewards = 0.1 + torch.rand(graph.num_objects, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    flows[graph.num_states :] = rewards
    policies = torch.zeros(graph.valid_actions.shape, dtype=torch.float64)
    for level in reversed(graph.levels):
        states = level.states
        shares = pairs.sum(dim=-1)[level.children, graph.parent_places[states]]
        carried = (graph.dynamics[states] @ (flows[level.children] * shares * level.possible).unsqueeze(-1)).squeeze(-1)
        flows[states] = carried.sum(dim=-1)
        policies[states] = carried / carried.sum(dim=-1, keepdim=True)
    return Tables(graph, policies, flows, pairs)


def flow_down(graph: Graph, realised: bool) -> Tables:
    """Random intentions, the flows that they carry down, and the posterior of who carried them.

    Args:
        realised: blind to noise, every intention is believed to come true.
    """
    generator = torch.Generator().manual_seed(3)
    policies = torch.rand(graph.valid_actions.shape, dtype=torch.float64, generator=generator) * graph.valid_actions
    policies = policies / policies.sum(dim=-1, keepdim=True)
    believed = torch.eye(graph.num_actions).double() * graph.valid_actions.unsqueeze(-1)
    dynamics = believed if realised else graph.dynamics
    visits = node_visits(graph, outcome_marginals(dynamics, policies))
    return Tables(graph, policies, visits * torch.tensor(LOG_Z).exp(), posterior_pairs(graph, policies, dynamics))


def posterior_pairs(graph: Graph, policies: Tensor, dynamics: Tensor) -> Tensor:
    """π_B(s,a|s') = μ(s)·π(a|s)·P(s'|s,a)/μ(s')."""
    visits = node_visits(graph, outcome_marginals(dynamics, policies))
    states, outcomes, exist = parents_of(graph)
    joint = visits[states].unsqueeze(-1) * policies[states] * dynamics[states, :, outcomes]
    return normalised(joint * exist.unsqueeze(-1))


def balanced_learner(network: Tables, noise: float, **settings: Any) -> tuple[GraphLearner, Trajectories]:
    """A learner whose objects score what flows into them, all paid for, and a batch of its episodes."""
    known = {"channel": {"noise": noise}, "dynamics": {"kind": "known"}, "reward": {"floor": 1e-12}}
    experiment = graph_experiment("hypergrid:2,4", **known, **settings)
    scores = network.tables[1][network.graph.num_states :]
    learner, batch = graph_learner(experiment), experiment.trainer.collect()
    environment = GraphEnvironment(replace(learner.environment.graph, scores=scores))
    learner = replace(learner, network=network, environment=environment, memory=ObjectMemory(scores))
    learner.memory.pay(torch.arange(len(scores)), environment.score)
    return learner, scored(learner, batch)


def scored(learner: GraphLearner, batch: Trajectories) -> Trajectories:
    """Episodes with the scores of the learner's own graph."""
    return replace(batch, scores=learner.environment.score(learner.environment.made(batch.outcomes, batch.valid)))


def padded(batch: Trajectories, num: int) -> Trajectories:
    """The same with so many steps after the end in which anything stands."""
    size = (len(batch), num)

    def wider(column: Tensor, filling: Tensor) -> Tensor:
        return torch.cat([torch.where(batch.valid, column, filling[:, : column.shape[1]]), filling[:, :num]], dim=1)

    anything = torch.randint(3, (len(batch), 20), generator=torch.Generator().manual_seed(2))
    valid = torch.cat([batch.valid, torch.zeros(size, dtype=torch.bool)], dim=1)
    log_behaviour = torch.nn.functional.pad(batch.log_behaviour, (0, num))
    intentions, outcomes = wider(batch.intentions, anything), wider(batch.outcomes, anything.flip(1))
    return Trajectories(intentions, outcomes, valid, batch.scores, log_behaviour)


def scramble(network: GraphNetwork) -> None:
    """No two nodes alike, as after training."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for head in (network.policy_head, network.backward_head, network.flow_head):
            head.weight.normal_(std=0.3, generator=generator)
