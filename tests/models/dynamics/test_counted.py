import pytest
import torch

from stochflow.core.random import Generators
from stochflow.environments.graphs.environment import GraphEnvironment, nodes_on
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.models.dynamics.counted import CountedDynamics, KnownGraphDynamics
from stochflow.models.graph_network import GraphSampler
from stochflow.sampling.rollout import rollout


def observed(graph: Graph, dynamics: CountedDynamics, num: int) -> CountedDynamics:
    uniform = torch.zeros(graph.valid_actions.shape, dtype=torch.float64)
    made = rollout(GraphEnvironment(graph), GraphSampler(graph, num, uniform), num, Generators(0))
    states = nodes_on(graph, made.outcomes, made.valid)[:, :-1]
    dynamics.observe(states[made.valid], made.intentions[made.valid], made.outcomes[made.valid])
    return dynamics


def test_every_possible_intention_has_a_distribution_before_anything_was_seen() -> None:
    graph = hypergrid("2,3", 0.3)
    table = CountedDynamics(graph, by_state=True).table()
    torch.testing.assert_close(table.sum(dim=-1), graph.valid_actions.double())
    assert float(table[~graph.possible.unsqueeze(1).expand_as(table)].abs().max()) == 0.0


def test_one_observation_moves_the_state_and_a_little_its_kind() -> None:
    graph = hypergrid("2,4", 0.3)
    dynamics = CountedDynamics(graph, by_state=True)
    before = dynamics.table()
    dynamics.observe(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))
    after = dynamics.table()
    alike = graph.labels.index("1,1")
    assert after[0, 0, 1] >= after[alike, 0, 1] > before[0, 0, 1]
    border = graph.labels.index("3,1")  # of another kind
    assert torch.equal(after[border], before[border])


def test_states_of_one_kind_learn_from_one_another_where_they_are_alike() -> None:
    graph = hypergrid("2,5", 0.4)
    dynamics = observed(graph, CountedDynamics(graph, by_state=True), 500)
    rarely = int(dynamics.counts[graph.kinds == graph.kinds[0]].sum(dim=(-2, -1)).argmin())
    state = int((graph.kinds == graph.kinds[0]).nonzero()[rarely])
    num_seen = float(dynamics.counts[state].sum())
    assert num_seen < 60
    torch.testing.assert_close(dynamics.table()[state], graph.dynamics[state], atol=0.06, rtol=0)


def test_a_state_that_differs_from_its_kind_is_learned_from_its_own_counts() -> None:
    graph = hypergrid("2,3", 0.3)
    dynamics = CountedDynamics(graph, by_state=True)
    pooled = CountedDynamics(graph, by_state=False)
    other = graph.labels.index("1,1")
    for counter in (dynamics, pooled):
        for state, outcome in ((0, 0), (other, 1)):  # the same intention, opposite outcomes
            counter.observe(*(torch.full((400,), value) for value in (state, 0, outcome)))
    assert dynamics.table()[0, 0, 0] > 0.99
    assert dynamics.table()[other, 0, 1] > 0.99
    assert float(pooled.table()[0, 0, 0]) == pytest.approx(0.5, abs=0.01)


def test_known_dynamics_are_the_truth() -> None:
    graph = hypergrid("2,3", 0.25)
    assert torch.equal(KnownGraphDynamics(graph).table(), graph.dynamics)
