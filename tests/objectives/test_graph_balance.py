"""Balance is zero exactly where flows, policies and dynamics agree."""

import pytest
import torch
from stochflow.experiments.graph_build import build_graph_experiment
from stochflow.objectives.graph_balance import detailed_balance_loss, graph_steps, trajectory_balance_loss
from stochflow.objectives.graph_base import GraphLearner
from stochflow.sampling.graph_rollout import objects_of
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.experiments.launch import resolve_config
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.dag import node_visits, outcome_marginals

LOG_Z = 1.5


class BalancedNetwork:
    """Stands in for a network: uniform intentions, and the flows and backward policies that they make."""

    device = torch.device("cpu")

    def __init__(self, learner: GraphLearner, realised: bool) -> None:
        graph = learner.graph
        self._policies = graph.valid_actions / graph.valid_actions.sum(dim=-1, keepdim=True)
        # blind to noise: the world is believed to obey
        believed = torch.eye(graph.num_actions).double() * graph.valid_actions.unsqueeze(-1)
        dynamics = believed if realised else graph.dynamics
        self.visits = node_visits(graph, outcome_marginals(dynamics, self._policies.double()))
        steps = graph.parents.clamp_min(0)
        states, outcomes = steps // graph.num_outcomes, steps % graph.num_outcomes
        joint = self.visits[states].unsqueeze(-1) * self._policies[states] * dynamics[states, :, outcomes]
        joint = joint * (graph.parents >= 0).unsqueeze(-1)
        self._pairs = safe_log(joint / joint.sum(dim=(-2, -1), keepdim=True).clamp_min(1e-12))

    def hidden(self, nodes: Tensor) -> Tensor:
        return nodes

    def log_policy(self, hidden: Tensor, states: Tensor) -> Tensor:
        return safe_log(self._policies[states].double())

    def log_flow(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        return safe_log(self.visits[nodes]) + LOG_Z

    def log_backward(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        return self._pairs[nodes]


@pytest.mark.parametrize("loss", [detailed_balance_loss, trajectory_balance_loss])
@pytest.mark.parametrize("method", ["sgfn-db", "gfn-db"])
def test_balanced_flows_cost_nothing_and_others_something(loss: object, method: str) -> None:
    settings = {"task": "hypergrid:2,4", "method": method, "channel": {"noise": 0.4}, "optimiser": {"batch_size": 64}}
    learner = build_graph_experiment(resolve_config([settings])).trainer.learner
    batch = build_graph_experiment(resolve_config([settings])).trainer.collect()
    network = BalancedNetwork(learner, realised=method == "gfn-db")
    balanced = GraphLearner(**{**vars(learner), "network": network})
    # rewards such that the uniform policy is the solution
    log_rewards = safe_log(network.visits[learner.graph.num_states :]) + LOG_Z
    learner.graph.scores.copy_(log_rewards.exp())
    again = Trajectories(**{**vars(batch), "scores": _scores(balanced, batch)})
    steps = graph_steps(balanced, again, learner.graph.dynamics, step=0)
    log_reward = again.scores.log()
    value = loss(steps, log_reward, learner.config.objective)  # type: ignore[operator]
    assert float(value) == pytest.approx(0.0, abs=1e-9)
    other = Trajectories(**{**vars(again), "scores": 3.0 * again.scores})
    steps = graph_steps(balanced, other, learner.graph.dynamics, step=0)
    assert float(loss(steps, other.scores.log(), learner.config.objective)) > 0.1  # type: ignore[operator]


def _scores(learner: GraphLearner, batch: Trajectories) -> Tensor:
    return learner.graph.scores[objects_of(learner.graph, batch.outcomes, batch.valid)]


def test_the_backward_policy_gives_nothing_to_what_cannot_have_happened() -> None:
    """Otherwise every residual could be zero with flow that goes nowhere."""
    experiment = build_graph_experiment(resolve_config([{"task": "hypergrid:2,4", "channel": {"noise": 0.0}}]))
    network, graph = experiment.trainer.learner.network, experiment.graph
    nodes = torch.arange(graph.num_nodes)
    log_pairs = network.log_backward(network.hidden(nodes), nodes).detach()
    # without noise a parent's move has one intention, and a stopped walk one parent that meant to stop
    torch.testing.assert_close(log_pairs.exp()[1:].sum(dim=(-2, -1)), torch.ones(graph.num_nodes - 1))
    assert bool((log_pairs[graph.num_states :, 0, -1] == 0.0).all())
    corner = graph.labels.index("2,1")
    assert log_pairs[corner].exp().flatten().sort(descending=True).values[:2].tolist() == pytest.approx([0.5, 0.5])


def test_steps_after_the_end_do_not_count() -> None:
    settings = {"task": "hypergrid:2,4", "method": "sgfn-db", "optimiser": {"batch_size": 16}}
    trainer = build_graph_experiment(resolve_config([settings])).trainer
    batch = trainer.collect()
    dynamics = trainer.learner.graph.dynamics
    assert not bool(batch.valid.all())
    changed = torch.where(batch.valid, batch.outcomes, 0)
    intended = torch.where(batch.valid, batch.intentions, 1)
    other = Trajectories(**{**vars(batch), "outcomes": changed, "intentions": intended})
    losses = []
    for each in (batch, other):
        steps = graph_steps(trainer.learner, each, dynamics, step=0)
        losses.append(detailed_balance_loss(steps, each.scores.log(), trainer.learner.config.objective).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
