"""What several rows share is computed once, and nothing changes by it."""

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.core.random import RandomStreams
from stochflow.environments.channels import Channel, noiseless, uniform_slip
from stochflow.models.engine.prefix_evaluation import EngineHeads
from stochflow.models.engine.prefix_layout import SMALL_BATCH, PrefixTree, all_prefixes, num_complete_levels
from stochflow.models.evaluation import AlongPaths, AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.kmer_body import PrefixBody
from stochflow.models.kmers import Kmers
from stochflow.models.prefix_sampler import NetworkSampler, RecordingSampler
from stochflow.sampling.rollout import rollout
from tests.small_tasks import scored_environment

K, LENGTH = 3, 5


LONG = Kmers((1,), (2,), (1, 3))


@pytest.fixture(params=[((1, 3), False), ((1, 3), True), (LONG, False)], ids=["residual", "plain", "recent"])
def network(request: pytest.FixtureRequest, generator: torch.Generator) -> FlowNetwork:
    """No two prefixes alike, in double precision."""
    kmers, plain = request.param
    made = FlowNetwork(K, LENGTH, kmers, 8, 2, plain=plain)
    made.initialise(generator)
    assert isinstance(made.body, PrefixBody)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=0.5, generator=generator)
        made.body.embedding.weight[0] = 0.0  # pads
    return made.double()


def one_by_one(network: FlowNetwork, tokens: Tensor) -> list[Tensor]:
    """Heads at every prefix by autograd alone."""
    network.use_engine = False
    heads = network.evaluate(AtPrefixes(tokens)).heads()
    network.use_engine = True
    return list(heads)


