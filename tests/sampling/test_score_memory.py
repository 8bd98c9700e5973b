"""Every score is paid for once; an answer that cannot be used leaves no trace."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.core.errors import OracleError
from stochflow.environments.rewards import Reward
from stochflow.sampling.score_memory import ScoreMemory, checked_scores

NUM_TOKENS, LENGTH = 3, 3
SEQUENCE = st.tuples(*[st.integers(0, NUM_TOKENS - 1)] * LENGTH)
BATCHES = st.lists(st.lists(SEQUENCE, max_size=10), max_size=5)


class CountingOracle:
    """Score = the sequence read as a ternary number; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[int, ...]] = Counter()

    def __call__(self, sequences: Tensor) -> Tensor:
        self.asked.update(tuple(row) for row in sequences.tolist())
        return truth(sequences)


def truth(sequences: Tensor) -> Tensor:
    return (sequences * torch.tensor([9, 3, 1])).sum(dim=-1).double()


def as_tensor(batch: list[tuple[int, ...]]) -> Tensor:
    return torch.tensor(batch, dtype=torch.int64).reshape(len(batch), LENGTH)


def unreachable(sequences: Tensor) -> Tensor:
    raise AssertionError(f"asked for {sequences.tolist()}")


@pytest.fixture
def memory(generator: torch.Generator) -> ScoreMemory:
    """Three batches, with repeats inside and between them."""
    filled = ScoreMemory(NUM_TOKENS, LENGTH)
    for _ in range(3):
        filled.pay(torch.randint(NUM_TOKENS, (8, LENGTH), generator=generator), truth)
    return filled


@given(BATCHES)
def test_no_sequence_is_paid_for_twice(batches: list[list[tuple[int, ...]]]) -> None:
    memory, oracle = ScoreMemory(NUM_TOKENS, LENGTH), CountingOracle()
    for batch in batches:
        sequences, before = as_tensor(batch), memory.num_calls
        asks = memory.asks(sequences)
        assert torch.equal(memory.pay(sequences, oracle), truth(sequences))
        assert int(asks.sum()) == memory.num_calls - before
    distinct = {sequence for batch in batches for sequence in batch}
    assert oracle.asked == Counter(distinct)
    assert len(memory) == len(distinct)
    assert torch.equal(memory.scores, truth(memory.sequences))


def test_a_batch_of_known_sequences_does_not_reach_the_oracle(memory: ScoreMemory) -> None:
    known = memory.sequences.flip(0)
    assert torch.equal(memory.pay(known, unreachable), truth(known))


def test_lookup_pays_for_nothing_and_marks_what_is_unknown(memory: ScoreMemory) -> None:
    everything = as_tensor([(a, b, c) for a in range(3) for b in range(3) for c in range(3)])
    scores = memory.lookup(everything)
    known = (everything.unsqueeze(1) == memory.sequences).all(dim=-1).any(dim=-1)
    assert 0 < int(known.sum()) < 27
    assert torch.equal(scores[known], truth(everything)[known])
    assert scores[~known].isnan().all()


def raises(sequences: Tensor) -> Tensor:
    raise RuntimeError("the assay failed")


