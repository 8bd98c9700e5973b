"""Self-attention blocks against attention written out by hand, with a cache, and with dropout."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stochflow.models.attention import Block
from stochflow.models.initialisation import initialise_linears

WIDTH, HEADS, TIME = 6, 2, 4


@pytest.fixture
def block(generator: torch.Generator) -> Block:
    made = Block(WIDTH, HEADS)
    initialise_linears(made, generator)
    return made.double()


@pytest.fixture
def hidden(generator: torch.Generator) -> Tensor:
    return torch.randn(3, TIME, WIDTH, generator=generator, dtype=torch.float64)


def by_hand(block: Block, hidden: Tensor, visible: Tensor) -> Tensor:
    """The block head by head and query by query."""
    queries, keys, values = block.projections(block.attention_norm(hidden)).chunk(3, dim=-1)
    attended = torch.zeros_like(hidden)
    size = WIDTH // HEADS
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        logits = queries[..., part] @ keys[..., part].transpose(-1, -2) / size**0.5
        weights = logits.masked_fill(~visible, -torch.inf).softmax(dim=-1)
        attended[..., part] = weights @ values[..., part]
    hidden = hidden + block.mix(attended)
    return hidden + block.contract(functional.gelu(block.expand(block.feed_norm(hidden))))


def test_a_block_is_attention_by_hand_and_a_feed_forward(block: Block, hidden: Tensor) -> None:
    everything = torch.ones(TIME, TIME, dtype=torch.bool)
    torch.testing.assert_close(block(hidden), by_hand(block, hidden, everything))
    torch.testing.assert_close(block(hidden, causal=True), by_hand(block, hidden, everything.tril()))
    torch.testing.assert_close(block(hidden, everything.triu()), by_hand(block, hidden, everything.triu()))


def test_stepping_with_the_cache_equals_the_causal_pass(block: Block, hidden: Tensor) -> None:
    expected = block(hidden, causal=True)
    cache = hidden.new_empty(3, 0, 2 * WIDTH)
    for time in range(TIME):
        output, cache = block.step(hidden[:, time], cache)
        assert cache.shape == (3, time + 1, 2 * WIDTH)
        torch.testing.assert_close(output, expected[:, time])


def test_dropout_keeps_the_mean_of_a_branch(generator: torch.Generator) -> None:
    branch = torch.ones(200_000)
    dropped = Block(WIDTH, HEADS, dropout=0.25)._dropped(branch, generator)
    values = dropped.unique()
    torch.testing.assert_close(values, torch.tensor([0.0, 4 / 3]))
    # five standard errors: an entry has variance (4/3)²·0.25·0.75
    assert dropped.mean().item() == pytest.approx(1.0, abs=5 * (4 / 3) * (0.1875 / 200_000) ** 0.5)


def test_linear_layers_start_within_their_bound_and_without_bias(block: Block) -> None:
    assert 0.9 * WIDTH**-0.5 < block.expand.weight.abs().max().item() <= WIDTH**-0.5
    assert 0.9 * (4 * WIDTH) ** -0.5 < block.contract.weight.abs().max().item() <= (4 * WIDTH) ** -0.5
    assert not block.projections.bias.any()
