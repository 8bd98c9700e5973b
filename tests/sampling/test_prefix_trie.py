"""The trie against a Python set of prefixes."""

import itertools
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.sampling.prefix_trie import PrefixTrie

NUM_TOKENS, LENGTH = 3, 4
SEQUENCE = st.tuples(*[st.integers(0, NUM_TOKENS - 1)] * LENGTH)
BATCHES = st.lists(st.lists(SEQUENCE, max_size=12), max_size=4)
Batches = list[list[tuple[int, ...]]]


def as_tensor(batch: list[tuple[int, ...]]) -> Tensor:
    return torch.tensor(batch, dtype=torch.int64).reshape(len(batch), LENGTH)


def build(batches: Batches) -> PrefixTrie:
    trie = PrefixTrie(NUM_TOKENS, LENGTH)
    for batch in batches:
        trie.insert(as_tensor(batch))
    return trie


def prefixes_of(batches: Batches, depth: int) -> set[tuple[int, ...]]:
    """Distinct prefixes of one length; the empty one is always there."""
    return {sequence[:depth] for batch in batches for sequence in batch} | ({()} if depth == 0 else set())


@given(BATCHES)
def test_a_prefix_is_found_exactly_when_it_was_inserted(batches: Batches) -> None:
    trie = build(batches)
    for depth in range(LENGTH + 1):
        everything = list(itertools.product(range(NUM_TOKENS), repeat=depth))
        nodes = trie.find(torch.tensor(everything, dtype=torch.int64).reshape(len(everything), depth)).tolist()
        found = {prefix: node for prefix, node in zip(everything, nodes, strict=True) if node >= 0}
        assert set(found) == prefixes_of(batches, depth)
        # the nodes of a level are numbered without gaps or repeats
        assert sorted(found.values()) == list(range(len(found)))


@given(BATCHES)
def test_the_number_of_nodes_is_that_of_distinct_prefixes(batches: Batches) -> None:
    trie = build(batches)
    assert trie.num_nodes == sum(len(prefixes_of(batches, depth)) for depth in range(LENGTH + 1))
    assert len(trie) == len(prefixes_of(batches, LENGTH))
    for depth in range(1, LENGTH):
        assert trie.children[depth].shape == (len(prefixes_of(batches, depth)), NUM_TOKENS)


@given(BATCHES)
def test_insert_returns_where_each_sequence_is_stored(batches: Batches) -> None:
    trie = PrefixTrie(NUM_TOKENS, LENGTH)
    for batch in batches:
        sequences = as_tensor(batch)
        indices = trie.insert(sequences)
        assert torch.equal(trie.sequences[indices], sequences)
        assert torch.equal(trie.find(sequences), indices)
    assert len(trie.sequences.unique(dim=0)) == len(trie)


@given(BATCHES.filter(lambda batches: any(batches)))
def test_the_example_of_a_node_starts_with_its_prefix(batches: Batches) -> None:
    trie = build(batches)
    for depth in range(LENGTH + 1):
        examples = trie.sequences[trie.examples[depth]]
        assert torch.equal(trie.find(examples[:, :depth]), torch.arange(len(prefixes_of(batches, depth))))


@given(BATCHES, st.randoms(use_true_random=False))
def test_neither_order_nor_batching_changes_what_is_stored(batches: Batches, random: Random) -> None:
    sequences = [sequence for batch in batches for sequence in batch]
    shuffled = sequences.copy()
    random.shuffle(shuffled)
    at_once, one_by_one = build([shuffled]), build([[sequence] for sequence in sequences])
    assert at_once.num_nodes == one_by_one.num_nodes
    assert set(map(tuple, at_once.sequences.tolist())) == set(map(tuple, one_by_one.sequences.tolist()))
    # following the children from any example leads to the same sequences
    for sequence in one_by_one.sequences:
        assert torch.equal(at_once.sequences[at_once.find(sequence[None])], sequence[None])


