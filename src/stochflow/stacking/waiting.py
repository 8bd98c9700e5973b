"""A table of weights of which an update reads few rows: the others wait for their moves until somebody reads them."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Array = npt.NDArray[Any]
Blocks = list[list[Tensor]]  # values, gradients and both moments

BETAS, EPSILON = (0.9, 0.999), 1e-8  # those of torch.optim.Adam
_BLOCK = 2**17  # numbers that are moved at once: their gradient of zeros stays in the cache
_LATE = torch.tensor(1e9)  # after so many updates Adam corrects no moment
_ALIKE = 1e-5  # relative variance of nodes that one can stand for: it errs by as much of a move, where √v is below ε
_PATIENCE = 16  # updates after which all rows are due
_FEW = 0.25  # of the rows that may stay in use
_SHARE = 0.5  # of the rows that may be in use: with more, it is as fast to move all


class WaitingTable:
    """The rows of all runs' tables with their moments.

    Adam moves every row at every update, read or not, and writing a table that is larger than the cache takes longer
    than everything else. Here rows that are read come into use: they stand in a piece of their own, and every update
    moves them. The others wait. They catch up in one pass, when they are read or when all do in `rest`.

    Args:
        values: the weights, [rows, width].
        moments: the two of Adam, [rows, width] each.
        common: rows that are read so often that they should stay in use, [num]; they do if they are few.
    """

    def __init__(self, values: Tensor, moments: Sequence[Tensor], common: Array) -> None:
        self._whole = [values, *moments]
        self._nothing = np.zeros(_BLOCK, values.numpy().dtype)
        self._whole_blocks = self._in_blocks([each.view(-1).numpy() for each in self._whole], 0, values.numel())
        most = int(_SHARE * len(values))
        self._room = [torch.empty_like(each[:most]) for each in self._whole]
        # the same as numpy sees them
        self._whole_arrays, self._room_arrays = ([each.numpy() for each in some] for some in (self._whole, self._room))
        self._width, self._flat_room = values.shape[1], [each.reshape(-1) for each in self._room_arrays]
        # made once: what an update moves are some of these and what is left
        self._room_blocks = self._in_blocks(self._flat_room, 0, most * self._width // _BLOCK * _BLOCK)
        self._rows, self._num = np.empty(most, np.int64), 0  # that are in use, in their order
        self._places = np.full(len(values), -1)  # theirs in the room; -1 for rows that wait
        self._num_before, self._learning_rates = 0, list[float]()  # of the updates that are waited for
        self._drifts: list[tuple[float, float]] | None = None  # theirs, once known
        self._residents = common[: len(common) if len(common) <= _FEW * len(values) else 0]
        self._num_updates = 0  # since all rows were at rest
        self._all_in_use = False

    def __len__(self) -> int:
        return len(self._places)

    @property
    def settled(self) -> bool:
        """True where no update was made since `rest`."""
        return self._num_updates == 0

    @property
    def due(self) -> bool:
        """True when it is time to `rest`."""
        return self._num_updates >= _PATIENCE or self._all_in_use

    def use(self, rows: Array) -> Array:
        """Bring rows into use; returns where they stand in `parts`, [...] each."""
        if self._all_in_use:
            return rows
        if not self._num:
            self._join(self._residents)
        places = self._places.take(rows)
        waiting = places < 0
        if waiting.any():
            self._join(rows[waiting])
            return rows if self._all_in_use else self._places.take(rows)
        return places

    def sums(self, rows: Array, firsts: Tensor) -> Tensor:
        """Values of rows added up in bags, [num] → [num_bags, width].

        Args:
            firsts: where each bag begins among the rows, [num_bags].
        """
        places = torch.from_numpy(self.use(rows))
        values = self._whole[0] if self._all_in_use else self._room[0]
        return functional.embedding_bag(places, values, firsts, mode="sum")

    @property
    def rows_in_use(self) -> Array:
        """[num]."""
        return np.arange(len(self)) if self._all_in_use else self._rows[: self._num]

    @property
    def parts(self) -> list[Tensor]:
        """Values and both moments, [rows, width] each; those of the rows in use come first."""
        return self._whole if self._all_in_use else self._room

    def step(self, num_before: int, learning_rate: float) -> Blocks:
        """What an update that follows so many has to move; the other rows wait for it."""
        self._num_updates += 1
        if self._all_in_use:
            return self._whole_blocks
        if not self._learning_rates:
            self._num_before = num_before
        self._learning_rates.append(learning_rate)
        self._drifts = None
        num = self._num * self._width
        num_full = num // _BLOCK
        rest = self._in_blocks(self._flat_room, num_full * _BLOCK, num)
        return [full[:num_full] + last for full, last in zip(self._room_blocks, rest, strict=True)]

    def settle(self) -> None:
        """Let all rows make the moves that they wait for, and write them all to where they came from."""
        self.rest()
        self._write(0)

    def rest(self) -> None:
        """Let all rows make the moves that they wait for; but for the residents, none is in use any more."""
        if self._learning_rates:
            self._catch_up(self._whole_blocks)
            self._learning_rates.clear()
        num = min(len(self._residents), self._num)
        self._write(num)
        self._places[self._rows[num : self._num]] = -1
        self._num, self._num_updates, self._all_in_use = num, 0, False

    def _write(self, first: int) -> None:
        """Write rows in use, from one on, to where they came from."""
        rows = self._rows[first : self._num]
        for whole, part in zip(self._whole_arrays, self._room_arrays, strict=True):
            whole[rows] = part[first : self._num]

    def _join(self, rows: Array) -> None:
        """Let rows that wait come into use, [num]; the same one may be there several times."""
        # the last of its places stands for a row: sorting them would cost more
        numbers = np.arange(len(rows))
        self._places[rows] = numbers
        rows = rows[self._places.take(rows) == numbers]
        first, last = self._num, self._num + len(rows)
        if last > len(self._rows):
            self._places[rows] = -1
            num_updates = self._num_updates
            self.settle()
            self._places[self._residents], self._num = -1, 0
            self._num_updates, self._all_in_use = num_updates, True
            return
        for whole, part in zip(self._whole_arrays, self._room_arrays, strict=True):
            whole.take(rows, axis=0, out=part[first:last], mode="clip")  # other modes write to a copy first
        if self._learning_rates:
            self._catch_up(self._in_blocks(self._flat_room, first * self._width, last * self._width))
        self._places[rows], self._rows[first:last], self._num = np.arange(first, last), rows, last

    def _in_blocks(self, parts: Sequence[Array], first: int, last: int) -> Blocks:
        """Numbers of flat parts from one to before another, with a gradient of zeros."""
        bounds = [(at, min(at + _BLOCK, last)) for at in range(first, last, _BLOCK)]
        values, *moments = ([torch.from_numpy(part[start:end]) for start, end in bounds] for part in parts)
        return [values, [torch.from_numpy(self._nothing[: end - start]) for start, end in bounds], *moments]

    def _catch_up(self, blocks: Blocks) -> None:
        """Move rows as the updates that they wait for do."""
        if self._drifts is None:
            self._drifts = drift(self._num_before, self._learning_rates)
        drifts = self._drifts
        shrink = [beta ** (len(self._learning_rates) / len(drifts)) for beta in BETAS]
        for number, (distance, margin) in enumerate(drifts, start=1):
            # an update with other settings does it; after it, m and √v are so many times what they were at first
            of_first, of_second = shrink[0] ** number, shrink[1] ** (number / 2)
            adam(blocks, _LATE, distance * of_second / of_first, shrink, margin * of_second)


def adam(
    blocks: Blocks,
    num_updates: Tensor,
    learning_rate: float,
    betas: Sequence[float] = BETAS,
    epsilon: float = EPSILON,
) -> None:
    """Move weights: what torch.optim.Adam calls in the end.

    Args:
        num_updates: with this one.
    """
    values, gradients, first, second = blocks
    torch._fused_adam_(
        values,
        gradients,
        first,
        second,
        [],
        [num_updates] * len(values),
        lr=learning_rate,
        beta1=betas[0],
        beta2=betas[1],
        eps=epsilon,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )


def drift(num_before: int, learning_rates: Sequence[float]) -> list[tuple[float, float]]:
    """How far Adam moves a weight that has no gradient for some updates.

    Its moments m and v only shrink, so after t updates the next ones, with learning rates r, move it by

        Σ_j r_j·m·β₁ʲ/(1 − β₁ᵗ⁺ʲ) / (√(v·β₂ʲ/(1 − β₂ᵗ⁺ʲ)) + ε)  =  m·Σ_j w_j/(√v + ε·c_j)

    The c_j are much alike, so a Gauss quadrature of this sum with two nodes, or later one, is as good as exact, also
    where √v is as small as ε.

    Returns:
        The weights of the quadrature with ε times their nodes.
    """
    # in plain numbers: there are few, and each is a fraction of what a call of numpy costs
    (decay, slow), nodes, weights = BETAS, list[float](), list[float]()
    for later, learning_rate in enumerate(learning_rates, start=1):
        node = math.sqrt((1.0 - slow ** (num_before + later)) / slow**later)
        nodes.append(node)
        weights.append(learning_rate * decay**later / (1.0 - decay ** (num_before + later)) * node)
    total = sum(weights)
    if total == 0.0:  # nothing moves
        return [(0.0, EPSILON)]
    mean = sum(map(operator.mul, weights, nodes)) / total
    gaps = [node - mean for node in nodes]
    squares = [weight * gap * gap for weight, gap in zip(weights, gaps, strict=True)]
    spread = sum(squares) / total
    if spread < _ALIKE * mean**2:
        return [(total, EPSILON * mean)]
    # two steps of Lanczos give the Jacobi matrix of the measure, [[mean, √spread], [√spread, mean + tilt]]: its
    # eigenvalues are the nodes, and the squares of the first numbers of its eigenvectors the weights
    tilt = sum(map(operator.mul, squares, gaps)) / total / spread
    ends = [tilt / 2.0 + sign * math.sqrt(tilt * tilt / 4.0 + spread) for sign in (-1.0, 1.0)]
    return [(total * spread / (spread + end * end), EPSILON * (mean + end)) for end in ends]
