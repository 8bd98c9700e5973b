"""The example of the conditional sampler runs and does what it says."""

from pathlib import Path

from examples.conditional import main

UNIFORM = 0.598  # regret on VAX2 of intentions that know nothing


def test_the_support_of_a_held_out_factor_is_worth_half_of_the_way(tmp_path: Path) -> None:
    zero_shot, fine_tuned = main(tmp_path)
    assert zero_shot < 0.6 * UNIFORM
    assert fine_tuned < 0.6 * UNIFORM
