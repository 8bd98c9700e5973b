"""The conditional sampler reads the support as a set, and a copy of it belongs to one task."""

import torch

from stochflow.config.context import PretrainingConfig
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.training.conditional import ConditionalSampler, Support

SETTINGS = PretrainingConfig(context_width=8, context_heads=2, context_layers=1)


def make_sampler() -> ConditionalSampler:
    network = FlowNetwork(3, 4, kmers=(1, 2), width=16, num_layers=1, context_width=8)
    sampler = ConditionalSampler(network, SETTINGS)
    sampler.initialise(torch.Generator().manual_seed(0))
    return sampler


def supports(generator: torch.Generator) -> Support:
    return Support(
        torch.randint(3, (2, 10, 4), generator=generator), torch.rand(2, 10, generator=generator, dtype=torch.float64)
    )


def test_the_order_of_a_support_does_not_matter_but_its_scores_do(generator: torch.Generator) -> None:
    sampler, support = make_sampler(), supports(generator)
    context = sampler.context(support)
    assert context.shape == (2, 8)
    shuffled = Support(support.tokens.flip(1), support.scores.flip(1))
    torch.testing.assert_close(sampler.context(shuffled), context)
    mismatched = sampler.context(Support(support.tokens, support.scores.flip(1)))
    assert (mismatched - context).abs().max().item() > 0.01


def test_a_given_network_is_the_sampler_under_that_context(generator: torch.Generator) -> None:
    sampler, support = make_sampler(), supports(generator)
    with torch.no_grad():
        for weight in sampler.network.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    tokens = torch.randint(3, (2, 4), generator=generator)
    expected = sampler.network.evaluate(AtPrefixes(tokens, context=sampler.context(support))).heads().log_policy
    for row in range(2):
        network = sampler.given(Support(support.tokens[row], support.scores[row]))
        torch.testing.assert_close(network.evaluate(AtPrefixes(tokens)).heads().log_policy[row], expected[row])
    assert (expected[0] - expected[1]).abs().max().item() > 0.01


def test_a_given_network_shares_no_weight_with_the_sampler(generator: torch.Generator) -> None:
    sampler, support = make_sampler(), supports(generator)
    network = sampler.given(Support(support.tokens[0], support.scores[0]))
    with torch.no_grad():
        for weight in network.parameters():
            weight.fill_(7.0)
    assert not any((weight == 7.0).all() for weight in sampler.parameters())
    assert not sampler.network.context.any()