@pytest.mark.parametrize(
    ("oracle", "error"),
    [
        (raises, RuntimeError),
        (lambda sequences: truth(sequences)[:-1], OracleError),
        (lambda sequences: -1.0 - truth(sequences), OracleError),
        (lambda sequences: truth(sequences) * math.nan, OracleError),
        (lambda sequences: None, OracleError),
    ],
    ids=["raises", "one score short", "negative", "nan", "nothing"],
)
def test_a_failing_oracle_leaves_the_memory_as_it_was(
    memory: ScoreMemory, oracle: Callable[[Tensor], Tensor], error: type[Exception]
) -> None:
    sequences, scores, num_nodes = memory.sequences.clone(), memory.scores.clone(), memory.trie.num_nodes
    everything = as_tensor([(a, b, c) for a in range(3) for b in range(3) for c in range(3)])
    with pytest.raises(error):
        memory.pay(everything, oracle)
    assert torch.equal(memory.sequences, sequences)
    assert torch.equal(memory.scores, scores)
    assert memory.trie.num_nodes == num_nodes
    # and it can be asked again
    assert torch.equal(memory.pay(everything, truth), truth(everything))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1.0, math.nan], "returned nan for 1 of 2"),
        ([math.inf, math.inf], "returned inf for 2 of 2"),
        ([0.5, -0.1], "returned -0.1 for 1 of 2"),
        ([0.5], r"shape \(1,\) for 2 sequences"),
        ([0.5, 0.5, 0.5], r"shape \(3,\) for 2 sequences"),
        ([[0.5], [0.5]], r"shape \(2, 1\)"),
        (0.5, r"shape \(\)"),
        (None, "one number per sequence"),
        ("high", "one number per sequence"),
        ([0.5, "high"], "one number per sequence"),
        ({"score": 1.0}, "one number per sequence"),
        pytest.param([10**400, 1], "one number per sequence"),
    ],
)
def test_an_unusable_answer_is_an_oracle_error_that_says_why(answer: object, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        checked_scores(answer, 2)


@pytest.mark.parametrize(
    "answer",
    [
        [0, 1],
        (0.0, 1.0),
        np.array([0.0, 1.0], dtype=np.float32),
        torch.tensor([0, 1]),
        torch.tensor([0.0, 1.0], requires_grad=True),
    ],
    ids=["ints", "tuple", "numpy", "int tensor", "with gradient"],
)
def test_any_list_of_numbers_is_a_usable_answer(answer: object) -> None:
    scores = checked_scores(answer, 2)
    assert not scores.requires_grad
    assert torch.equal(scores, torch.tensor([0.0, 1.0], dtype=torch.float64))


def test_a_reloaded_memory_knows_the_same_scores(memory: ScoreMemory) -> None:
    restored = ScoreMemory(NUM_TOKENS, LENGTH)
    restored.pay(as_tensor([(2, 2, 2)]), lambda sequences: torch.full((1,), 99.0))  # what was there before is gone
    restored.load_state_dict(memory.state_dict())
    assert len(restored) == len(memory)
    assert restored.trie.num_nodes == memory.trie.num_nodes
    assert torch.equal(restored.pay(memory.sequences, unreachable), memory.scores)
    assert torch.equal(restored.scores, truth(restored.sequences))


def test_a_reloaded_memory_keeps_the_order_of_arrival(memory: ScoreMemory) -> None:
    restored = ScoreMemory(NUM_TOKENS, LENGTH)
    restored.load_state_dict(memory.state_dict())
    # the reward model takes the last rows for those that arrived since its fit
    assert torch.equal(restored.sequences, memory.sequences)
    assert torch.equal(restored.scores, memory.scores)


def test_an_oracle_that_scribbles_on_its_input_does_not_change_what_is_stored() -> None:
    def scribbles(sequences: Tensor) -> Tensor:
        scores = truth(sequences)
        sequences.zero_()
        return scores

    memory = ScoreMemory(NUM_TOKENS, LENGTH)
    memory.pay(as_tensor([(0, 1, 2), (2, 1, 0)]), scribbles)
    assert torch.equal(memory.lookup(as_tensor([(0, 1, 2), (2, 1, 0)])), torch.tensor([5.0, 21.0]).double())


REWARD = Reward(beta=3.0, floor=1e-3, ramp=0.0)


def test_a_noisy_oracle_is_asked_on_every_visit_and_its_rewards_are_averaged() -> None:
    memory = ScoreMemory(NUM_TOKENS, LENGTH, REWARD)
    x, y = (0, 1, 2), (2, 1, 0)
    answers = iter([[0.2, 0.6, 0.5], [1.0]])

    def noisy(sequences: Tensor) -> Tensor:
        return torch.tensor(next(answers))

    assert memory.pay(as_tensor([x, x, y]), noisy).tolist() == pytest.approx([0.2, 0.6, 0.5])
    assert memory.pay(as_tensor([x]), noisy).tolist() == [1.0]
    assert (len(memory), memory.num_calls) == (2, 4)
    mean = (0.2**3 + 0.6**3 + 1.0) / 3
    assert REWARD.log_reward(memory.lookup(as_tensor([x, y]))).exp().tolist() == pytest.approx([mean, 0.125])


def test_new_sequences_are_asked_for_at_their_first_row_and_noisy_ones_at_every_row() -> None:
    x, y = (0, 1, 2), (2, 1, 0)
    memory, noisy = ScoreMemory(NUM_TOKENS, LENGTH), ScoreMemory(NUM_TOKENS, LENGTH, REWARD)
    memory.pay(as_tensor([x]), truth)
    assert memory.asks(as_tensor([y, x, y, (1, 1, 1)])).tolist() == [True, False, False, True]
    assert noisy.asks(as_tensor([x, x])).tolist() == [True, True]


def test_the_floor_counts_in_the_mean() -> None:
    memory = ScoreMemory(NUM_TOKENS, LENGTH, REWARD)
    for score in (0.0, 0.5):
        memory.pay(as_tensor([(0, 0, 0)]), lambda sequences, score=score: torch.full((1,), score))
    assert float(REWARD.log_reward(memory.scores).exp()) == pytest.approx((1e-3 + 0.125) / 2)


def test_a_noisy_answer_that_cannot_be_used_leaves_no_trace() -> None:
    memory = ScoreMemory(NUM_TOKENS, LENGTH, REWARD)
    with pytest.raises(OracleError):
        memory.pay(as_tensor([(0, 0, 0)]), lambda sequences: torch.tensor([math.nan]))
    assert (len(memory), memory.num_calls, len(memory.trie)) == (0, 0, 0)


def test_a_reloaded_noisy_memory_goes_on_averaging() -> None:
    memory, restored = (ScoreMemory(NUM_TOKENS, LENGTH, REWARD) for _ in range(2))
    memory.pay(as_tensor([(0, 0, 0)] * 3), lambda sequences: torch.tensor([0.2, 0.4, 0.6]))
    restored.load_state_dict(memory.state_dict())
    for each in (memory, restored):
        each.pay(as_tensor([(0, 0, 0)]), lambda sequences: torch.tensor([1.0]))
    assert restored.num_calls == 4
    assert torch.equal(restored.scores, memory.scores)


@pytest.mark.parametrize("length", [LENGTH, 20])  # one table of scores, and no table
def test_the_best_scores_are_read_without_inserting_what_is_pending(length: int) -> None:
    memory = ScoreMemory(NUM_TOKENS, length)
    assert memory.best_scores(2).tolist() == []
    for last in (1, 2, 0):
        memory.pay(torch.tensor([[0] * (length - 1) + [last]]), lambda rows: rows[:, -1].double())
    before = set(memory.state_dict())
    assert memory.best_scores(2).tolist() == [2.0, 1.0]
    assert memory.best_scores(9).tolist() == [2.0, 1.0, 0.0]
    assert set(memory.state_dict()) == before
    assert ("waiting" in before) == (length == LENGTH)
