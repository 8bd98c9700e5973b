"""The three heads: where they start, that one pass equals the tree, and that the root learns."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork, Heads
from stochflow.models.kmers import Kmers

NUM_TOKENS, LENGTH = 3, 4


def fresh_network(seed: int = 0) -> FlowNetwork:
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1, 3), width=16, num_layers=2)
    network.initialise(torch.Generator().manual_seed(seed))
    return network.double()


@pytest.fixture
def network(generator: torch.Generator) -> FlowNetwork:
    """A network whose heads have left zero, as after training."""
    trained = fresh_network()
    with torch.no_grad():
        for head in (trained.policy_head, trained.backward_head, trained.flow_head):
            head.weight.normal_(generator=generator)
            head.bias.normal_(generator=generator)
    return trained


@pytest.fixture
def tokens() -> Tensor:
    """All sequences in lexicographic order, [81, 4]."""
    return torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=LENGTH)))


def test_both_policies_start_uniform(tokens: Tensor) -> None:
    heads = fresh_network().evaluate(AtPrefixes(tokens)).heads()
    uniform = torch.full((len(tokens), LENGTH + 1, NUM_TOKENS), -math.log(NUM_TOKENS), dtype=torch.float64)
    torch.testing.assert_close(heads.log_policy, uniform)
    torch.testing.assert_close(heads.log_backward, uniform)


def test_log_flow_starts_from_the_number_of_completions(tokens: Tensor) -> None:
    network = fresh_network()
    expected = torch.tensor([81.0, 27.0, 9.0, 3.0, 1.0], dtype=torch.float64).log()
    torch.testing.assert_close(network.evaluate(AtPrefixes(tokens)).heads().log_flow, expected.expand(len(tokens), -1))
    torch.testing.assert_close(network.evaluate(AtPrefixes(tokens[:5], torch.arange(5))).heads().log_flow, expected)


def test_one_pass_equals_each_prefix_alone(network: FlowNetwork, tokens: Tensor) -> None:
    together = network.evaluate(AtPrefixes(tokens)).heads()
    for depth in range(LENGTH + 1):
        alone = network.evaluate(AtPrefixes(tokens, torch.full((len(tokens),), depth))).heads()
        for name in Heads._fields:
            torch.testing.assert_close(getattr(alone, name), getattr(together, name)[:, depth])


def test_future_tokens_do_not_change_a_prefix_but_past_ones_do(network: FlowNetwork, tokens: Tensor) -> None:
    heads = network.evaluate(AtPrefixes(tokens)).heads()
    changed = tokens.clone()
    changed[:, 2] = (changed[:, 2] + 1) % NUM_TOKENS
    after = network.evaluate(AtPrefixes(changed)).heads()
    for name in Heads._fields:
        assert torch.equal(getattr(after, name)[:, :3], getattr(heads, name)[:, :3])
        differences = (getattr(after, name)[:, 3:] - getattr(heads, name)[:, 3:]).reshape(len(tokens), -1)
        assert (differences.abs().amax(dim=-1) > 1e-6).all()


def test_the_tree_sweep_agrees_with_one_pass_over_all_sequences(network: FlowNetwork, tokens: Tensor) -> None:
    heads = network.evaluate(AtPrefixes(tokens)).heads()
    levels = list(network.tree_log_policies())
    assert [level.shape for level in levels] == [(NUM_TOKENS**depth, NUM_TOKENS) for depth in range(LENGTH)]
    for depth, level in enumerate(levels):
        below = NUM_TOKENS ** (LENGTH - depth)  # sequences under one prefix
        torch.testing.assert_close(level.repeat_interleave(below, dim=0), heads.log_policy[:, depth].detach())


@pytest.mark.parametrize("size", [1, 16 * NUM_TOKENS, 16 * NUM_TOKENS * 4, 16 * NUM_TOKENS * 5])
def test_the_tree_may_be_swept_in_blocks_of_any_size(
    size: int, network: FlowNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OddLast:
        """Forbids one letter after prefixes that end in an odd one: what is allowed must follow its prefix."""

        def next(self, prefixes: Tensor) -> Tensor:
            ends = prefixes[:, -1] if prefixes.shape[1] else torch.zeros(len(prefixes))
            return ((ends % 2 == 1).unsqueeze(-1) & (torch.arange(NUM_TOKENS) == 0)).logical_not()

    network.mask = OddLast()  # type: ignore[assignment]  # a sweep asks for nothing else
    whole = list(network.tree_log_policies())
    monkeypatch.setattr("stochflow.models.flow_network._NEAR_BLOCK", size)
    for level, again in zip(whole, network.tree_log_policies(), strict=True):
        torch.testing.assert_close(again, level, atol=1e-12, rtol=0)
    assert float(whole[1][1, 0]) == pytest.approx(math.log(1e-30))


def test_the_tree_sweep_records_no_gradient_and_leaves_recording_on(network: FlowNetwork) -> None:
    for level in network.tree_log_policies():
        assert not level.requires_grad
        assert torch.is_grad_enabled()


def test_the_policy_from_sums_is_that_of_the_heads(network: FlowNetwork, tokens: Tensor) -> None:
    sums = network.body.prefix_states(tokens)
    torch.testing.assert_close(network.log_policy(sums), network.evaluate(AtPrefixes(tokens)).heads().log_policy)


def test_every_head_sends_a_gradient_to_the_empty_prefix(network: FlowNetwork, tokens: Tensor) -> None:
    for name in Heads._fields:
        network.zero_grad()
        root = getattr(network.evaluate(AtPrefixes(tokens[:1])).heads(), name)[0, 0]
        root.reshape(-1)[0].backward()
        assert network.body.start.grad.abs().max().item() > 1e-4


def test_the_empty_prefix_learns_a_policy_of_its_own(tokens: Tensor) -> None:
    network = fresh_network()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    wanted = torch.ones(len(tokens), LENGTH, dtype=torch.int64)
    wanted[:, 0] = 2
    for _ in range(60):
        log_policy = network.evaluate(AtPrefixes(tokens)).heads().log_policy[:, :-1]
        loss = functional.nll_loss(log_policy.flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    heads = network.evaluate(AtPrefixes(tokens)).heads()
    assert heads.log_policy[0, 0].exp()[2].item() > 0.9
    assert heads.log_policy[:, 1:-1].exp()[..., 1].min().item() > 0.9


def test_the_three_heads_do_not_share_weights(network: FlowNetwork, tokens: Tensor) -> None:
    before = network.evaluate(AtPrefixes(tokens)).heads()
    with torch.no_grad():
        network.policy_head.bias += torch.tensor([1.0, 0.0, 0.0])
    after = network.evaluate(AtPrefixes(tokens)).heads()
    assert not torch.allclose(after.log_policy, before.log_policy)
    assert torch.equal(after.log_backward, before.log_backward)
    assert torch.equal(after.log_flow, before.log_flow)


def test_policies_stay_finite_at_logits_of_ten_thousand(network: FlowNetwork, tokens: Tensor) -> None:
    with torch.no_grad():
        network.policy_head.bias.copy_(torch.tensor([1e4, -1e4, 0.0]))
    log_policy = network.float().evaluate(AtPrefixes(tokens)).heads().log_policy
    log_policy.sum().backward()
    assert torch.isfinite(log_policy).all()
    assert log_policy.min().item() < -1.9e4
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.policy_head.parameters())


def test_the_same_seed_makes_the_same_network_whatever_the_global_state() -> None:
    torch.manual_seed(1)
    first = fresh_network().state_dict()
    torch.manual_seed(2)
    again = fresh_network().state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["body.embedding.weight"], fresh_network(seed=1).state_dict()["body.embedding.weight"])


def test_initialising_leaves_the_global_random_state_alone() -> None:
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1, 3), width=16, num_layers=2)
    before = torch.get_rng_state()
    network.initialise(torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("plain", [False, True], ids=["residual", "plain"])
@pytest.mark.parametrize("kmers", [(1,), (2,), (1, 3), Kmers((1,), (2,), (1, 3))], ids=str)
def test_prefixes_of_any_depth_have_the_values_and_gradients_of_autograd(
    kmers: tuple[int, ...] | Kmers, plain: bool, tokens: Tensor, generator: torch.Generator
) -> None:
    network = FlowNetwork(NUM_TOKENS, LENGTH, kmers, width=8, num_layers=2, plain=plain).double()
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        network.get_parameter("body.embedding.weight")[0] = 0.0  # pads
    depths = torch.randint(LENGTH + 1, (len(tokens),), generator=generator)
    weights = [torch.randn(81, n, generator=generator, dtype=torch.float64) for n in (NUM_TOKENS, NUM_TOKENS, 1)]
    found = []
    for use_engine in (True, False):
        network.use_engine = use_engine
        heads = network.evaluate(AtPrefixes(tokens, depths)).heads()
        loss = sum((weight.squeeze(-1) * head).sum() for weight, head in zip(weights, heads, strict=True))
        assert isinstance(loss, Tensor)
        found.append((heads, torch.autograd.grad(loss, list(network.parameters()))))
    torch.testing.assert_close(found[0], found[1], atol=1e-9, rtol=1e-9)
    assert all(bool(gradient.any()) for gradient in found[0][1])


def test_flows_of_whole_rows_are_those_of_one_pass(network: FlowNetwork, tokens: Tensor) -> None:
    flows = network.evaluate(AtPrefixes(tokens)).heads().log_flow
    for depth in range(LENGTH + 1):
        torch.testing.assert_close(network.log_flow_of(tokens[:, :depth]), flows[:, depth])
    assert network.log_flow_of(tokens[:0]).shape == (0,)


def test_flows_of_many_letters_leave_out_the_other_heads(
    network: FlowNetwork, tokens: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stochflow.models.flow_network._MANY_LETTERS", 1)
    flows = network.evaluate(AtPrefixes(tokens)).heads().log_flow
    for depth in range(LENGTH + 1):
        torch.testing.assert_close(network.log_flow_of(tokens[:, :depth]), flows[:, depth])


def test_two_evaluations_at_once_do_not_write_over_each_other() -> None:
    network, generator = FlowNetwork(4, 5, (1, 2), 16, 2), torch.Generator().manual_seed(3)
    network.initialise(generator)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.1)
    one, other = (torch.randint(4, (3, 5), generator=generator) for _ in range(2))
    alone = [network.evaluated(one).row_outputs().numpy().copy(), network.evaluated(other).row_outputs().numpy().copy()]
    first, second = network.evaluated(one), network.evaluated(other)  # both stay alive
    assert not np.array_equal(*alone)
    for evaluation, expected in zip((first, second), alone, strict=True):
        np.testing.assert_array_equal(evaluation.rows(), expected)


def test_what_was_computed_for_the_last_batch_leaves_no_trace_in_the_next() -> None:
    network, generator = FlowNetwork(4, 5, (1, 2), 16, 2), torch.Generator().manual_seed(3)
    network.initialise(generator)
    large, small = (torch.randint(4, (size, 5), generator=generator) for size in (9, 2))
    expected = network.evaluated(small).row_outputs().numpy().copy()
    network.evaluated(large)
    np.testing.assert_array_equal(network.evaluated(small).row_outputs().numpy(), expected)


def test_a_copy_of_a_network_and_one_of_another_precision_have_buffers_of_their_own() -> None:
    network = FlowNetwork(4, 3, (1,), 8, 1)
    network.initialise(torch.Generator().manual_seed(0))
    tokens = torch.tensor([[0, 1, 2], [3, 3, 3]])
    before = network.evaluated(tokens).row_outputs().numpy().copy()
    copied = copy.deepcopy(network)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.add_(0.5)
    assert not np.allclose(copied.evaluated(tokens).row_outputs().numpy(), before)
    np.testing.assert_array_equal(network.evaluated(tokens).row_outputs().numpy(), before)
    np.testing.assert_allclose(network.double().evaluated(tokens).row_outputs().numpy(), before, rtol=1e-5, atol=1e-6)
