"""Bit sequences: modes, distances and letters, checked bit by bit."""

import hashlib
import math

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import make_task
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.bits import WORDS, BitSequences


def tokens_of(task: BitSequences, bits: torch.Tensor) -> torch.Tensor:
    """Rows of bits as tokens, by reading k characters at a time."""
    k = task.num_bits // task.length
    texts = ["".join(map(str, row)) for row in bits.tolist()]
    return torch.tensor([[int(text[i : i + k], 2) for i in range(0, len(text), k)] for text in texts])


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 8])
def test_every_mode_scores_e_whatever_the_word_length(k: int) -> None:
    task = BitSequences(120, k)
    assert (task.num_tokens, task.length) == (2**k, 120 // k)
    scores = task.score(tokens_of(task, task.modes))
    torch.testing.assert_close(scores, torch.full_like(scores, math.e), atol=1e-12, rtol=0)


def test_modes_are_made_of_the_published_words() -> None:
    modes = BitSequences().modes
    assert modes.shape == (60, 120)
    words = {"".join(map(str, word)) for word in modes.view(-1, 8).tolist()}
    assert words == set(WORDS)
    assert len(modes.unique(dim=0)) == 60


def test_the_modes_of_a_name_never_change() -> None:
    assert torch.equal(BitSequences(120, 8).modes, BitSequences(120, 1).modes)
    digest = hashlib.sha256(BitSequences().modes.to(torch.uint8).numpy().tobytes()).hexdigest()
    assert digest[:16] == "39ba4133166204c0"


def test_the_score_falls_with_the_bits_that_differ_from_the_nearest_mode(generator: torch.Generator) -> None:
    task = BitSequences(120, 4)
    bits = torch.randint(2, (50, 120), generator=generator)
    nearest = [min(sum(a != b for a, b in zip(x, y, strict=True)) for y in task.modes.tolist()) for x in bits.tolist()]
    expected = torch.tensor([math.exp(1 - d / 120) for d in nearest], dtype=torch.float64)
    torch.testing.assert_close(task.score(tokens_of(task, bits)), expected, atol=1e-12, rtol=0)


def test_a_design_counts_for_modes_below_30_bits_of_120() -> None:
    task = BitSequences(120, 1)
    assert math.exp(1 - 29 / 120) > task.mode_threshold >= math.exp(1 - 30 / 120)


def test_a_mode_is_reached_from_fewer_than_a_quarter_of_the_bits_away() -> None:
    task = BitSequences(120, 1)
    near, far = task.modes[[7]].clone(), task.modes[[9]].clone()
    near[:, :29] ^= 1
    far[:, :30] ^= 1
    reached = task.modes_reached(tokens_of(task, torch.cat([near, far])))
    assert reached is not None
    expected = (task.distances(tokens_of(task, torch.cat([near, far]))) <= 29).any(dim=0)
    assert bool(reached[7])
    assert torch.equal(reached, expected)
    alone = task.modes_reached(tokens_of(task, far))
    assert alone is not None
    assert not bool(alone[9])


@pytest.mark.parametrize("k", [1, 4, 5, 8])
def test_letters_survive_files_that_are_read_in_upper_case(k: int) -> None:
    task = BitSequences(120, k)
    letters = task.alphabet.letters
    assert len(set(letters)) == 2**k
    assert letters.upper() == letters
    assert len(letters.split()) == 1
    tokens = torch.arange(2**k).repeat(60)[: task.length].unsqueeze(0)
    assert torch.equal(task.alphabet.encode(task.alphabet.decode(tokens)), tokens)


def test_the_name_without_numbers_is_120_bits_by_8() -> None:
    assert make_task("bits").name == "bits:120,8"
    assert make_task("bits:16,2").length == 8


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bits:120,7", "divides n"),
        ("bits:120,9", "from 1 to 8"),
        ("bits:12,4", "multiple of 8"),
        ("bits:800000,8", "at most 4096"),
        ("bits:120", "bits:n,k"),
        ("bits:120,0", "at least one"),
        ("bits:120,x", "whole numbers"),
        ("bits:120,-8", "whole numbers"),
        ("bits:" + "9" * 5000 + ",8", "whole numbers"),
        ("bits:١٢٠,8", "whole numbers"),
    ],
)
def test_a_name_that_makes_no_sense_is_refused_in_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_task(name)


@pytest.mark.parametrize("beta", [0.5, 8.0, 40.0, 160.0])
def test_bounds_of_log_z_hold_and_close_where_modes_are_sharp(beta: float) -> None:
    task, reward = BitSequences(16, 8), Reward(beta, 1e-6, 0.0)
    low, high = task.log_z_bounds(reward) or (math.nan, math.nan)
    exact = float(reward.log_reward(task.all_scores).logsumexp(dim=0))
    assert low - 1e-9 <= exact <= high + 1e-9
    assert (high - low < 1e-3) == (beta == 160.0)


def test_log_z_of_the_published_reward_is_that_of_sixty_modes_alone() -> None:
    low, high = BitSequences(120, 8).log_z_bounds(Reward(240.0, 1e-6, 0.0)) or (math.nan, math.nan)
    assert high == pytest.approx(math.log(60) + 240 + 120 * math.log1p(math.exp(-2)), abs=1e-9)
    assert 0.0 <= high - low < 1e-6
