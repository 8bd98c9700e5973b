"""Episodes on a graph: the same from a table and from rows that are asked for, and no longer than they are."""

import pytest
import torch
from stochflow.sampling.graph_rollout import objects_of, walk
from torch import Tensor

from stochflow.core.random import Generators
from stochflow.environments.graphs.environment import longest, nodes_on
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.models.graph_network import GraphNetwork
from stochflow.sampling.rollout import Exploration

GRID = hypergrid("3,4", slip=0.25)


def network() -> GraphNetwork:
    made = GraphNetwork(GRID, width=8, num_layers=1)
    made.initialise(Generators(0)["init"])
    torch.nn.init.normal_(made.policy_head.weight, generator=torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("num", [16, 200])  # asked for one by one, and each state once
@pytest.mark.parametrize("exploration", [Exploration(), Exploration(epsilon=0.2, temperature=1.5)])
def test_rows_that_are_asked_for_give_the_episodes_of_the_table(num: int, exploration: Exploration) -> None:
    made = network()
    walks = [walk(GRID, policy, num, Generators(3), exploration) for policy in (made.policy_table(), made.policy_rows)]
    for name in ("intentions", "outcomes", "valid"):
        assert torch.equal(*(getattr(each, name) for each in walks))
    torch.testing.assert_close(walks[0].log_behaviour, walks[1].log_behaviour, atol=1e-5, rtol=1e-5)
    assert walks[0].valid.shape == (num, GRID.max_steps)


def test_a_world_that_obeys_draws_nothing() -> None:
    still, slipping = hypergrid("3,4", slip=0.0), GRID
    assert (still.noiseless, slipping.noiseless) == (True, False)
    generators = Generators(0)
    before = generators["channel"].get_state()
    made = walk(still, network().policy_table(), 16, generators)
    assert torch.equal(generators["channel"].get_state(), before)
    assert torch.equal(made.intentions[made.valid], made.outcomes[made.valid])


def test_nobody_is_asked_after_the_end() -> None:
    asked: list[int] = []
    stop = torch.full((1, GRID.num_actions), -80.0, dtype=torch.float64)
    stop[:, -1] = 0.0

    def stopping(states: Tensor) -> Tensor:
        asked.append(len(states))
        return stop.expand(len(states), -1)

    made = walk(GRID, stopping, 8, Generators(0))
    assert asked == [8]
    assert made.valid.sum(dim=1).tolist() == [1] * 8
    assert longest(made.valid) == 1
    assert objects_of(GRID, made.outcomes, made.valid).tolist() == [0] * 8


def test_ways_are_padded_with_the_object() -> None:
    made = walk(GRID, network().policy_table(), 32, Generators(0))
    nodes = nodes_on(GRID, made.outcomes, made.valid)
    assert nodes.shape == (32, GRID.max_steps + 1)
    for row, steps in zip(nodes, made.valid.sum(dim=1).tolist(), strict=True):
        assert len(row[steps:].unique()) == 1
        assert bool((row[:steps] < GRID.num_states).all())
        assert int(row[-1]) >= GRID.num_states
