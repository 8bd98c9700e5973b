"""The flow model of a graph: policies over what is possible, heads along paths, flows of all children."""

import math

import pytest
import torch

from stochflow.core.random import Generators
from stochflow.environments.graphs.environment import GraphEnvironment, nodes_on
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.gymnasium import gym_graph
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.models.evaluation import AlongPaths
from stochflow.models.graph_network import GraphNetwork
from stochflow.sampling.rollout import Walk, rollout

GRAPHS = {
    "grid": hypergrid("2,4", slip=0.3),
    "still": hypergrid("2,4", slip=0.0),
    "lake": gym_graph("FrozenLake-v1:horizon=6", 0.0),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return GRAPHS[request.param]


@pytest.fixture
def network(graph: Graph, generator: torch.Generator) -> GraphNetwork:
    """No two nodes alike."""
    made = GraphNetwork(graph, width=8, num_layers=1)
    made.initialise(generator)
    with torch.no_grad():
        for head in (made.policy_head, made.backward_head, made.flow_head):
            head.weight.normal_(generator=generator)
    return made


@pytest.fixture
def walk(network: GraphNetwork) -> Walk:
    return rollout(GraphEnvironment(network.graph), network.sampler(24), 24, Generators(0))


def test_both_policies_stay_with_what_is_possible(network: GraphNetwork, graph: Graph) -> None:
    policies = network.policy_table().exp()
    torch.testing.assert_close(policies.sum(dim=-1), torch.ones(graph.num_states, dtype=torch.float64))
    assert float(policies[~graph.valid_actions].sum()) < 1e-6
    nodes = torch.arange(1, graph.num_nodes)
    with torch.no_grad():
        pairs = network.log_backward(network.hidden(nodes), nodes).exp()
    torch.testing.assert_close(pairs.sum(dim=(-2, -1)), torch.ones(len(nodes)))
    steps = graph.parents[nodes].clamp_min(0)
    may = graph.support[steps // graph.num_outcomes, :, steps % graph.num_outcomes]
    may = may & (graph.parents[nodes] >= 0).unsqueeze(-1)
    assert float(pairs[~may].sum()) < 1e-6


def test_a_new_network_is_uniform_and_counts_objects(graph: Graph, generator: torch.Generator) -> None:
    network = GraphNetwork(graph, width=8, num_layers=1)
    network.initialise(generator)
    choices = graph.valid_actions.sum(dim=-1, keepdim=True)
    expected = graph.valid_actions.double() / choices
    torch.testing.assert_close(network.policy_table().exp(), expected, atol=1e-6, rtol=0)
    assert network.root_log_flow() == pytest.approx(math.log(graph.num_objects), abs=1e-5)


def test_the_backward_policy_gives_nothing_to_what_cannot_have_happened(generator: torch.Generator) -> None:
    """Otherwise every residual could be zero with flow that goes nowhere."""
    graph = GRAPHS["still"]
    network = GraphNetwork(graph, width=8, num_layers=1)
    network.initialise(generator)
    nodes = torch.arange(graph.num_nodes)
    log_pairs = network.log_backward(network.hidden(nodes), nodes).detach()
    # without noise a parent's move has one intention, and a stopped walk one parent that meant to stop
    torch.testing.assert_close(log_pairs.exp()[1:].sum(dim=(-2, -1)), torch.ones(graph.num_nodes - 1))
    assert bool((log_pairs[graph.num_states :, 0, -1] == 0.0).all())
    corner = graph.labels.index("2,1")
    assert log_pairs[corner].exp().flatten().sort(descending=True).values[:2].tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("backward", ["learned", "uniform"])
def test_heads_along_paths_are_those_of_each_node_alone(network: GraphNetwork, walk: Walk, backward: str) -> None:
    graph = network.graph
    heads = network.evaluate(AlongPaths(walk.outcomes, walk.valid, backward, ends=True)).heads()
    assert heads.log_backward is not None
    assert heads.log_parent is not None
    assert heads.log_end_flow is not None
    assert heads.allowed is not None
    assert heads.choices is not None
    nodes = nodes_on(graph, walk.outcomes, walk.valid)
    for row, time in walk.valid.nonzero().tolist():
        state, child, outcome = nodes[row, time : time + 1], nodes[row, time + 1 : time + 2], walk.outcomes[row, time]
        hidden, after = network.hidden(state), network.hidden(child)
        torch.testing.assert_close(heads.log_policy[row, time], network.log_policy(hidden, state)[0])
        torch.testing.assert_close(heads.log_flow[row, time], network.log_flow(hidden, state)[0])
        column = (graph.parents[child[0]] == state[0] * graph.num_outcomes + outcome).nonzero().item()
        pairs = network._log_pairs(network.backward_head(after), child, uniform=backward == "uniform")[0]
        torch.testing.assert_close(heads.log_backward[row, time], pairs[column])
        torch.testing.assert_close(heads.log_parent[row, time].exp(), pairs[column].exp().sum())
        assert torch.equal(heads.allowed[row, time], graph.valid_actions[state[0]])
        assert int(heads.choices[row, time]) == int(graph.valid_actions[state[0]].sum())
    ends = nodes[:, -1]
    torch.testing.assert_close(heads.log_end_flow, network.log_flow(network.hidden(ends), ends))


def test_flows_of_children_are_those_of_each_child_alone(network: GraphNetwork, walk: Walk) -> None:
    graph = network.graph
    flows = network.children_along(walk.outcomes, walk.valid)
    assert flows.log_parent is not None
    assert not flows.log_flow.requires_grad  # targets, which must not be pulled towards what they judge
    nodes = nodes_on(graph, walk.outcomes, walk.valid)
    for row, time in walk.valid.nonzero().tolist():
        state = int(nodes[row, time])
        for outcome in range(graph.num_outcomes):
            found, share = flows.log_flow[row, time, outcome], flows.log_parent[row, time, outcome]
            if not graph.possible[state, outcome]:
                assert found.item() == pytest.approx(math.log(1e-30))
                assert share.item() == 0.0
                continue
            child = graph.children[state, outcome].reshape(1)
            column = (graph.parents[child[0]] == state * graph.num_outcomes + outcome).nonzero().item()
            with torch.no_grad():
                hidden = network.hidden(child)
                expected = network.log_flow(hidden, child)[0]
                parent = network.log_backward(hidden, child)[0, column].exp().sum()
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(share.exp(), parent)


def test_the_sampler_gives_the_policy_of_the_state_it_stands_on(network: GraphNetwork, walk: Walk) -> None:
    nodes, sampler = nodes_on(network.graph, walk.outcomes, walk.valid), network.sampler(len(walk))
    for time in range(network.graph.max_steps):
        going = walk.valid[:, time]
        expected = network.policy_table()[nodes[going, time]]
        torch.testing.assert_close(torch.from_numpy(sampler.log_policy())[going], expected, atol=1e-6, rtol=0)
        assert torch.equal(sampler.allowed()[going], network.graph.valid_actions[nodes[going, time]])
        sampler.advance(walk.outcomes[:, time].numpy())
