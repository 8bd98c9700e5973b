import pytest
import torch

from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.hypergrid import hypergrid


@pytest.fixture
def graph() -> Graph:
    return hypergrid("2,4", 0.2)


def test_every_step_leads_deeper(graph: Graph) -> None:
    states, outcomes = graph.possible.nonzero(as_tuple=True)
    assert bool((graph.depths[graph.children[states, outcomes]] > graph.depths[states]).all())
    assert graph.max_steps == 7  # six moves to the far corner, and stop


def test_parents_are_the_children_read_backwards(graph: Graph) -> None:
    nodes, columns = (graph.parents >= 0).nonzero(as_tuple=True)
    steps = graph.parents[nodes, columns]
    states, outcomes = steps // graph.num_outcomes, steps % graph.num_outcomes
    assert torch.equal(graph.children[states, outcomes], nodes)
    assert torch.equal(graph.parent_places[states, outcomes], columns)
    assert len(steps) == int(graph.possible.sum()) == len(steps.unique())


def test_levels_hold_every_state_and_every_step_once(graph: Graph) -> None:
    states = torch.cat([level.states for level in graph.levels])
    steps = torch.cat([level.steps for level in graph.levels])
    assert states.sort().values.tolist() == list(range(graph.num_states))
    assert len(steps) == len(steps.unique()) == int(graph.possible.sum())
    for level in graph.levels:
        assert torch.equal(graph.children.flatten()[level.steps], level.targets)


def test_flows_start_from_the_number_of_objects(graph: Graph) -> None:
    assert float(graph.log_completions[0].exp()) == pytest.approx(graph.num_objects)
    assert graph.log_completions[graph.num_states :].tolist() == [0.0] * graph.num_objects
