"""Alphabets, the enumeration of a task and the reward, on values worked by hand."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.registry import TASKS, make_task
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import Alphabet, Task

ACGT = Alphabet("ACGT")


class CountingTask(Task):
    """Score = the sequence read as a ternary number; counts how many sequences were scored."""

    name = "counting"
    description = "a task for tests"
    alphabet = Alphabet("xyz")
    length = 3
    mode_threshold = 0.0

    def __init__(self) -> None:
        self.num_scored = 0

    def score(self, tokens: Tensor) -> Tensor:
        self.num_scored += len(tokens)
        return tokens[:, 0] * 9.0 + tokens[:, 1] * 3.0 + tokens[:, 2]


def test_a_letter_becomes_its_place_in_the_alphabet() -> None:
    tokens = ACGT.encode(["ACGT", "TTAG"])
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [[0, 1, 2, 3], [3, 3, 0, 2]]


@given(st.lists(st.text("ACGT", min_size=5, max_size=5), min_size=1, max_size=20))
def test_decoding_undoes_encoding(sequences: list[str]) -> None:
    assert ACGT.decode(ACGT.encode(sequences)) == sequences


def test_the_order_of_letters_need_not_be_alphabetical() -> None:
    alphabet = Alphabet("TGα")
    assert alphabet.encode(["αTG"]).tolist() == [[2, 0, 1]]
    assert alphabet.decode(torch.tensor([[2, 0, 1]])) == ["αTG"]


@pytest.mark.parametrize("sequence", ["ACGU", "acgt", "AC-T", "ACGé"])
def test_a_letter_outside_the_alphabet_is_named(sequence: str) -> None:
    with pytest.raises(DataError, match="not in the alphabet ACGT"):
        ACGT.encode(["ACGT", sequence])


def test_sequences_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r"lengths \[2, 3\]"):
        ACGT.encode(["AC", "ACG"])


def test_no_sequences_make_an_empty_table() -> None:
    assert len(ACGT.encode([])) == 0


def test_all_sequences_are_in_lexicographic_order() -> None:
    expected = ["".join(letters) for letters in itertools.product("xyz", repeat=3)]
    assert CountingTask.alphabet.decode(CountingTask().all_sequences) == expected


def test_all_scores_follow_the_order_of_all_sequences_and_are_computed_once() -> None:
    task = CountingTask()
    for _ in range(2):
        torch.testing.assert_close(task.all_scores, torch.arange(27, dtype=torch.float64), atol=0, rtol=0)
    assert task.num_scored == 27


@pytest.mark.parametrize(("length", "enumerable"), [(10, True), (11, False)])
def test_a_task_is_enumerable_up_to_a_million_sequences(length: int, enumerable: bool) -> None:
    task = CountingTask()
    task.alphabet, task.length = ACGT, length
    assert task.enumerable is enumerable


def test_a_task_is_made_by_its_name() -> None:
    for name in TASKS:
        assert make_task(name).name == name


def test_an_unknown_task_lists_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown task 'tfbind9'.*tfbind8"):
        make_task("tfbind9")


@pytest.mark.parametrize(
    ("step", "exponent"),
    [(0, 1.0), (10, 2.0), (30, 2.5), (990, 2.98), (None, 3.0)],  # 1 + 2·(1 − 1/(1 + t/10))
)
def test_the_exponent_climbs_from_one_to_beta(step: int | None, exponent: float) -> None:
    assert Reward(beta=3.0, floor=1e-6, ramp=10.0).exponent(step) == pytest.approx(exponent, abs=1e-12)


@pytest.mark.parametrize("step", [0, 1, 10**6])
def test_a_ramp_of_zero_means_beta_at_once(step: int) -> None:
    assert Reward(beta=3.0, floor=1e-6, ramp=0.0).exponent(step) == 3.0


def test_the_floor_is_applied_after_the_power() -> None:
    # 0.1³ = 0.001 lies below the floor of 0.01, although 0.1 itself lies above it
    log_rewards = Reward(beta=3.0, floor=0.01, ramp=0.0).log_reward(torch.tensor([0.0, 0.1, 0.5, 1.0]))
    torch.testing.assert_close(log_rewards.exp(), torch.tensor([0.01, 0.01, 0.125, 1.0]))


def test_the_reward_of_a_step_uses_the_exponent_of_that_step() -> None:
    scores = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    log_rewards = Reward(beta=3.0, floor=1e-6, ramp=10.0).log_reward(scores, step=10)
    torch.testing.assert_close(log_rewards, 2.0 * scores.log())


def test_a_predicted_score_below_zero_gets_the_floor() -> None:
    reward = Reward(beta=1.5, floor=1e-4, ramp=0.0)
    assert reward.log_reward(torch.tensor(-0.3)).item() == pytest.approx(math.log(1e-4))
