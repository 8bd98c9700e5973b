"""Flows of where a path goes on, and of all the places where it might have gone."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.environments.channels import uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.state_flows import Paths, path_flows
from stochflow.sampling.trajectories import Trajectories
from tests.objectives.stubs import sequence_learner


def make_learner(network: FlowNetwork) -> SequenceLearner:
    reward = Reward(beta=3.0, floor=1e-6, ramp=10.0)
    return sequence_learner(network, uniform_slip(3, 0.5), resolve([{}]), reward=reward)


def trajectories(outcomes: Tensor) -> Trajectories:
    valid = torch.ones_like(outcomes, dtype=torch.bool)
    return Trajectories(outcomes, outcomes, valid, torch.ones(len(outcomes)).double(), torch.zeros(outcomes.shape))


def flows_of(log_flow: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    nothing = torch.zeros(valid.shape, dtype=torch.int64)
    return path_flows(log_flow, Paths(nothing, nothing, valid, torch.tensor([-1.0, -2.0], dtype=torch.float64)))


def test_the_reward_is_the_flow_at_the_end() -> None:
    given = torch.tensor([[9.0, 1.0, 2.0], [9.0, 3.0, 4.0]])
    log_flow, log_next_flow = flows_of(given, torch.ones(2, 3, dtype=torch.bool))
    assert torch.equal(log_flow, given)
    assert torch.equal(log_next_flow, torch.tensor([[1.0, 2.0, -1.0], [3.0, 4.0, -2.0]]))


def test_an_episode_that_ends_early_has_its_reward_from_there_on() -> None:
    given = torch.tensor([[9.0, torch.nan, torch.nan], [9.0, 3.0, torch.nan]])
    valid = torch.tensor([[True, False, False], [False, True, False]])  # and one that begins late
    log_flow, log_next_flow = flows_of(given, valid)
    assert torch.equal(log_flow, torch.tensor([[9.0, -1.0, -1.0], [9.0, 3.0, -2.0]]))
    assert torch.equal(log_next_flow, torch.tensor([[-1.0, -1.0, -1.0], [3.0, -2.0, -2.0]]))


@pytest.fixture
def network(generator: torch.Generator) -> FlowNetwork:
    """Three tokens, four steps, no two prefixes alike."""
    network = FlowNetwork(3, 4, (1, 2), 16, 1)
    network.initialise(generator)
    with torch.no_grad():
        for head in (network.policy_head, network.backward_head, network.flow_head):
            head.weight.normal_(generator=generator)
    return network.double()


def flow_alone(network: FlowNetwork, prefix: list[int]) -> float:
    with torch.no_grad():
        return network.evaluate(AtPrefixes(torch.tensor([prefix], dtype=torch.int64))).heads().log_flow[0, -1].item()


def test_child_flows_equal_each_child_alone(network: FlowNetwork, generator: torch.Generator) -> None:
    outcomes = torch.randint(3, (5, 4), generator=generator)
    before = outcomes.clone()
    flows = make_learner(network).child_flows(trajectories(outcomes), 0)
    assert torch.equal(outcomes, before)
    assert not flows.requires_grad  # targets, which must not be pulled towards what they judge
    expected = [
        [[flow_alone(network, [*row[:depth], token]) for token in range(3)] for depth in range(4)]
        for row in outcomes.tolist()
    ]
    torch.testing.assert_close(flows, torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=0)


def test_paid_leaves_count_their_reward_and_unpaid_ones_the_network(network: FlowNetwork) -> None:
    learner = make_learner(network)
    learner.memory.pay(torch.tensor([[0, 1, 2, 1], [2, 2, 2, 2]]), lambda tokens: tokens.double()[:, 0] + 0.5)
    flows = learner.child_flows(trajectories(torch.tensor([[0, 1, 2, 0]])), step=10)
    beta = 2.0  # halfway up the ramp
    assert flows[0, 3, 1].item() == pytest.approx(beta * math.log(0.5), abs=1e-6)
    for token in (0, 2):
        assert flows[0, 3, token].item() == pytest.approx(flow_alone(network, [0, 1, 2, token]), abs=1e-9)
