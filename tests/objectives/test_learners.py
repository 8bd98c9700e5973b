"""What an objective reads of a run on a graph: flows of children, P̂ along paths, remembered batches."""

import math
from dataclasses import replace

import pytest
import torch

from stochflow.environments.graphs.environment import longest, nodes_on
from stochflow.environments.rewards import Reward
from stochflow.objectives.learners import GraphLearner
from stochflow.sampling.trajectories import Trajectories
from tests.objectives.graph_flows import scramble
from tests.small_tasks import graph_experiment, graph_learner


@pytest.fixture
def run() -> tuple[GraphLearner, Trajectories]:
    """A learner of which nothing is paid for yet, halfway up the ramp of its reward after ten steps, and a batch."""
    experiment = graph_experiment(channel={"noise": 0.3})
    batch = experiment.trainer.collect()
    learner = replace(graph_learner(experiment), reward=Reward(beta=3.0, floor=1e-6, ramp=10.0))
    scramble(learner.network)
    learner.memory.paid.zero_()
    return learner, batch


def test_flows_of_children_are_shared_out_among_parents(run: tuple[GraphLearner, Trajectories]) -> None:
    learner, batch = run
    children = learner.network.children_along(batch.outcomes, batch.valid)
    assert children.log_parent is not None
    assert float(children.log_parent[batch.valid].min()) < -0.1
    flows = learner.child_flows(batch, step=10)
    torch.testing.assert_close(flows, children.log_flow + children.log_parent)
    assert not flows.requires_grad


def test_a_paid_object_counts_its_reward_and_an_unpaid_one_the_network(run: tuple[GraphLearner, Trajectories]) -> None:
    learner, batch = run
    graph = learner.environment.graph
    before = learner.child_flows(batch, step=10)
    learner.memory.paid[0] = True  # the root itself, where an episode may stop at once
    after = learner.child_flows(batch, step=10)
    stop = graph.num_outcomes - 1
    beta = 2.0  # halfway up the ramp
    expected = torch.full((len(batch),), beta * math.log(float(graph.scores[0])))
    torch.testing.assert_close(after[:, 0, stop], expected)  # an object has one parent: p_B is one
    changed = (before != after)[batch.valid]
    states = nodes_on(graph, batch.outcomes, batch.valid)[:, :-1][batch.valid]
    assert set(states[changed.any(dim=-1)].tolist()) == {0}
    assert changed.any(dim=0).tolist() == [False, False, True]


def test_the_dynamics_along_paths_are_those_of_each_state(run: tuple[GraphLearner, Trajectories]) -> None:
    learner, batch = run
    log_dynamics = learner.log_dynamics(batch)
    states = nodes_on(learner.environment.graph, batch.outcomes, batch.valid)[:, :-1]
    expected = learner.dynamics.table()[states[batch.valid]].clamp_min(1e-30).log().float()
    torch.testing.assert_close(log_dynamics[batch.valid], expected)
    assert bool(log_dynamics.isfinite().all())


def test_remembered_batches_are_no_longer_than_their_longest_episode(run: tuple[GraphLearner, Trajectories]) -> None:
    learner, batch = run
    updates = learner.config.optimiser.updates
    replayed = list(learner.replayed(batch))
    assert len(replayed) == updates > 1
    for each in replayed:
        assert each.valid.shape[1] == longest(each.valid) <= learner.environment.max_steps
    assert torch.equal(replayed[0].outcomes, batch.outcomes[:, : longest(batch.valid)])
