"""What must hold on every graph, whatever the policy has learned; of sequences `test_enumerable.py` says the same."""

import math

import pytest
import torch

from stochflow.config.methods import METHODS
from stochflow.environments.channels import uniform_slip
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.rewards import Reward
from stochflow.evaluation.samples import draw
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.truth.prefix_tree import kl_to_target
from stochflow.truth.truth import GraphTruth, SequenceTruth, truth_of
from tests.small_tasks import graph_experiment, scored_environment

TINY = {
    "model": {"width": 8, "num_layers": 0},
    "optimiser": {"batch_size": 64, "updates": 2, "replay_size": 64},
    "budget": {"steps": 2},
}
NUM_DRAWS = 4000
CASES = [
    *(("hypergrid:2,4", name) for name, method in METHODS.items() if method.objective.graphs),
    ("hypergrid:3,3", "sgfn-kl"),
    ("hypergrid:1,5", "sgfn-kl"),
]
CASES += [("gym:FrozenLake-v1:horizon=6", method) for method in ("sgfn-kl", "sgfn-db", "random")]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def trained(request: pytest.FixtureRequest) -> Experiment:
    task, method = request.param
    experiment = build(resolve_config([TINY, {"task": task, "method": method}]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment


def truth_and_graph(trained: Experiment) -> tuple[GraphTruth, Graph]:
    assert isinstance(trained.truth, GraphTruth)
    return trained.truth, trained.truth.environment.graph


def test_the_exact_distribution_sums_to_one(trained: Experiment) -> None:
    truth, graph = truth_and_graph(trained)
    log_probs = truth.log_probs(trained.policy)
    assert len(log_probs) == graph.num_objects
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(truth.attainable.log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-9)


def test_the_exact_distribution_agrees_with_sampling(trained: Experiment) -> None:
    truth, graph = truth_and_graph(trained)
    log_probs = truth.log_probs(trained.policy)
    sampled = draw(trained.policy, trained.environment, NUM_DRAWS, torch.Generator().manual_seed(0))
    torch.testing.assert_close(log_probs[sampled.made], sampled.log_probs)
    assert torch.equal(graph.scores[sampled.made], sampled.scores)
    # the mean of any function of the object, here its score, its surprise and its number, within five standard errors
    for values in (graph.scores, log_probs, torch.arange(graph.num_objects, dtype=torch.float64)):
        mean = float(log_probs.exp() @ values)
        error = math.sqrt(float(log_probs.exp() @ (values - mean).square()) / NUM_DRAWS)
        assert float(values[sampled.made].mean()) == pytest.approx(mean, abs=5 * error + 1e-9)


def test_no_policy_beats_the_optimum(trained: Experiment) -> None:
    truth, _ = truth_and_graph(trained)
    best = truth.attainable
    assert kl_to_target(best.log_probs, truth.log_rewards) == pytest.approx(best.min_kl, abs=1e-6)
    evaluated = trained.evaluate()
    assert evaluated["regret"] >= 0.0
    assert evaluated["regret"] == pytest.approx(evaluated["kl"] - best.min_kl)


def test_scores_are_rewards_to_be(trained: Experiment) -> None:
    _, graph = truth_and_graph(trained)
    scores = graph.scores
    assert bool(torch.isfinite(scores).all())
    assert float(scores.min()) >= 0.0
    if float(scores.max()) > 0.0:  # six steps across the slippery lake may lead to the goal
        assert graph.mode_threshold < float(scores.max())


REWARD = Reward(beta=1.0, floor=1e-6, ramp=0.0)


def test_every_environment_has_the_truth_of_its_family_if_it_can_be_enumerated() -> None:
    assert isinstance(truth_of(graph_experiment().environment, REWARD), GraphTruth)
    small = scored_environment(uniform_slip(2, 0.1), 3)
    assert isinstance(truth_of(small, REWARD), SequenceTruth)
    small.enumerable = False
    assert truth_of(small, REWARD) is None
