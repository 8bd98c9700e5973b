"""What must hold on every graph: the laws of tests/tasks/test_enumerable.py, whatever the policy has learned."""

import math

import pytest
import torch
from stochflow.evaluation.graph_truth import draw_objects
from stochflow.experiments.graph_build import GraphExperiment, build_graph_experiment, graph_methods

from stochflow.experiments.launch import resolve_config
from stochflow.truth.dag import terminal_log_probs
from stochflow.truth.prefix_tree import kl_to_target

TINY = {
    "model": {"width": 8, "num_layers": 0},
    "optimiser": {"batch_size": 64, "updates": 2, "replay_size": 64},
    "budget": {"steps": 2},
}
NUM_DRAWS = 4000
CASES = [
    *(("hypergrid:2,4", method) for method in graph_methods(blind=True)),
    ("hypergrid:3,3", "sgfn-kl"),
    ("hypergrid:1,5", "sgfn-kl"),
]
CASES += [("gym:FrozenLake-v1:horizon=6", method) for method in ("sgfn-kl", "sgfn-db", "random")]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def trained(request: pytest.FixtureRequest) -> GraphExperiment:
    task, method = request.param
    experiment = build_graph_experiment(resolve_config([TINY, {"task": task, "method": method}]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment


def test_the_exact_distribution_sums_to_one(trained: GraphExperiment) -> None:
    log_probs = terminal_log_probs(trained.graph, trained.log_policy)
    assert len(log_probs) == trained.graph.num_objects
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(trained.truth.attainable.log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-9)


def test_the_exact_distribution_agrees_with_sampling(trained: GraphExperiment) -> None:
    graph, log_policy = trained.graph, trained.log_policy
    log_probs = terminal_log_probs(graph, log_policy)
    sampled = draw_objects(graph, log_policy, NUM_DRAWS, torch.Generator().manual_seed(0))
    torch.testing.assert_close(log_probs[sampled.objects], sampled.log_probs)
    # the mean of any function of the object, here its score, its surprise and its number, within five standard errors
    for values in (graph.scores, log_probs, torch.arange(graph.num_objects, dtype=torch.float64)):
        mean = float(log_probs.exp() @ values)
        error = math.sqrt(float(log_probs.exp() @ (values - mean).square()) / NUM_DRAWS)
        assert float(values[sampled.objects].mean()) == pytest.approx(mean, abs=5 * error + 1e-9)


def test_no_policy_beats_the_optimum(trained: GraphExperiment) -> None:
    truth, best = trained.truth, trained.truth.attainable
    assert kl_to_target(best.log_probs, truth.log_rewards) == pytest.approx(best.min_kl, abs=1e-6)
    judged = trained.judge()
    assert judged["regret"] >= 0.0
    assert judged["regret"] == pytest.approx(judged["kl"] - best.min_kl)


def test_scores_are_rewards_to_be(trained: GraphExperiment) -> None:
    scores = trained.graph.scores
    assert bool(torch.isfinite(scores).all())
    assert float(scores.min()) >= 0.0
    if float(scores.max()) > 0.0:  # six steps across the slippery lake may lead to the goal
        assert trained.graph.mode_threshold < float(scores.max())
