"""The replay buffer: a ring that forgets the oldest, gives back whole rows, and can be put away and taken out."""

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.models.dynamics.tabular import transition_codes
from stochflow.sampling.replay_buffer import ReplayBuffer
from stochflow.sampling.trajectories import Trajectories

LENGTH, NUM_TOKENS = 3, 4


def numbered(*numbers: int) -> Trajectories:
    """One trajectory per number, every field of which tells the number."""
    column = torch.tensor(numbers)
    digits = torch.stack([column // 16, column // 4 % 4, column % 4], dim=1)
    return Trajectories(
        intentions=digits,
        outcomes=3 - digits,
        valid=digits != 1,
        scores=column.double() + 0.5,
        log_behaviour=torch.full((len(numbers), LENGTH), -1.0),
    )


def contents(replay: ReplayBuffer) -> list[int]:
    """Numbers of the stored trajectories by slot."""
    return (replay.state_dict()["scores"] - 0.5).long().tolist()


def drawn(replay: ReplayBuffer, num: int = 200) -> Tensor:
    """Numbers of so many sampled trajectories."""
    return (replay.sample(num, torch.Generator().manual_seed(0)).scores - 0.5).long()


def test_the_oldest_is_overwritten_first() -> None:
    replay = ReplayBuffer(capacity=4, length=LENGTH)
    replay.add(numbered(1, 2, 3))
    assert len(replay) == 3
    assert contents(replay) == [1, 2, 3]
    replay.add(numbered(4, 5))
    assert len(replay) == 4
    assert contents(replay) == [5, 2, 3, 4]
    replay.add(numbered(6))
    assert contents(replay) == [5, 6, 3, 4]
    assert replay.num_added == 6


@pytest.mark.parametrize("num_before", [0, 1, 3])
def test_of_a_batch_larger_than_the_buffer_the_last_rows_stay(num_before: int) -> None:
    replay = ReplayBuffer(capacity=4, length=LENGTH)
    replay.add(numbered(*range(50, 50 + num_before)))
    replay.add(numbered(*range(10)))
    assert sorted(contents(replay)) == [6, 7, 8, 9]
    # and the next one takes the place of the oldest of them
    replay.add(numbered(40))
    assert sorted(contents(replay)) == [7, 8, 9, 40]


def test_rows_come_back_whole() -> None:
    replay = ReplayBuffer(capacity=64, length=LENGTH)
    replay.add(numbered(*range(50)))
    sample = replay.sample(100, torch.Generator().manual_seed(0))
    expected = numbered(*(sample.scores - 0.5).long().tolist())
    for name in ("intentions", "outcomes", "valid", "scores"):
        assert torch.equal(getattr(sample, name), getattr(expected, name)), name
    # what drew them is forgotten: remembered trajectories are never weighted by it
    assert torch.equal(sample.log_behaviour, torch.zeros(100, LENGTH))


def test_only_what_was_added_is_drawn_and_all_of_it_evenly() -> None:
    replay = ReplayBuffer(capacity=1000, length=LENGTH)
    replay.add(numbered(7, 8, 9, 10))
    num = 8000
    counts = drawn(replay, num).bincount(minlength=11)
    assert counts[:7].sum() == 0
    five_sigma = 5 * (num * 0.25 * 0.75) ** 0.5
    assert bool(((counts[7:] - num / 4).abs() < five_sigma).all())


def test_after_a_wrap_only_the_last_ones_are_drawn() -> None:
    replay = ReplayBuffer(capacity=5, length=LENGTH)
    for number in range(12):
        replay.add(numbered(number))
    assert set(drawn(replay).tolist()) == {7, 8, 9, 10, 11}


def test_draws_come_from_the_given_generator() -> None:
    replay = ReplayBuffer(capacity=64, length=LENGTH)
    replay.add(numbered(*range(50)))
    generator = torch.Generator().manual_seed(3)
    first, second = replay.sample(50, generator).scores, replay.sample(50, generator).scores
    assert not torch.equal(first, second)
    assert torch.equal(first, replay.sample(50, torch.Generator().manual_seed(3)).scores)


def test_a_sample_is_a_copy() -> None:
    replay = ReplayBuffer(capacity=2, length=LENGTH)
    replay.add(numbered(1))
    replay.sample(1, torch.Generator()).scores.fill_(99.0)
    replay.sample(1, torch.Generator()).valid.fill_(False)
    assert contents(replay) == [1]
    assert torch.equal(replay.sample(1, torch.Generator()).valid, numbered(1).valid)


def test_nothing_can_be_drawn_from_an_empty_buffer() -> None:
    with pytest.raises(ValueError, match="empty; add a batch"):
        ReplayBuffer(capacity=4, length=LENGTH).sample(1, torch.Generator())


@pytest.mark.parametrize("num_added", [0, 3, 4, 6])
def test_a_restored_buffer_goes_on_at_the_same_slot(num_added: int) -> None:
    replay, restored = ReplayBuffer(capacity=4, length=LENGTH), ReplayBuffer(capacity=4, length=LENGTH)
    for number in range(num_added):
        replay.add(numbered(number))
    state = {name: tensor.clone() for name, tensor in replay.state_dict().items()}
    restored.load_state_dict(state)
    assert (len(restored), restored.num_added) == (len(replay), num_added)
    for buffer in (replay, restored):
        buffer.add(numbered(40, 41))
    assert contents(restored) == contents(replay)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    samples = [buffer.sample(20, generator) for buffer, generator in zip((replay, restored), generators, strict=True)]
    for name in ("intentions", "outcomes", "valid", "scores"):
        assert torch.equal(getattr(samples[0], name), getattr(samples[1], name)), name


def test_a_saved_state_stays_what_it_was() -> None:
    replay = ReplayBuffer(capacity=2, length=LENGTH)
    replay.add(numbered(1, 2))
    saved = replay.state_dict()
    replay.add(numbered(3))
    assert (saved["scores"] - 0.5).tolist() == [1, 2]
    assert torch.equal(saved["outcomes"].long(), numbered(1, 2).outcomes)


def test_the_saved_state_holds_only_rows_in_use() -> None:
    replay = ReplayBuffer(capacity=1000, length=LENGTH)
    replay.add(numbered(1, 2))
    shapes = {name: tuple(tensor.shape) for name, tensor in replay.state_dict().items()}
    assert shapes == {
        "intentions": (2, LENGTH),
        "outcomes": (2, LENGTH),
        "valid": (2, LENGTH),
        "scores": (2,),
        "num_added": (),
    }


def encoded(capacity: int) -> ReplayBuffer:
    replay = ReplayBuffer(capacity=capacity, length=LENGTH)
    replay.encode(NUM_TOKENS)
    return replay


@pytest.mark.parametrize("late", [False, True])
def test_draws_made_at_once_are_those_made_one_after_another(late: bool) -> None:
    replay = ReplayBuffer(capacity=50, length=LENGTH) if late else encoded(50)
    for first in (0, 20, 34):  # the buffer comes to its end
        replay.add(numbered(*range(first, first + 30)))
    if late:
        replay.encode(NUM_TOKENS)
    together, apart = (torch.Generator().manual_seed(3) for _ in range(2))
    codes, valid = replay.sample_codes(8, 13, together)
    assert valid is not None
    for draw in range(8):
        batch = replay.sample(13, apart)
        expected = transition_codes(batch.intentions.numpy(), batch.outcomes.numpy(), NUM_TOKENS)
        assert np.array_equal(codes[draw], expected)
        assert np.array_equal(valid[draw], batch.valid.numpy())
    # and whatever is drawn next is the same too
    assert torch.equal(together.get_state(), apart.get_state())


def test_it_is_known_when_all_steps_are_real() -> None:
    replay, generator = encoded(50), torch.Generator()
    replay.add(numbered(0, 2))  # no digit is one
    assert replay.sample_codes(1, 1, generator)[1] is None
    restored = encoded(50)
    for number in (1, 0):
        replay.add(numbered(number))
        assert replay.sample_codes(1, 1, generator)[1] is not None
    restored.load_state_dict(replay.state_dict())
    assert restored.sample_codes(1, 1, generator)[1] is not None
    same = (torch.Generator().manual_seed(1) for _ in range(2))
    first, second = (each.sample_codes(2, 9, seeded)[0] for each, seeded in zip((replay, restored), same, strict=True))
    assert np.array_equal(first, second)


def test_codes_that_nobody_asked_for_are_not_there() -> None:
    replay = ReplayBuffer(capacity=4, length=LENGTH)
    replay.add(numbered(1))
    with pytest.raises(ValueError, match="call encode"):
        replay.sample_codes(1, 1, torch.Generator())


def test_the_newest_are_the_last_that_were_added() -> None:
    replay = ReplayBuffer(capacity=4, length=LENGTH)
    replay.add(numbered(1, 2, 3))
    torch.testing.assert_close(replay.newest(2).long(), numbered(2, 3).intentions)
    replay.add(numbered(4, 5))
    torch.testing.assert_close(replay.newest(3).long(), numbered(3, 4, 5).intentions)
    torch.testing.assert_close(replay.newest(9).long(), numbered(2, 3, 4, 5).intentions)
