import itertools
import math

import gymnasium
import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.core.logspace import masked_log_softmax
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.gymnasium import gym_graph
from stochflow.truth.dag import expected_values, graph_optimum, object_log_probs

LAKE = "FrozenLake-v1:horizon=8"
HORIZON = 8
NUM_WORLDS = 100
NUM_EPISODES = 1500


@pytest.fixture(scope="module")
def lake() -> Graph:
    return gym_graph(LAKE, 0.0)


def uniform(graph: Graph) -> torch.Tensor:
    return masked_log_softmax(torch.zeros(graph.valid_actions.shape, dtype=torch.float64), graph.valid_actions)


def played(graph: Graph, log_policy: torch.Tensor, seed: int) -> torch.Tensor:
    """Objects of episodes in the real environment, NUM_WORLDS copies stepped together, [NUM_EPISODES]."""
    generator = torch.Generator().manual_seed(seed)
    node_of = dict(zip(zip(graph.depths.tolist(), (graph.kinds - 1).tolist(), strict=False), itertools.count()))
    number_of = {label: number for number, label in enumerate(graph.labels)}
    worlds = gymnasium.make_vec("FrozenLake-v1", num_envs=NUM_WORLDS)  # 4 × 4 and slippery; its own limit is 100 steps
    objects = []
    for batch in range(NUM_EPISODES // NUM_WORLDS):
        places, _ = worlds.reset(seed=seed + 1000 * batch)
        final = [""] * NUM_WORLDS
        for time in range(HORIZON):
            rows = [node_of.get((time, place), 0) for place in places.tolist()]
            actions = torch.multinomial(log_policy[rows].exp(), 1, generator=generator).squeeze(-1)
            places, rewards, ended, _, _ = worlds.step(actions.numpy())
            # a world that has ended begins anew with the next step; what it does then is not asked for
            final = [
                before or (f"{place}:{reward:g}" if end else f"{place}:0 cut off" if time + 1 == HORIZON else "")
                for before, place, reward, end in zip(final, places, rewards, ended, strict=True)
            ]
        objects += [number_of[label] for label in final]
    worlds.close()
    return torch.tensor(objects)


@pytest.mark.parametrize("kind", ["uniform", "optimal"])
def test_the_exact_distribution_is_that_of_the_real_slippery_lake(lake: Graph, kind: str) -> None:
    log_policy = uniform(lake)
    if kind == "optimal":
        log_policy = graph_optimum(lake, lake.scores.clamp_min(0.01).log(), tolerance=1e-3).log_policy
    probs = object_log_probs(lake, log_policy).exp()
    counts = torch.bincount(played(lake, log_policy, seed=3), minlength=lake.num_objects).double()
    # every object's count within five standard deviations of a binomial count
    spread = (NUM_EPISODES * probs * (1 - probs)).sqrt().clamp_min(1.0)
    assert float(probs.sum()) == pytest.approx(1.0, abs=1e-12)
    assert bool(((counts - NUM_EPISODES * probs).abs() < 5 * spread).all())


def test_the_best_success_within_a_hundred_steps_is_the_known_one() -> None:
    graph = gym_graph("FrozenLake-v1", 0.0)  # the environment's own limit of 100 steps
    best = float(expected_values(graph, graph.dynamics, graph.scores)[0][0])
    assert best == pytest.approx(0.744, abs=5e-4)
    assert float(object_log_probs(graph, uniform(graph)).exp() @ graph.scores) < 0.02


def test_without_slip_the_goal_is_six_steps_away() -> None:
    graph = gym_graph("FrozenLake-v1:is_slippery=false:horizon=6", 0.0)
    assert float(expected_values(graph, graph.dynamics, graph.scores)[0][0]) == 1.0
    with pytest.raises(ConfigError, match="can make scores 0, so there is nothing to prefer"):
        gym_graph("FrozenLake-v1:is_slippery=false:horizon=5", 0.0)


def test_options_choose_the_map() -> None:
    small, large = (gym_graph(f"FrozenLake-v1:map_name={size}:horizon=14", 0.0) for size in ("4x4", "8x8"))
    assert (small.features.shape[1], large.features.shape[1]) == (16 + 14 + 4, 64 + 14 + 4)


def test_states_with_different_returns_are_different_states() -> None:
    graph = gym_graph("CliffWalking-v1:horizon=3", 0.0)
    # −1 a step and −100 for a step off the cliff, which leads back to the start: none, one, two or three falls
    assert sorted({round(score / 99, 6) for score in graph.scores.tolist()}) == [0.0, 1.0, 2.0, 3.0]
    assert len(graph.labels) == len(set(graph.labels))


def test_several_starts_are_drawn_by_a_first_step() -> None:
    graph = gym_graph("Taxi-v4:horizon=1", 0.0)
    assert graph.valid_actions[0].tolist() == [True] + [False] * 5
    assert int(graph.possible[0].sum()) == 300
    assert float(graph.dynamics[0, 0].sum()) == pytest.approx(1.0)
    assert math.isclose(float(object_log_probs(graph, uniform(graph)).exp().sum()), 1.0, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("NoSuchLake-v1", "gymnasium cannot make 'NoSuchLake-v1'"),
        ("FrozenLake-v1:map_name=9x9", "gymnasium cannot make"),
        ("FrozenLake-v1:horizon=0", "horizon=20"),
        ("FrozenLake-v1:horizon", "is not understood"),
        ("CartPole-v1:horizon=5", "no table of its transitions"),
        ("FrozenLake-v1:horizon=3:horizon=5", "says twice what horizon is"),
        ("FrozenLake-v1:horizon=3:is_slippery=perhaps", "either true or false, not 'perhaps'"),
        ("FrozenLake-v1:horizon=3:desc=[", "is no value"),
        ("FrozenLake-v1:horizon=3:desc=[[]]", "gymnasium cannot make"),
        ("FrozenLake-v1:horizon=1001", "may have 1,001 steps, and 1,000 is the most"),
    ],
)
def test_what_cannot_be_unrolled_is_refused(parameters: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        gym_graph(parameters, 0.0)


@pytest.mark.parametrize("limit", ["MAX_ENTRIES", "MAX_FEATURES"])
def test_an_environment_that_grows_too_large_is_refused_while_it_grows(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"stochflow.environments.graphs.graph.{limit}", 1000)
    monkeypatch.setattr(
        "stochflow.environments.graphs.world._graph", lambda *_: pytest.fail("it was unrolled to the end")
    )
    with pytest.raises(ConfigError, match=r"'gym:FrozenLake-v1:horizon=30' is too large for tables"):
        gym_graph("FrozenLake-v1:horizon=30", 0.0)


def test_noise_of_our_own_is_refused() -> None:
    with pytest.raises(ConfigError, match="environment's own"):
        gym_graph(LAKE, 0.2)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("stochflow.core.extras.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'stochflow\[gym\]'"):
        gym_graph(LAKE, 0.0)
