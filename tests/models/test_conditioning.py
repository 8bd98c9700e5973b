"""The context reaches every head and the dynamics, row by row, and without one nothing is different."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stochflow.models.conditioning import Conditioner
from stochflow.models.dynamics.tabular import DynamicsModel
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork, Heads
from stochflow.models.prefix_sampler import NetworkSampler

NUM_TOKENS, LENGTH, WIDTH, CONTEXT = 3, 4, 8, 5


def fresh_network(context_width: int = CONTEXT) -> FlowNetwork:
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1, 3), WIDTH, num_layers=1, context_width=context_width)
    network.initialise(torch.Generator().manual_seed(0))
    return network.double()


def shake(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Move every weight away from where it started, as training does."""
    with torch.no_grad():
        for weight in module.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)


@pytest.fixture
def network(generator: torch.Generator) -> FlowNetwork:
    trained = fresh_network()
    shake(trained, generator)
    trained.body.embedding.weight.data[0] = 0.0  # the padding row is never trained
    return trained


@pytest.fixture
def tokens() -> Tensor:
    return torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=LENGTH)))


@pytest.fixture
def contexts(tokens: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(len(tokens), CONTEXT, generator=generator, dtype=torch.float64)


def test_a_conditional_network_starts_with_the_weights_and_outputs_of_the_plain_one(
    tokens: Tensor, contexts: Tensor, generator: torch.Generator
) -> None:
    plain, conditional = fresh_network(context_width=0), fresh_network()
    shared = plain.state_dict()
    assert all(torch.equal(conditional.state_dict()[name], value) for name, value in shared.items())
    assert {name.split(".")[0] for name in conditional.state_dict().keys() - shared.keys()} == {
        "conditioner",
        "context",
    }
    # a policy that reads the features, the same in both
    torch.nn.init.normal_(plain.policy_head.weight, generator=generator)
    conditional.policy_head.load_state_dict(plain.policy_head.state_dict())
    expected = plain.evaluate(AtPrefixes(tokens)).heads().log_policy
    torch.testing.assert_close(conditional.evaluate(AtPrefixes(tokens, context=contexts)).heads().log_policy, expected)


def test_every_head_reads_the_context_of_its_own_row(network: FlowNetwork, tokens: Tensor, contexts: Tensor) -> None:
    before = network.evaluate(AtPrefixes(tokens, context=contexts)).heads()
    contexts = contexts.clone()
    contexts[7] += 1.0
    after = network.evaluate(AtPrefixes(tokens, context=contexts)).heads()
    for name in Heads._fields:
        moved = (getattr(after, name) - getattr(before, name)).reshape(len(tokens), LENGTH + 1, -1).abs().amax(dim=-1)
        assert moved[7].min().item() > 1e-6
        assert not moved[torch.arange(len(tokens)) != 7].any()


def test_one_pass_equals_each_prefix_alone_under_its_context(
    network: FlowNetwork, tokens: Tensor, contexts: Tensor
) -> None:
    together = network.evaluate(AtPrefixes(tokens, context=contexts)).heads()
    for depth in range(LENGTH + 1):
        alone = network.evaluate(AtPrefixes(tokens, torch.full((len(tokens),), depth), contexts)).heads()
        for name in Heads._fields:
            torch.testing.assert_close(getattr(alone, name), getattr(together, name)[:, depth])


def test_the_networks_own_context_stands_in_for_one_that_is_not_given(
    network: FlowNetwork, tokens: Tensor, contexts: Tensor
) -> None:
    expected = network.evaluate(AtPrefixes(tokens, context=contexts[3])).heads().log_policy
    levels = list(network.tree_log_policies(contexts[3]))
    assert not torch.allclose(network.evaluate(AtPrefixes(tokens)).heads().log_policy, expected)
    network.context.copy_(contexts[3])
    torch.testing.assert_close(network.evaluate(AtPrefixes(tokens)).heads().log_policy, expected)
    for own, given in zip(network.tree_log_policies(), levels, strict=True):
        torch.testing.assert_close(own, given)


def test_log_z_is_the_flow_of_the_empty_prefix_under_each_context(
    network: FlowNetwork, tokens: Tensor, contexts: Tensor
) -> None:
    torch.testing.assert_close(
        network.log_z(contexts), network.evaluate(AtPrefixes(tokens, context=contexts)).heads().log_flow[:, 0]
    )
    assert network.log_z(contexts).std().item() > 1e-3


def test_a_sampler_follows_the_policy_of_each_rows_context(
    network: FlowNetwork, tokens: Tensor, contexts: Tensor
) -> None:
    expected = network.evaluate(AtPrefixes(tokens, context=contexts)).heads().log_policy
    sampler = NetworkSampler(network, len(tokens), contexts)
    for depth in range(LENGTH):
        torch.testing.assert_close(torch.from_numpy(sampler.log_policy()), expected[:, depth])
        sampler.advance(tokens[:, depth].numpy())


def test_the_context_scales_and_shifts_what_is_read(generator: torch.Generator) -> None:
    conditioner = Conditioner(2, 1).double()
    with torch.no_grad():
        for layer in (conditioner.read, conditioner.write):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        # A = (1, 0), B = (0, 3)
        conditioner.modulation.weight.copy_(torch.tensor([[1.0], [0.0], [0.0], [3.0]]))
        conditioner.modulation.bias.zero_()
    features = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    after = conditioner(features, torch.tensor([[2.0]], dtype=torch.float64))
    # 0.5·(1 + 2) = 1.5 and −1 + 3·2 = 5
    expected = features + functional.gelu(torch.tensor([[1.5, 5.0]], dtype=torch.float64))
    torch.testing.assert_close(after, expected)


def test_gradients_of_the_conditioner_are_those_of_finite_differences(generator: torch.Generator) -> None:
    conditioner = Conditioner(WIDTH, CONTEXT).double()
    conditioner.initialise(generator)
    shake(conditioner, generator)
    features = torch.randn(2, 3, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    context = torch.randn(2, CONTEXT, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(conditioner, (features, context))


@pytest.mark.parametrize("depends_on", ["intention", "position", "state"])
def test_the_dynamics_read_the_context_of_their_own_row(
    depends_on: str, tokens: Tensor, contexts: Tensor, generator: torch.Generator
) -> None:
    dynamics = DynamicsModel(NUM_TOKENS, LENGTH, depends_on, CONTEXT)
    dynamics.initialise(generator)
    dynamics = dynamics.double()
    uniform = torch.full((len(tokens), LENGTH, NUM_TOKENS, NUM_TOKENS), 1 / NUM_TOKENS, dtype=torch.float64).log()
    torch.testing.assert_close(dynamics.log_matrices(tokens, contexts), uniform)
    shake(dynamics, generator)
    together = dynamics.log_matrices(tokens, contexts)
    torch.testing.assert_close(together.logsumexp(dim=-1), torch.zeros_like(together[..., 0]))
    for depth in range(LENGTH):
        alone = dynamics.log_matrices_at(tokens, torch.full((len(tokens),), depth), contexts)
        torch.testing.assert_close(alone, together[:, depth])
    contexts = contexts.clone()
    contexts[7] += 1.0
    moved = (dynamics.log_matrices(tokens, contexts) - together).abs().amax(dim=(1, 2, 3))
    assert moved[7].item() > 1e-3
    assert int((moved > 0).sum()) == 1


def test_dynamics_under_their_own_context_stay_one_table_for_all(tokens: Tensor, generator: torch.Generator) -> None:
    dynamics = DynamicsModel(NUM_TOKENS, LENGTH, "position", CONTEXT)
    dynamics.initialise(generator)
    dynamics.context.normal_(generator=generator)
    shake(dynamics, generator)
    assert dynamics.log_matrices(tokens).shape == (1, LENGTH, NUM_TOKENS, NUM_TOKENS)
    given = dynamics.log_matrices(tokens, dynamics.context.expand(len(tokens), -1))
    torch.testing.assert_close(dynamics.log_matrices(tokens).expand_as(given), given)


def test_a_context_for_models_without_one_is_refused(tokens: Tensor, contexts: Tensor) -> None:
    with pytest.raises(ValueError, match="network was built without a context"):
        fresh_network(context_width=0).evaluate(AtPrefixes(tokens, context=contexts)).heads()
    with pytest.raises(ValueError, match="dynamics model was built without a context"):
        DynamicsModel(NUM_TOKENS, LENGTH, "state").log_matrices(tokens, contexts)