def gradients(network: FlowNetwork, outputs: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    loss = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
    return list(torch.autograd.grad(loss, list(network.parameters()), allow_unused=False))  # type: ignore[arg-type]


# -- the tree


def test_a_tree_holds_each_prefix_once_and_knows_whose_it_is(generator: torch.Generator) -> None:
    tokens = torch.randint(K, (SMALL_BATCH * 4, LENGTH), generator=generator)
    tree = PrefixTree.of(tokens, K)
    for depth in range(LENGTH + 1):
        nodes = tree.node_tokens(depth)
        assert torch.equal(nodes[tree.which[depth]], tokens[:, :depth])
        assert len(nodes) == tree.sizes[depth]
        if depth and not np.array_equal(tree.which[depth], np.arange(len(tokens))):
            assert len(nodes.unique(dim=0)) == len(nodes)
            assert torch.equal(tree.node_tokens(depth - 1)[tree.parents[depth - 1]], nodes[:, :-1])
    assert tree.sizes[:3] == [1, K, K**2]


def test_rows_that_all_differ_have_a_node_each() -> None:
    tokens = all_prefixes(K, 4, torch.device("cpu"))[: 2 * SMALL_BATCH]
    tree = PrefixTree.of(tokens, K)
    assert tree.parted
    assert tree.sizes[-1] == len(tokens)


def test_complete_levels_hold_prefixes_that_nobody_visited() -> None:
    tree = PrefixTree(K, 2, torch.device("cpu"), num_complete=2)
    for column in ([0, 2], [1, 1], [2, 0]):
        tree.advance(np.array(column))
    assert tree.sizes == [1, 3, 9, 2]
    assert torch.equal(tree.node_tokens(2)[tree.which[2]], torch.tensor([[0, 1], [2, 1]]))
    assert torch.equal(tree.node_tokens(3), torch.tensor([[0, 1, 2], [2, 1, 0]]))
    assert tree.parents[2].tolist() == [1, 7]


@pytest.mark.parametrize(("batch_size", "expected"), [(1, 0), (4, 1), (16, 2), (64, 2), (128, 3), (10**6, 7)])
def test_complete_levels_are_smaller_than_the_batch(batch_size: int, expected: int) -> None:
    assert num_complete_levels(4, 8, batch_size) == expected


def test_one_letter_needs_no_complete_levels() -> None:
    assert num_complete_levels(1, 8, 100) == 0


# -- the network on a tree


def assert_same(network: FlowNetwork, made: list[Tensor], tokens: Tensor, generator: torch.Generator) -> None:
    """Outputs and gradients as autograd finds them row by row."""
    expected = one_by_one(network, tokens)
    weights = [torch.randn(output.shape, generator=generator, dtype=torch.float64) for output in made]
    for one, other in zip(expected, made, strict=True):
        torch.testing.assert_close(other, one, atol=1e-12, rtol=0)
    both = zip(gradients(network, made, weights), gradients(network, expected, weights), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("batch_size", [1, 2, SMALL_BATCH, 5 * SMALL_BATCH])
def test_shared_prefixes_change_neither_outputs_nor_gradients(
    network: FlowNetwork, batch_size: int, generator: torch.Generator
) -> None:
    tokens = torch.randint(K, (batch_size, LENGTH), generator=generator)
    assert_same(network, list(network.evaluate(AtPrefixes(tokens)).heads()), tokens, generator)


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("batch_size", [5, 16, 3 * SMALL_BATCH])
@pytest.mark.parametrize("channel", [noiseless(K), uniform_slip(K, 0.4)], ids=["noiseless", "slip"])
def test_what_sampling_computed_serves_the_loss(
    network: FlowNetwork, batch_size: int, leaves: bool, channel: Channel, generator: torch.Generator
) -> None:
    sampler = network.recording_sampler(batch_size)
    walk = rollout(scored_environment(channel, LENGTH), sampler, batch_size, RandomStreams(0))
    assert isinstance(sampler, RecordingSampler)
    assert sampler.evaluation.covers(walk.outcomes)
    evaluation = network.evaluate(AlongPaths(walk.outcomes, walk.valid, "learned" if leaves else None, ends=leaves))
    assert isinstance(evaluation, EngineHeads)
    assert evaluation._engine is sampler.evaluation
    evaluation._arrange = lambda heads, allowed: heads  # type: ignore[assignment,return-value]  # every prefix
    tokens = walk.outcomes if leaves else walk.outcomes[:, :-1]
    assert_same(network, list(evaluation.heads()), tokens, generator)


def test_what_sampling_computed_is_used_once_and_only_for_its_own_batch(network: FlowNetwork) -> None:
    def sampled() -> tuple[RecordingSampler, AlongPaths]:
        sampler = network.recording_sampler(6)
        walk = rollout(scored_environment(noiseless(K), LENGTH), sampler, 6, RandomStreams(0))
        assert isinstance(sampler, RecordingSampler)
        return sampler, AlongPaths(walk.outcomes, walk.valid)

    def engine_of(where: AlongPaths) -> object:
        evaluation = network.evaluate(where)
        assert isinstance(evaluation, EngineHeads)
        return evaluation._engine

    sampler, where = sampled()
    assert engine_of(where) is sampler.evaluation
    assert engine_of(where) is not sampler.evaluation
    sampler, where = sampled()
    other = where._replace(outcomes=where.outcomes.flip(0).contiguous().roll(1, dims=1))
    assert engine_of(other) is not sampler.evaluation
    sampler, where = sampled()
    before = sampler.evaluation
    network.evaluate(where).heads().log_flow.sum().backward()  # now the weights are about to move
    assert not before.is_current
    assert not before.covers(where.outcomes)


def test_the_sampler_draws_the_same_whether_it_records_or_not(network: FlowNetwork) -> None:
    walks = [
        rollout(scored_environment(uniform_slip(K, 0.3), LENGTH), sampler(network, 40), 40, RandomStreams(3))
        for sampler in (NetworkSampler, RecordingSampler)
    ]
    assert torch.equal(walks[0].outcomes, walks[1].outcomes)
    assert torch.equal(walks[0].intentions, walks[1].intentions)


def test_what_is_too_large_is_not_kept(network: FlowNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = 4 * LENGTH * 8
    monkeypatch.setattr("stochflow.models.flow_network._MAX_RECORDED", numbers)
    assert isinstance(network.recording_sampler(4), RecordingSampler)
    assert isinstance(network.recording_sampler(5), NetworkSampler)


def test_without_the_engine_nothing_is_kept(network: FlowNetwork) -> None:
    network.use_engine = False
    assert isinstance(network.recording_sampler(4), NetworkSampler)
