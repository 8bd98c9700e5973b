"""The bonus of the behaviour grows where the same designs come again and again."""

import pytest

from stochflow.objectives.planning.novelty import MAX_REPEATS, novelty_bonus


@pytest.mark.parametrize(
    ("num_sampled", "num_paid", "factor"),
    [(0, 0, 1.0), (512, 512, 1.0), (100, 512, 1.0), (1024, 512, 2.0), (10**6, 2, MAX_REPEATS)],
)
def test_the_bonus_is_multiplied_by_the_trajectories_per_design(num_sampled: int, num_paid: int, factor: float) -> None:
    assert novelty_bonus(3.0, num_sampled, num_paid) == 3.0 * factor
    assert novelty_bonus(0.0, num_sampled, num_paid) == 0.0
