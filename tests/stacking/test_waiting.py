"""Rows that are in use, and rows that catch up, end where torch.optim.Adam takes them."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.stacking.waiting import BETAS, EPSILON, Array, WaitingTable, adam

_NUM_ROWS, _WIDTH, _NUM_BEFORE = 40, 8, 30


class Pair:
    """A table and the same weights under torch.optim.Adam, after some updates of all rows but the last."""

    def __init__(self, scale: float, common: Sequence[int] = ()) -> None:
        torch.manual_seed(0)
        self.scale, self.num_updates = scale, _NUM_BEFORE
        self.expected = torch.randn(_NUM_ROWS, _WIDTH, dtype=torch.float64)
        self.optimiser = torch.optim.Adam([self.expected], betas=BETAS, eps=EPSILON)
        for _ in range(_NUM_BEFORE):
            self.expected.grad = scale * torch.randn_like(self.expected)
            self.expected.grad[-1] = 0.0
            self.optimiser.step()
        self.state = self.optimiser.state[self.expected]
        self.found = [each.clone() for each in (self.expected, self.state["exp_avg"], self.state["exp_avg_sq"])]
        self.table = WaitingTable(self.found[0], self.found[1:], np.array(common, np.int64))

    def update(self, rows: Array, learning_rate: float) -> None:
        """One with a gradient in these rows."""
        gradient = torch.zeros_like(self.expected)
        gradient[rows] = self.scale * torch.randn(len(rows), _WIDTH, dtype=torch.float64)
        self.optimiser.param_groups[0]["lr"], self.expected.grad = learning_rate, gradient
        self.optimiser.step()
        places = self.table.use(rows)
        for part, grad, beta in zip(self.table.parts[1:], (gradient, gradient.square()), BETAS, strict=True):
            part[places] += grad[rows] * (1.0 - beta) / beta
        blocks = self.table.step(self.num_updates, learning_rate)
        self.num_updates += 1
        adam(blocks, torch.tensor(float(self.num_updates)), learning_rate)

    def assert_moved_alike(self, before: Tensor, rtol: float = 1e-5) -> None:
        """The moves themselves, not the much larger weights."""
        assert torch.allclose(self.found[0] - before, self.expected - before, rtol=rtol, atol=0)
        for found, name in zip(self.found[1:], ("exp_avg", "exp_avg_sq"), strict=True):
            assert torch.allclose(found, self.state[name], rtol=1e-12, atol=0)


@pytest.mark.parametrize("num_updates", [0, 1, 16, 60])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-8])  # the last is that of ε
@pytest.mark.parametrize("common", [(), (3, 5), range(11)], ids=str)  # the last are too many
def test_a_table_moves_as_adam_moves_it(num_updates: int, scale: float, common: Sequence[int]) -> None:
    pair = Pair(scale, common)
    before = pair.expected.clone()
    for number, learning_rate in enumerate(np.linspace(1e-3, 2e-3, num_updates)):
        pair.update(np.array([3, 7, 10 + number % 5]), learning_rate)  # some come into use late
        assert np.allclose(pair.table.sums(np.array([7, 3]), torch.tensor([0, 1])), pair.expected[[7, 3]], rtol=1e-12)
    assert pair.table.settled == (num_updates == 0)
    assert pair.table.due == (num_updates >= 16)
    assert torch.equal(pair.found[0][20], before[20])  # it waits
    pair.table.settle()
    assert pair.table.settled
    assert (pair.expected != before)[:-1].all() == (num_updates > 0)
    pair.assert_moved_alike(before, rtol=1e-5 if num_updates <= 16 else 1e-3)


def test_a_row_that_is_only_read_catches_up() -> None:
    pair = Pair(1.0)
    for _ in range(5):
        pair.update(np.array([3]), 1e-3)
    both = pair.expected[torch.tensor([[20, 3], [20, 20]])].sum(dim=1)
    assert np.allclose(pair.table.sums(np.array([20, 3, 20, 20]), torch.tensor([0, 2])), both, rtol=1e-9)
    pair.update(np.array([3]), 1e-3)
    assert np.allclose(pair.table.sums(np.array([20]), torch.tensor([0])), pair.expected[[20]], rtol=1e-9)
    assert pair.table.rows_in_use.tolist() == [3, 20]


def test_when_many_rows_are_in_use_all_are() -> None:
    pair = Pair(1.0)
    before = pair.expected.clone()
    for first in (0, 5, 12, 0):
        pair.update(np.arange(first, first + 10), 1e-3)
    assert pair.table.due
    assert len(pair.table.rows_in_use) == _NUM_ROWS
    pair.assert_moved_alike(before)
    pair.table.settle()
    assert len(pair.table.rows_in_use) == 0
    for _ in range(3):
        pair.update(np.array([1]), 1e-3)
    pair.table.settle()
    pair.assert_moved_alike(before)


def test_without_a_learning_rate_only_moments_change() -> None:
    pair = Pair(1.0)
    before = pair.expected.clone()
    for _ in range(2):
        pair.update(np.array([1]), 0.0)
    pair.table.settle()
    assert torch.equal(pair.found[0], before)
    pair.assert_moved_alike(before)


@pytest.mark.parametrize("num_updates", [3, 20])
def test_rows_that_stay_in_use_are_written_when_they_settle(num_updates: int) -> None:
    pair = Pair(1.0, common=(3, 5))
    before = pair.expected.clone()
    for number in range(num_updates):
        pair.update(np.array([3, 10 + number]), 1e-3)
        if number % 2:
            pair.table.rest()
            assert pair.table.settled
            assert pair.table.rows_in_use.tolist() == [3, 5]
            assert not torch.allclose(pair.found[0][3], pair.expected[3], rtol=1e-6)  # it stands elsewhere
    pair.table.settle()
    pair.assert_moved_alike(before)


def test_rows_that_stay_in_use_come_back_after_all_were() -> None:
    pair = Pair(1.0, common=(3, 5))
    before = pair.expected.clone()
    for first in (0, 12, 0):
        pair.update(np.arange(first, first + 12), 1e-3)
    assert len(pair.table.rows_in_use) == _NUM_ROWS
    pair.table.rest()
    pair.assert_moved_alike(before)
    pair.update(np.array([5, 7]), 1e-3)
    assert pair.table.rows_in_use.tolist() == [3, 5, 7]
    pair.table.settle()
    pair.assert_moved_alike(before)
