"""Critics: targets and losses worked out by hand, and slow copies that follow."""

import math

import pytest
import torch

from stochflow.models.flow_network import FlowNetwork
from stochflow.models.q_network import ActionValues
from stochflow.objectives.baselines.critics import Critics, bellman_targets, critic_loss


@pytest.fixture
def network(generator: torch.Generator) -> FlowNetwork:
    network = FlowNetwork(3, 4, (1, 2), 16, 1)
    network.initialise(generator)
    return network


@pytest.fixture
def critics(network: FlowNetwork, generator: torch.Generator) -> Critics:
    """Two critics that disagree."""
    critics = Critics(network, 2, 1.0, generator)
    with torch.no_grad():
        for name, weight in critics.fast.named_parameters():
            if "head" in name:
                weight.normal_(generator=generator)
    return critics


def test_a_step_aims_at_the_value_of_its_successor_and_the_last_one_at_the_reward() -> None:
    targets = bellman_targets(torch.tensor([[9.0, 1.0, 2.0]]), torch.tensor([5.0], dtype=torch.float64))
    assert targets.tolist() == [[1.0, 2.0, 5.0]]


def test_hand_worked_critic_loss() -> None:
    values = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]], [[[0.0, 1.0], [5.0, 9.0]]]], requires_grad=True)
    intentions, targets = torch.tensor([[1, 0]]), torch.tensor([[0.0, 1.0]], requires_grad=True)
    # first critic: (2 − 0)² and (3 − 1)²; second: (1 − 0)² and (5 − 1)²; the mean over two steps of each
    loss = critic_loss(values, intentions, targets, torch.tensor([[True, True]]))
    assert loss.item() == pytest.approx(4.0 + 8.5)
    assert critic_loss(values, intentions, targets, torch.tensor([[True, False]])).item() == pytest.approx(5.0)
    loss.backward()
    assert targets.grad is None
    assert values.grad is not None
    assert (values.grad != 0).nonzero()[:, 2:].tolist() == [[0, 1], [1, 0]] * 2


def test_critics_start_from_the_entropy_of_the_steps_that_follow(
    network: FlowNetwork, generator: torch.Generator
) -> None:
    critic = ActionValues(network, temperature=2.0)
    critic.initialise(generator)
    values = critic(torch.zeros(1, 4, dtype=torch.int64))
    expected = 2.0 * math.log(3.0) * torch.tensor([3.0, 2.0, 1.0, 0.0]).view(1, 4, 1).expand(1, 4, 3)
    torch.testing.assert_close(values, expected)


def test_a_value_sees_the_letters_before_it_and_none_after(critics: Critics) -> None:
    first, second = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[0, 1, 0, 1]])
    there, here = critics(first), critics(second)
    torch.testing.assert_close(there[:, :, :3], here[:, :, :3])
    assert (there[:, :, 3] - here[:, :, 3]).abs().min() > 0


def test_slow_copies_move_a_share_of_the_way_and_take_no_gradient(critics: Critics) -> None:
    tokens = torch.tensor([[0, 1, 2, 0]])
    start = [weight.clone() for weight in critics.slow.parameters()]
    critics.follow(0.25)
    for before, slow, fast in zip(start, critics.slow.parameters(), critics.fast.parameters(), strict=True):
        torch.testing.assert_close(slow, before + 0.25 * (fast.detach() - before))
        assert not slow.requires_grad
        assert fast.requires_grad
    critics.follow(1.0)
    values = critics(tokens)
    assert (values[0] - values[1]).abs().min() > 0
    torch.testing.assert_close(critics.slow_values(tokens), values.amin(dim=0))
