"""A graph as an environment: episodes walk from the root to an object, by the dynamics of the graph."""

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.core.random import Generators
from stochflow.environments.graphs.environment import GraphEnvironment, longest, nodes_on
from stochflow.environments.graphs.hypergrid import hypergrid

GRID = hypergrid("3,4", slip=0.25)
STOP = GRID.num_actions - 1


def walked(num: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Intentions, outcomes and valid steps of episodes with uniform intentions; [num, max_steps] each."""
    environment, generator = GraphEnvironment(GRID), torch.Generator().manual_seed(seed)
    episodes, nodes = environment.begin(num, Generators(seed)), torch.zeros(num, dtype=torch.int64)
    columns = []
    for time in range(GRID.max_steps):
        assert episodes.going is not None
        going = torch.from_numpy(episodes.going.copy())
        allowed = GRID.valid_actions[torch.where(going, nodes, 0)].double()
        intended = torch.multinomial(allowed, 1, generator=generator).squeeze(-1)
        outcomes = torch.from_numpy(episodes.step(intended.numpy(), time))
        nodes = torch.where(going, GRID.children[torch.where(going, nodes, 0), outcomes], nodes)
        columns.append((intended, outcomes, going))
    assert not episodes.going.any()
    return tuple(torch.stack(column, dim=1) for column in zip(*columns, strict=True))  # type: ignore[return-value]


def test_nodes_after_the_end_are_the_object() -> None:
    _, outcomes, valid = walked(32)
    nodes = nodes_on(GRID, outcomes, valid)
    assert nodes.shape == (32, GRID.max_steps + 1)
    for row, steps in zip(nodes, valid.sum(dim=1).tolist(), strict=True):
        assert len(row[steps:].unique()) == 1
        assert bool((row[:steps] < GRID.num_states).all())
        assert int(row[-1]) >= GRID.num_states


def test_an_object_is_the_cell_where_the_walk_stopped() -> None:
    _, outcomes, valid = walked(64)
    made = GraphEnvironment(GRID).made(outcomes, valid)
    for row, steps, number in zip(outcomes, valid.sum(dim=1).tolist(), made.tolist(), strict=True):
        moves = row[: steps - 1].bincount(minlength=3).tolist()
        assert int(row[steps - 1]) == STOP
        assert GRID.labels[number] == ",".join(map(str, moves))


def test_outcomes_follow_the_dynamics_of_the_state() -> None:
    num = 20_000
    episodes = GraphEnvironment(GRID).begin(num, Generators(0))
    came = torch.from_numpy(episodes.step(np.zeros(num, np.int64), 0))
    expected = GRID.dynamics[0, 0]
    five_errors = 5.0 * (expected * (1.0 - expected) / num).sqrt() + 1e-12
    assert bool(((came.bincount(minlength=GRID.num_outcomes) / num - expected).abs() <= five_errors).all())
    assert expected[1] == pytest.approx(0.25 / 3)


def test_an_episode_that_has_ended_stays_where_it_is() -> None:
    episodes = GraphEnvironment(GRID).begin(2, Generators(0))
    episodes.step(np.array([STOP, 0]), 0)
    assert episodes.going is not None
    assert episodes.going.tolist() == [False, True]
    episodes.step(np.array([0, STOP]), 1)
    assert episodes.going.tolist() == [False, False]


def test_scores_are_read_off_the_graph_and_nothing_is_paid_twice(generator: torch.Generator) -> None:
    environment, made = GraphEnvironment(GRID), torch.tensor([3, 0, 3])
    assert torch.equal(environment.score(made), GRID.scores[made])
    assert torch.equal(environment.measure(made, generator), GRID.scores[made])
    assert bool(environment.known(made).all())
    assert not bool(environment.free(made).any())
    assert environment.designs(made) is None
    assert environment.feasible(made) is None


def test_a_row_of_samples_names_the_object_and_what_was_intended() -> None:
    intentions = torch.tensor([[0, 1, STOP, 0], [STOP, 2, 2, 2]])
    outcomes = torch.tensor([[0, 2, STOP, 1], [STOP, 0, 0, 0]])
    valid = torch.tensor([[True, True, True, False], [True, False, False, False]])
    frame = GraphEnvironment(GRID).frame(intentions, outcomes, valid)
    assert frame["object"].tolist() == ["1,0,1", "0,0,0"]
    assert frame["intended"].tolist() == ["+1 +2 stop", "stop"]


def test_an_environment_says_what_a_run_needs_to_know_of_it() -> None:
    environment = GraphEnvironment(GRID)
    assert (environment.num_actions, environment.num_outcomes, environment.max_steps) == (4, 4, 10)
    assert not environment.is_tree
    assert environment.enumerable
    assert environment.describe() == {"task": "hypergrid:3,4", "noise": 0.25}
    assert environment.dynamics is GRID.dynamics
    assert environment.mode_threshold == GRID.mode_threshold


@pytest.mark.parametrize(("valid", "steps"), [([[True, False], [True, True]], 2), ([[False, False]], 0)])
def test_the_longest_episode_of_a_batch(valid: list[list[bool]], steps: int) -> None:
    assert longest(torch.tensor(valid)) == steps
    assert longest(torch.zeros(0, 4, dtype=torch.bool)) == 0


def test_no_episodes_make_no_objects() -> None:
    nothing = torch.zeros(0, GRID.max_steps, dtype=torch.int64)
    assert GraphEnvironment(GRID).made(nothing, nothing.bool()).shape == (0,)
