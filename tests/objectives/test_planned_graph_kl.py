"""What the planned objective on a graph teaches the flow head and π_B, beside the plan it learns from."""

import pytest
import torch

from stochflow.core.logspace import safe_log
from stochflow.experiments.experiment import Experiment
from stochflow.objectives.planned_graph_kl import PlannedGraphKL
from tests.small_tasks import graph_experiment


@pytest.fixture(scope="module")
def trained() -> Experiment:
    settings = {
        "channel": {"noise": 0.25},
        "optimiser": {"batch_size": 128, "updates": 16},
        "plan": {"every": 0.2},
        "budget": {"trajectories": 2048},
    }
    experiment = graph_experiment("hypergrid:2,4", **settings)
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment


def objective_of(experiment: Experiment) -> PlannedGraphKL:
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedGraphKL)
    return objective


def test_the_flow_of_a_state_is_what_the_plan_sends_through_it(trained: Experiment) -> None:
    objective = objective_of(trained)
    plan, graph = objective.plan, objective.learner.environment.graph
    assert plan is not None
    visits = plan.visits[: graph.num_states]
    expected = plan.advances[: graph.num_states] + safe_log(visits)
    found = objective.learner.network.log_flows(torch.arange(graph.num_states))
    assert float(visits[1:].max()) < 0.9  # so that leaving them out would show
    assert float((visits / visits.sum() * (found - expected).abs()).sum()) < 0.1


def test_the_flow_of_a_paid_object_is_its_reward(trained: Experiment) -> None:
    learner = objective_of(trained).learner
    graph = learner.environment.graph
    paid = learner.memory.paid.nonzero().squeeze(-1)
    found = learner.network.log_flows(paid + graph.num_states)
    expected = learner.reward.log_reward(graph.scores[paid])
    assert float(expected.std()) > 1.0
    assert float((found - expected).abs().mean()) < 0.3


def test_the_backward_policy_is_the_posterior_of_the_plan(trained: Experiment) -> None:
    objective = objective_of(trained)
    plan, graph, network = objective.plan, objective.learner.environment.graph, objective.learner.network
    assert plan is not None
    believed = objective.learner.dynamics.table()
    # every node with two parents
    nodes = torch.arange(1, graph.num_nodes)
    nodes = nodes[(graph.parents[nodes] >= 0).sum(dim=1) == 2]
    steps = graph.parents[nodes]
    states, outcomes = steps.clamp_min(0) // graph.num_outcomes, steps.clamp_min(0) % graph.num_outcomes
    joint = plan.visits[states].unsqueeze(-1) * plan.log_policy[states].exp() * believed[states, :, outcomes]
    joint = joint * (steps >= 0).unsqueeze(-1)
    shares = plan.visits[nodes] / plan.visits[nodes].sum()
    posterior = joint / joint.sum(dim=(-2, -1), keepdim=True)
    with torch.no_grad():
        log_pairs = network.log_backward(network.hidden(nodes), nodes).double()
    apart = (posterior - log_pairs.exp()).abs().sum(dim=(-2, -1)) / 2
    uniform = (posterior - (joint > 0) / (joint > 0).sum(dim=(-2, -1), keepdim=True)).abs().sum(dim=(-2, -1)) / 2
    assert float((shares * apart).sum()) < float((shares * uniform).sum()) / 3