@given(BATCHES)
def test_inserting_again_changes_nothing(batches: Batches) -> None:
    trie, once = build(batches + batches[::-1]), build(batches)
    assert torch.equal(trie.sequences, once.sequences)
    for again, first in zip(trie.children + trie.examples, once.children + once.examples, strict=True):
        assert torch.equal(again, first)


@given(BATCHES)
def test_what_was_stored_keeps_its_index_when_more_arrives(batches: Batches) -> None:
    trie = PrefixTrie(NUM_TOKENS, LENGTH)
    for batch in batches:
        before = trie.sequences
        trie.insert(as_tensor(batch))
        assert torch.equal(trie.sequences[: len(before)], before)


def test_a_step_follows_one_token_and_a_lost_node_stays_lost() -> None:
    trie = build([[(0, 1, 2, 0), (0, 2, 2, 0)]])
    first = trie.step(torch.tensor([0, 0]), torch.tensor([0, 1]), 0)
    assert first.tolist() == [0, -1]
    second = trie.step(torch.tensor([0, 0, -1]), torch.tensor([1, 0, 1]), 1)
    assert torch.equal(second, torch.tensor([trie.find(torch.tensor([[0, 1]])).item(), -1, -1]))


def test_an_empty_trie_holds_the_empty_prefix_only() -> None:
    trie = PrefixTrie(NUM_TOKENS, LENGTH)
    assert (len(trie), trie.num_nodes) == (0, 1)
    assert trie.find(torch.zeros(2, 0, dtype=torch.int64)).tolist() == [0, 0]
    assert trie.find(torch.zeros(2, LENGTH, dtype=torch.int64)).tolist() == [-1, -1]


@pytest.mark.parametrize("num_sequences", [100, 400])
def test_a_vast_space_costs_no_more_than_what_was_stored(num_sequences: int, generator: torch.Generator) -> None:
    length = 60  # 4^60 sequences do not even have an int64 code
    trie = PrefixTrie(4, length)
    sequences = torch.randint(4, (num_sequences, length), generator=generator)
    indices = trie.insert(sequences)
    assert torch.equal(trie.sequences[indices], sequences)
    assert trie.num_nodes <= num_sequences * length + 1
    assert sum(level.numel() for level in trie.children) <= 4 * trie.num_nodes


@given(BATCHES, BATCHES)
def test_a_restored_trie_has_the_same_numbering_and_goes_on_growing(first: Batches, more: Batches) -> None:
    original, restored = build(first), PrefixTrie(NUM_TOKENS, LENGTH)
    restored.load_state_dict({name: table.clone() for name, table in original.state_dict().items()})
    for batch in more:
        assert torch.equal(restored.insert(as_tensor(batch)), original.insert(as_tensor(batch)))
    for mine, other in zip(restored.children + restored.examples, original.children + original.examples, strict=True):
        assert torch.equal(mine, other)


def test_a_saved_state_does_not_change_when_the_trie_grows() -> None:
    trie, restored = build([[(0, 1, 2, 0)]]), PrefixTrie(NUM_TOKENS, LENGTH)
    saved = trie.state_dict()
    trie.insert(as_tensor([(1, 1, 1, 1)]))
    restored.load_state_dict(saved)
    assert restored.find(as_tensor([(0, 1, 2, 0), (1, 1, 1, 1)])).tolist() == [0, -1]


def test_a_restored_trie_does_not_write_into_the_state_it_came_from() -> None:
    saved = build([[(0, 1, 2, 0)]]).state_dict()
    first, second = PrefixTrie(NUM_TOKENS, LENGTH), PrefixTrie(NUM_TOKENS, LENGTH)
    first.load_state_dict(saved)
    first.insert(as_tensor([(1, 1, 1, 1), (0, 1, 1, 1)]))
    second.load_state_dict(saved)
    assert second.find(as_tensor([(0, 1, 2, 0), (1, 1, 1, 1), (0, 1, 1, 1)])).tolist() == [0, -1, -1]
