import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.graphs.hypergrid import REWARDS, corner_rewards, hypergrid


def test_the_modes_of_the_eight_by_eight_grid_are_its_four_cells_beside_the_corners() -> None:
    graph = hypergrid("", 0.25)
    scores = dict(zip(graph.labels, graph.scores.tolist(), strict=True))
    assert scores["1,1"] == scores["1,6"] == scores["6,1"] == scores["6,6"] == pytest.approx(sum(REWARDS))
    assert scores["0,7"] == scores["0,1"] == pytest.approx(REWARDS[0] + REWARDS[1])
    assert scores["3,3"] == scores["1,3"] == pytest.approx(REWARDS[0])
    assert sorted(scores.values())[-5:] == pytest.approx([0.501, *[2.501] * 4])
    assert int((graph.scores > graph.mode_threshold).sum()) == 4


def test_rewards_take_other_constants() -> None:
    positions = torch.tensor([[0, 0], [1, 1], [3, 3]])
    found = corner_rewards(positions, 8, (0.1, 1.0, 3.0))
    torch.testing.assert_close(found, torch.tensor([1.1, 4.1, 0.1], dtype=torch.float64))


def test_a_move_slips_among_the_possible_moves_and_stop_never_does() -> None:
    graph = hypergrid("3,4", 0.3)
    inside = graph.dynamics[0]
    expected = [[0.8, 0.1, 0.1, 0.0], [0.1, 0.8, 0.1, 0.0], [0.1, 0.1, 0.8, 0.0], [0.0, 0.0, 0.0, 1.0]]
    torch.testing.assert_close(inside, torch.tensor(expected, dtype=torch.float64))
    border = graph.labels.index("3,0,0")
    expected = [[0.0, 0.0, 0.0, 0.0], [0.0, 0.85, 0.15, 0.0], [0.0, 0.15, 0.85, 0.0], [0.0, 0.0, 0.0, 1.0]]
    torch.testing.assert_close(graph.dynamics[border], torch.tensor(expected, dtype=torch.float64))
    assert graph.valid_actions[graph.labels.index("3,3,3")].tolist() == [False, False, False, True]


def test_a_step_adds_one_to_one_coordinate_or_stops_where_it_is() -> None:
    graph = hypergrid("2,3", 0.0)
    here = graph.labels.index("1,0")
    names = [*(f"at {label}" for label in graph.labels), *graph.labels]
    assert [names[child] for child in graph.children[here]] == ["at 2,0", "at 1,1", "1,0"]
    assert graph.children[graph.labels.index("2,2")].tolist()[:2] == [-1, -1]


def test_a_position_is_reached_from_as_many_parents_as_it_has_coordinates_above_zero() -> None:
    graph = hypergrid("3,3", 0.0)
    num_parents = (graph.parents >= 0).sum(dim=-1)
    positions = [label.split(",") for label in graph.labels]
    assert num_parents[: graph.num_states].tolist() == [3 - position.count("0") for position in positions]
    assert num_parents[graph.num_states :].eq(1).all()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("2", "hypergrid:DIMENSIONS,SIDE"),
        ("2,1", "at least 2"),
        ("20,2", "smaller"),
        ("2,x", "whole numbers"),
        ("1,4000000", "4,000,000 steps"),  # whose features would take terabytes
        ("3,100", "too large for tables"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(parameters: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        hypergrid(parameters, 0.1)
