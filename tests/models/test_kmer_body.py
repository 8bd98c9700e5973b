"""The body: one pass over a batch must equal every prefix on its own, however it is evaluated."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stochflow.models.kmer_body import MAX_BUCKETS, PrefixBody, num_rows
from stochflow.models.kmers import Kmers

NUM_TOKENS, LENGTH, WIDTH = 3, 5, 8


KINDS = [(1,), (3,), (1, 2, 4), (1, 3, 5), Kmers((1,), (2, 3), (1, 2, 4)), Kmers((1,), recent=(5,))]


def make_body(kmers: tuple[int, ...] | Kmers = (1, 2, 4), length: int = LENGTH, seed: int = 0) -> PrefixBody:
    body = PrefixBody(NUM_TOKENS, length, kmers, WIDTH, num_layers=2)
    body.initialise(torch.Generator().manual_seed(seed))
    return body.double()


def all_sequences(length: int = LENGTH) -> Tensor:
    return torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=length)))


@pytest.mark.parametrize("kmers", KINDS, ids=str)
def test_one_pass_equals_each_prefix_alone(kmers: tuple[int, ...] | Kmers) -> None:
    body, tokens = make_body(kmers), all_sequences()
    sums = body.prefix_states(tokens)
    assert sums.shape == (NUM_TOKENS**LENGTH, LENGTH + 1, WIDTH)
    for depth in range(LENGTH + 1):
        cut = body.prefix_states(tokens[:, :depth])[:, -1]
        picked = body.states_at(tokens, torch.full((len(tokens),), depth))
        torch.testing.assert_close(cut, sums[:, depth])
        torch.testing.assert_close(picked, sums[:, depth])


@pytest.mark.parametrize("kmers", KINDS, ids=str)
def test_extending_token_by_token_equals_one_pass(kmers: tuple[int, ...] | Kmers) -> None:
    body, tokens = make_body(kmers), all_sequences()
    sums = body.prefix_states(tokens)
    grown = body.start.expand(len(tokens), -1)
    for depth in range(1, LENGTH + 1):
        grown = body.extend(grown, tokens[:, :depth])
        torch.testing.assert_close(grown, sums[:, depth])


def test_rows_of_one_batch_may_have_different_depths(generator: torch.Generator) -> None:
    body, tokens = make_body(), all_sequences()
    depths = torch.randint(LENGTH + 1, (len(tokens),), generator=generator)
    expected = body.prefix_states(tokens)[torch.arange(len(tokens)), depths]
    torch.testing.assert_close(body.states_at(tokens, depths), expected)


@pytest.mark.parametrize("kmers", KINDS, ids=str)
def test_bags_say_which_embeddings_are_added_up(kmers: tuple[int, ...] | Kmers, generator: torch.Generator) -> None:
    body, tokens = make_body(kmers), all_sequences()
    depths = torch.randint(LENGTH + 1, (len(tokens),), generator=generator)
    bags = body.bags(tokens.numpy(), depths.numpy())
    assert bags.shape == (len(tokens), body.embedding.num_embeddings)
    assert set(bags.data) == {1.0}
    found = torch.from_numpy(bags @ body.embedding.weight.detach().numpy()) + body.start
    torch.testing.assert_close(found, body.states_at(tokens, depths))
    for time in (0, 2):  # shorter than the longest k-mer
        whole = torch.full((len(tokens),), time)
        found = torch.from_numpy(body.bags(tokens[:, :time].numpy(), whole.numpy()).toarray()) @ body.embedding.weight
        torch.testing.assert_close(found + body.start, body.states_at(tokens, whole))


def test_bags_of_hashed_kmers_are_those_of_the_sums(generator: torch.Generator) -> None:
    body = PrefixBody(20, 4, (1, 4), WIDTH, num_layers=1)
    tokens = torch.randint(20, (50, 4), generator=generator)
    depths = torch.full((50,), 4)
    found = torch.from_numpy(body.bags(tokens.numpy(), depths.numpy()).toarray()) @ body.embedding.weight + body.start
    torch.testing.assert_close(found, body.states_at(tokens, depths))


def test_single_letters_sum_to_a_one_hot_matrix_product() -> None:
    body, tokens = make_body((1,)), all_sequences()
    one_hot = functional.one_hot(tokens, NUM_TOKENS).double().flatten(1)
    matrix = body.embedding.weight[1:]  # row 0 is padding
    assert matrix.shape == (LENGTH * NUM_TOKENS, WIDTH)
    torch.testing.assert_close(body.prefix_states(tokens)[:, -1], one_hot @ matrix + body.start)


def test_every_kmer_at_every_position_has_a_row_of_its_own() -> None:
    body, tokens = make_body((1, 2, 4)), all_sequences()
    rows = body.kmer_indices(tokens)
    seen: dict[int, tuple[int, int, tuple[int, ...]]] = {}
    for sequence, per_position in zip(tokens.tolist(), rows.tolist(), strict=True):
        for position, per_kmer in enumerate(per_position):
            for k, row in zip((1, 2, 4), per_kmer, strict=True):
                if k > position + 1:
                    assert row == 0
                else:
                    meaning = (k, position, tuple(sequence[position - k + 1 : position + 1]))
                    assert seen.setdefault(row, meaning) == meaning
    num_kmers = 5 * 3 + 4 * 3**2 + 2 * 3**4
    assert len(seen) == len(set(seen.values())) == num_kmers
    assert body.embedding.num_embeddings == num_kmers + 1


def test_future_tokens_do_not_change_a_prefix(generator: torch.Generator) -> None:
    body, tokens = make_body(), all_sequences()
    for depth in range(LENGTH):
        other = tokens.clone()
        other[:, depth:] = torch.randint(NUM_TOKENS, other[:, depth:].shape, generator=generator)
        assert torch.equal(body.prefix_states(tokens)[:, : depth + 1], body.prefix_states(other)[:, : depth + 1])
        depths = torch.full((len(tokens),), depth)
        assert torch.equal(body.states_at(tokens, depths), body.states_at(other, depths))


def test_distinct_prefixes_have_distinct_features() -> None:
    body = make_body((1,))
    features = body.features(body.prefix_states(all_sequences(3))).flatten(0, 1)
    num_prefixes = 1 + 3 + 9 + 27
    assert len(features.round(decimals=4).unique(dim=0)) == num_prefixes


def test_kmers_longer_than_the_sequence_are_left_out() -> None:
    body = make_body((1, 9), length=3)
    assert body.kmers == (1,)
    assert body.prefix_states(all_sequences(3)).shape == (27, 4, WIDTH)


def test_a_vast_number_of_kmers_shares_a_bounded_table() -> None:
    body = PrefixBody(20, 4, (1, 4), WIDTH, num_layers=1)
    assert body.embedding.num_embeddings == 1 + 4 * 20 + MAX_BUCKETS
    tokens = torch.full((1, 4), 19)
    assert body.kmer_indices(tokens).max().item() < body.embedding.num_embeddings
    torch.testing.assert_close(body.states_at(tokens, torch.tensor([4])), body.prefix_states(tokens)[:, -1])


def test_a_hashed_kmer_still_sees_its_oldest_letter() -> None:
    body = PrefixBody(4, 7, (7,), WIDTH, num_layers=1)
    tokens = torch.zeros(4, 7, dtype=torch.int64)
    tokens[:, 0] = torch.arange(4)
    assert len(body.kmer_indices(tokens)[:, -1].unique()) == 4


def test_the_padding_row_stays_zero_and_untrained() -> None:
    body, tokens = make_body(), all_sequences()
    assert not body.embedding.weight[0].any()
    for sums in (body.prefix_states(tokens), body.states_at(tokens, torch.full((len(tokens),), 2))):
        body.zero_grad()
        sums.square().sum().backward()
        assert not body.embedding.weight.grad[0].any()
        assert body.embedding.weight.grad[1:].any()


def test_the_empty_prefix_is_trained() -> None:
    body = make_body()
    body.features(body.prefix_states(all_sequences())[:, 0]).square().sum().backward()
    assert body.start.grad.abs().max().item() > 1e-3
    assert not body.embedding.weight.grad.any()  # it holds no letter


def test_features_of_a_prefix_do_not_depend_on_its_batch() -> None:
    body = make_body()
    sums = body.prefix_states(all_sequences())
    torch.testing.assert_close(body.features(sums)[7, 3], body.features(sums[7, 3]))


def test_the_same_seed_draws_the_same_weights_whatever_the_global_state() -> None:
    torch.manual_seed(1)
    first = make_body().state_dict()
    torch.manual_seed(2)
    again = make_body().state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = make_body(seed=1).state_dict()
    drawn = {"start", "embedding.weight", "layers.0.weight", "layers.1.weight"}
    assert {name for name in first if not torch.equal(first[name], other[name])} == drawn


def test_initialising_leaves_the_global_random_state_alone() -> None:
    body = make_body()
    before = torch.get_rng_state()
    body.initialise(torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_children_are_the_prefixes_one_letter_longer() -> None:
    body, tokens = make_body(Kmers((1,), (2,), (1, 3))), all_sequences()
    children = body.child_states(tokens)
    for letter in range(NUM_TOKENS):
        for depth in range(LENGTH):
            grown = torch.cat([tokens[:, :depth], torch.full((len(tokens), 1), letter)], dim=1)
            expected = body.states_at(grown, torch.full((len(tokens),), depth + 1))
            torch.testing.assert_close(children[:, depth, letter], expected)


def test_kmers_anywhere_are_counted_and_recent_ones_are_those_of_the_last_letter() -> None:
    body = make_body(Kmers((), anywhere=(2,)), length=4)
    states = body.prefix_states(torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]])) - body.start
    torch.testing.assert_close(states[0, 2], states[1, 3] - states[1, 2])  # 01 at other places
    body = make_body(Kmers((1,), recent=(2,)), length=4)
    with torch.no_grad():
        body.embedding.weight[1 : 1 + 4 * NUM_TOKENS] = 0.0  # those of single letters
    states = body.prefix_states(torch.tensor([[0, 1, 2, 0], [2, 2, 2, 0]]))
    torch.testing.assert_close(states[0, 4], states[1, 4])  # both end with 20
    assert not torch.equal(states[0, 3], states[1, 3])


def test_no_two_tables_share_a_row() -> None:
    kmers = Kmers((1, 2), (1, 2), (1, 3))
    body, tokens = make_body(kmers), all_sequences()
    depths = torch.full((len(tokens),), LENGTH)
    used = sum(body.bags(tokens.numpy(), (depths - cut).numpy()).sum(axis=0) for cut in range(LENGTH + 1))
    assert body.embedding.num_embeddings == num_rows(NUM_TOKENS, LENGTH, kmers) == 1 + 15 + 36 + 3 + 9 + 3 + 27
    assert (used[0, 1:] > 0).all()
    assert used[0, 0] == 0
