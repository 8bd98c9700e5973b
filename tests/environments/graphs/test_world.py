"""Small worlds written down as a class: explored completely, and refused where they cannot be a graph."""

from collections.abc import Hashable, Mapping, Sequence

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.graphs.world import World, explore


class Letters(World):
    """Two letters, A or B; the second comes out as intended with probability 0.8, and one may stop before it."""

    name, actions, noise = "letters", ("A", "B", "stop"), 0.2

    def start(self) -> Hashable:
        return ""

    def outcomes(self, state: Hashable, action: int) -> Mapping[Hashable, float]:
        text = str(state)
        if action == 2:
            return {f"{text}!": 1.0} if text else {}
        if not text:
            return {"AB"[action]: 1.0}
        return {f"{text}{'AB'[action]}!": 0.8, f"{text}{'BA'[action]}!": 0.2}

    def score(self, state: Hashable) -> float | None:
        return float(len(str(state))) if str(state).endswith("!") else None

    def features(self, state: Hashable) -> Sequence[float]:
        return [float(str(state).count(letter)) for letter in "AB!"]


def test_everything_that_can_be_reached_is_found_once() -> None:
    graph = explore(Letters())
    assert graph.num_states == 3
    assert sorted(graph.labels) == ["A!", "AA!", "AB!", "B!", "BA!", "BB!"]
    assert graph.max_steps == 2
    assert graph.noise == 0.2
    assert graph.description.startswith("Two letters")
    assert graph.valid_actions.tolist() == [[True, True, False], [True] * 3, [True] * 3]


def test_probabilities_and_scores_are_those_of_the_world() -> None:
    graph = explore(Letters())
    second = graph.dynamics[1]  # after an A: AA!, AB!, A!
    names = [graph.labels[int(node) - graph.num_states] for node in graph.children[1]]
    assert names == ["AA!", "AB!", "A!"]
    torch.testing.assert_close(
        second, torch.tensor([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    )
    assert dict(zip(graph.labels, graph.scores.tolist(), strict=True))["AB!"] == 3.0


def test_every_step_leads_deeper() -> None:
    class Shortcut(Letters):
        """A state with a short and a long way to it is as deep as the long one."""

        def outcomes(self, state: Hashable, action: int) -> Mapping[Hashable, float]:
            ways = {("", 0): "A", ("", 1): "B", ("A", 0): "B", ("B", 0): "B!"}
            return {ways[str(state), action]: 1.0} if (str(state), action) in ways else {}

    graph = explore(Shortcut())
    for state, row in enumerate(graph.children.tolist()):
        assert all(graph.depths[child] > graph.depths[state] for child in row if child >= 0)
    assert graph.max_steps == 3


@pytest.mark.parametrize(
    ("method", "replacement", "message"),
    [
        ("outcomes", lambda self, state, action: {}, "leads nowhere"),
        ("outcomes", lambda self, state, action: {"A": 1.0}, "can come back to a state"),
        ("outcomes", lambda self, state, action: {f"{state}!": 0.5}, "must sum to 1"),
        ("score", lambda self, state: -1.0 if str(state).endswith("!") else None, "at least 0"),
        ("score", lambda self, state: 0.0 if str(state).endswith("!") else None, "above 0"),
    ],
)
def test_what_cannot_be_a_graph_is_one_sentence(
    method: str, replacement: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Letters, method, replacement)
    with pytest.raises(ConfigError, match=message):
        explore(Letters())
