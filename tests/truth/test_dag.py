import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from benchmarks.min_tv import least_tv
from stochflow.core.logspace import masked_log_softmax
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.truth.dag import expected_values, graph_optimum, object_log_probs
from stochflow.truth.prefix_tree import kl_to_target, tv_to_target


def random_policy(graph: Graph, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(graph.valid_actions.shape, generator=generator, dtype=torch.float64)
    return masked_log_softmax(logits, graph.valid_actions)


def probability_by_paths(graph: Graph, log_policy: torch.Tensor, label: str) -> float:
    """Σ over all orders of moves, written out: M along each path, then stop."""
    marginals = torch.einsum("sa,sac->sc", log_policy.exp(), graph.dynamics)
    moves = [axis for axis, steps in enumerate(map(int, label.split(","))) for _ in range(steps)]
    total = 0.0
    for path in set(itertools.permutations(moves)):
        state, probability = 0, 1.0
        for axis in path:
            probability *= float(marginals[state, axis])
            state = int(graph.children[state, axis])
        total += probability * float(marginals[state, -1])
    return total


@pytest.mark.parametrize("label", ["0,0", "2,0", "2,1", "2,2"])
def test_the_terminal_distribution_is_the_sum_over_all_paths(label: str) -> None:
    graph = hypergrid("2,3", 0.4)
    log_policy = random_policy(graph, seed=1)
    log_probs = object_log_probs(graph, log_policy)
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-12)
    found = float(log_probs[list(graph.labels).index(label)].exp())
    assert found == pytest.approx(probability_by_paths(graph, log_policy, label), rel=1e-12)


def test_the_best_expected_score_is_that_of_the_best_fixed_choice() -> None:
    graph = hypergrid("1,4", 0.0)  # a line: walk to the best cell and stop
    values, after = expected_values(graph, graph.dynamics, graph.scores)
    assert float(values[0]) == pytest.approx(float(graph.scores.max()))
    assert after[graph.labels.index("3"), 0] == -torch.inf


def test_without_noise_the_target_is_reached() -> None:
    graph = hypergrid("3,3", 0.0)
    best = graph_optimum(graph, graph.scores.log())
    assert best.min_kl == 0.0
    assert tv_to_target(best.log_probs, graph.scores.log()) < 1e-6


def test_the_optimum_of_a_small_grid_agrees_with_another_solver() -> None:
    """All policies as logits, minimised by a quasi-Newton method that knows nothing of visits or posteriors."""
    graph = hypergrid("2,3", 0.8)
    log_reward = torch.full((9,), -6.0, dtype=torch.float64)
    log_reward[list(graph.labels).index("2,0")] = 0.0
    log_reward[list(graph.labels).index("1,2")] = -1.0

    def divergence(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        logits = torch.tensor(numbers).reshape(graph.valid_actions.shape).requires_grad_()
        log_policy = torch.log_softmax(logits.masked_fill(~graph.valid_actions, -1e9), dim=-1)
        log_probs = object_log_probs(graph, log_policy)
        kl = (log_probs.exp() * (log_probs - torch.log_softmax(log_reward, dim=0))).sum()
        kl.backward()
        return kl.item(), logits.grad.flatten().numpy()

    found = min(
        minimize(divergence, np.random.default_rng(seed).normal(size=27), jac=True, method="L-BFGS-B", tol=1e-14).fun
        for seed in range(3)
    )
    best = graph_optimum(graph, log_reward)
    assert best.min_kl > 0.1  # the noise is in the way
    assert best.kl == pytest.approx(found, abs=1e-6)
    assert best.min_kl == pytest.approx(best.kl, abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_no_policy_is_better_than_the_lower_bound(seed: int) -> None:
    graph = hypergrid("2,4", 0.6)
    log_reward = graph.scores.log()
    best = graph_optimum(graph, log_reward, max_sweeps=3)  # far from solved, and still a bound
    assert best.min_kl <= kl_to_target(object_log_probs(graph, random_policy(graph, seed)), log_reward)
    assert best.min_kl <= graph_optimum(graph, log_reward).kl + 1e-9


def test_the_published_grid_has_the_known_optima() -> None:
    """8 × 8, rewards of arXiv:2302.09465: at slip 0.25 the target is within reach, at 0.5 it is not."""
    reachable = hypergrid("", 0.25)
    best = graph_optimum(reachable, reachable.scores.log(), tolerance=1e-6)
    assert best.kl < 1e-6
    assert least_tv(reachable, reachable.scores.log()) == pytest.approx(0.0, abs=1e-9)
    noisy = hypergrid("", 0.5)
    best = graph_optimum(noisy, noisy.scores.log(), tolerance=1e-4)
    assert best.kl == pytest.approx(0.00585, abs=2e-5)
    assert tv_to_target(best.log_probs, noisy.scores.log()) == pytest.approx(0.0501, abs=2e-4)
    assert least_tv(noisy, noisy.scores.log()) == pytest.approx(0.0465, abs=5e-5)


def test_advances_are_what_is_left_to_gain() -> None:
    graph = hypergrid("2,3", 0.5)
    log_reward = graph.scores.log()
    best = graph_optimum(graph, log_reward, tolerance=1e-5)
    assert float(best.advances[0]) == pytest.approx(best.log_z - best.kl, abs=1e-9)
    objects = best.advances[graph.num_states :]
    torch.testing.assert_close(objects, log_reward - best.log_probs)


def test_a_start_that_is_the_solution_stays_it() -> None:
    graph = hypergrid("2,4", 0.5)
    best = graph_optimum(graph, graph.scores.log())
    again = graph_optimum(graph, graph.scores.log(), start=best.log_policy, max_sweeps=1)
    assert again.kl == pytest.approx(best.kl, abs=1e-10)
    assert math.isclose(again.min_kl, best.min_kl, abs_tol=1e-7)
