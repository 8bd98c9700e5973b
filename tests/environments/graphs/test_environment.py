"""A graph as an environment: episodes walk to an object, and end there."""

import math

import numpy as np
import pytest
import torch

from stochflow.core.random import RandomStreams
from stochflow.environments.graphs.environment import GraphEnvironment, longest, nodes_on
from stochflow.environments.graphs.hypergrid import hypergrid

STOP = 2
# to (0, 0), to (1, 2), and to (3, 0) on a 4 × 4 grid; numbers after the end count nowhere
OUTCOMES = torch.tensor([[STOP, 1, 1, 1, 0, 0, 0], [0, 1, 1, STOP, 1, 1, 1], [0, 0, 0, STOP, 0, 0, 0]])
VALID = torch.arange(7) < torch.tensor([[1], [4], [4]])


@pytest.fixture
def environment() -> GraphEnvironment:
    return GraphEnvironment(hypergrid("2,4", 0.2))


def test_it_says_of_itself_what_the_graph_says(environment: GraphEnvironment) -> None:
    graph = environment.graph
    assert environment.describe() == {"task": "hypergrid:2,4", "noise": 0.2}
    assert (environment.num_actions, environment.num_outcomes, environment.max_steps) == (3, 3, 7)
    assert not environment.is_tree
    assert environment.enumerable
    assert environment.mode_threshold == graph.mode_threshold
    assert environment.dynamics is graph.dynamics
    assert environment.designs(torch.tensor([0])) is None


def test_the_object_is_where_an_episode_stopped(environment: GraphEnvironment, generator: torch.Generator) -> None:
    made, graph = environment.made(OUTCOMES, VALID), environment.graph
    assert [graph.labels[number] for number in made.tolist()] == ["0,0", "1,2", "3,0"]
    assert torch.equal(environment.score(made), graph.scores[made])
    assert torch.equal(environment.measure(made, generator), graph.scores[made])


def test_ways_begin_at_the_root_and_stay_at_the_object(environment: GraphEnvironment) -> None:
    graph = environment.graph
    nodes = nodes_on(graph, OUTCOMES, VALID)
    # states are numbered row by row, and the object of a state comes 16 later
    assert nodes.tolist() == [[0] + [16] * 7, [0, 4, 5, 6] + [22] * 4, [0, 4, 8, 12] + [28] * 4]
    assert longest(VALID) == 4
    assert longest(VALID[:0]) == 0


def test_a_row_names_the_object_and_what_was_intended_until_the_end(environment: GraphEnvironment) -> None:
    frame = environment.frame(OUTCOMES.flip(0), OUTCOMES, VALID)
    assert frame["object"].tolist() == ["0,0", "1,2", "3,0"]
    assert frame["intended"].tolist() == ["+1", "+1 +2 +2 stop", "stop +2 +2 +2"]
    assert environment.object_column == "object"


def test_an_episode_ends_at_its_object_and_is_not_moved_any_more() -> None:
    environment = GraphEnvironment(hypergrid("2,4", 0.0))
    episodes = environment.begin(2, RandomStreams(0))
    for time, (intended, going) in enumerate(
        [((STOP, 0), (False, True)), ((0, 1), (False, True)), ((1, STOP), (False, False))]
    ):
        assert episodes.step(np.array(intended), time)[1] == intended[1]
        assert episodes.going is not None
        assert episodes.going.tolist() == list(going)


def test_a_noiseless_graph_draws_nothing() -> None:
    generators = RandomStreams(0)
    before = generators["channel"].get_state()
    GraphEnvironment(hypergrid("2,4", 0.0)).begin(4, generators).step(np.array([0, 1, 0, 1]), 0)
    assert torch.equal(generators["channel"].get_state(), before)


@pytest.mark.parametrize("intended", [0, 1, STOP])
def test_outcomes_come_as_often_as_the_dynamics_say(intended: int, environment: GraphEnvironment) -> None:
    num = 20_000
    outcomes = environment.begin(num, RandomStreams(0)).step(np.full(num, intended), 0)
    for share, expected in zip(
        np.bincount(outcomes, minlength=3) / num, environment.dynamics[0, intended], strict=True
    ):
        assert abs(share - float(expected)) <= 5 * math.sqrt(float(expected * (1 - expected)) / num)
