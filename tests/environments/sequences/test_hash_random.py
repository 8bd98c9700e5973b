"""Draws from a name never change."""

import torch

from stochflow.environments.sequences.hash_random import HashRandom


def test_a_name_gives_the_same_numbers_for_ever() -> None:
    # SHAKE-256 of "name/1", eight bytes each, little end first
    assert HashRandom("name").integers(1000, 4).tolist() == [904, 813, 447, 828]


def test_each_draw_goes_on_and_each_name_has_its_own() -> None:
    draws = HashRandom("name")
    first, second = draws.integers(2**60, 8), draws.integers(2**60, 8)
    assert not torch.equal(first, second)
    assert not torch.equal(first, HashRandom("other").integers(2**60, 8))


def test_a_permutation_holds_every_number_once() -> None:
    order = HashRandom("name").permutation(50)
    assert order.sort().values.tolist() == list(range(50))
    assert order.tolist() != list(range(50))
