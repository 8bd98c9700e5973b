"""One optimiser for the weights of several runs, each with its own gradient clip."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stochflow.descent import Descent, padded
from stochflow.stacking.waiting import BETAS, WaitingTable, adam

Array = npt.NDArray[Any]

_NORM_MARGIN = 1e-6  # that of torch.nn.utils.clip_grad_norm_


class RowGradient(NamedTuple):
    """The gradient of a large table of which a batch reads few rows.

    Attributes:
        places: where distinct rows stand among those in use, [num].
        values: [num, width].
    """

    places: npt.NDArray[np.int64]
    values: Tensor


class StackedWeights:
    """The weights of equal modules in one flat tensor, their gradients in another; the modules keep views.

    First the table, [runs, rows, width], then every large matrix, [runs, n, m]: in one piece each, as products of all
    runs want it. What is left of a run stands side by side, [runs, num], so that its norm is one operation. The table
    has no gradient here but a `RowGradient`, which is much smaller.

    Attributes:
        parameters: leaves of autograd, [runs, ...], by name.
        num_in_table: numbers of all tables together.
        table: the tables of all runs with their moments.
        gradient: of all weights behind the table.
        moments: the two of Adam, of all weights.
    """

    def __init__(
        self, modules: Sequence[nn.Module], table: str, large: Sequence[str], small: Sequence[str], common: Array
    ) -> None:
        """Take the weights of the modules over.

        Args:
            table: name of the first weight.
            common: its rows that are read at most updates, [num].
            large: names of matrices of one size.
            small: names of weights that shall stand side by side, after those that are not named at all.
        """
        self.num_runs = len(modules)
        named = dict(modules[0].named_parameters())
        others = [name for name in named if name not in {table, *large, *small}]
        self._table, self._large, self._small = table, list(large), [*others, *small]
        self._shapes = {name: (weight.shape, weight.stride()) for name, weight in named.items()}
        self._width = padded(sum(named[name].numel() for name in self._small))  # of a run's small weights
        sizes = [self.num_runs * named[name].numel() for name in (table, *large)]
        self.num_in_table, num_behind = sizes[0], sum(sizes[1:]) + self.num_runs * self._width
        width, dtype = named[table].shape[-1], named[table].detach().numpy().dtype
        # made by numpy, which asks for large pages of memory
        self.values, *self.moments = (torch.from_numpy(np.zeros(sizes[0] + num_behind, dtype)) for _ in range(3))
        tables = (flat[: sizes[0]].view(-1, width) for flat in (self.values, *self.moments))
        firsts = np.arange(self.num_runs)[:, None] * len(named[table])
        self.table = WaitingTable(next(tables), list(tables), (firsts + common).ravel())
        self.gradient = torch.from_numpy(np.zeros(num_behind, dtype))
        matrices, rest = self.gradient.split([sum(sizes[1:]), self.num_runs * self._width])
        self._matrices = matrices.view(len(large), self.num_runs, -1) if large else None
        self.side_by_side = rest.view(self.num_runs, -1)
        self.parameters = {}
        for name, value in self.views(self.values).items():
            for run, module in enumerate(modules):
                single = module.get_parameter(name)
                single.data = value[run].copy_(single.detach())
            self.parameters[name] = nn.Parameter(value, requires_grad=named[name].requires_grad)

    @property
    def gradients(self) -> dict[str, Tensor]:
        """Gradients of all weights but the table, [runs, ...], by name."""
        return self._behind(self.gradient, 0)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """What belongs to every weight in `values` or `moments`, [runs, ...], in its order in memory."""
        shape, _ = self._shapes[self._table]
        table = flat[: self.num_in_table].view(self.num_runs, *shape)
        return {self._table: table, **self._behind(flat, self.num_in_table)}

    def _behind(self, flat: Tensor, first: int) -> dict[str, Tensor]:
        """The same for the weights behind the table, which begin somewhere in a tensor."""
        found = {}
        for name in self._large:
            shape, stride = self._shapes[name]
            found[name] = flat.as_strided((self.num_runs, *shape), (shape.numel(), *stride), first)
            first += self.num_runs * shape.numel()
        for name in self._small:
            shape, stride = self._shapes[name]
            found[name] = flat.as_strided((self.num_runs, *shape), (self._width, *stride), first)
            first += shape.numel()
        return found

    def take_gradients(self) -> None:
        """Take over what autograd found, but for the table."""
        for name, gradient in self.gradients.items():
            found = self.parameters[name].grad
            self.parameters[name].grad = None
            if found is None:
                gradient.zero_()
            else:
                gradient.copy_(found)

    def total_norm(self, read: RowGradient | None) -> float:
        """Norm of the gradient of all runs together, in a fraction of the time of `norms`."""
        parts = [self.gradient, *([] if read is None else [read.values.view(-1)])]
        return math.sqrt(sum(float(np.dot(part.numpy(), part.numpy())) for part in parts))

    def norms(self, read: RowGradient | None) -> Array:
        """Norm of each run's gradient, [runs]; of the table only what was read counts."""
        squares = torch.linalg.vector_norm(self.side_by_side, dim=1).numpy() ** 2
        if self._matrices is not None:
            squares = squares + (torch.linalg.vector_norm(self._matrices, dim=2).numpy() ** 2).sum(axis=0)
        if read is not None:
            each = torch.linalg.vector_norm(read.values, dim=1).numpy() ** 2
            squares = squares + np.bincount(self._owners(read), each, self.num_runs)
        found: Array = np.sqrt(squares)
        return found

    def scale(self, shares: Array, read: RowGradient | None) -> None:
        """Multiply each run's gradient by a number, [runs]."""
        factors = torch.from_numpy(shares.astype(self.gradient.numpy().dtype))
        self.side_by_side.mul_(factors[:, None])
        if self._matrices is not None:
            self._matrices.mul_(factors[:, None])
        if read is not None:
            read.values.mul_(factors[torch.from_numpy(self._owners(read)), None])

    def _owners(self, read: RowGradient) -> Array:
        """To which run each row belongs, [num]."""
        return self.table.rows_in_use[read.places] // (len(self.table) // self.num_runs)


class StackedDescent:
    """What `Descent` does for one run, for all of them: Adam works element by element, so the runs do not meet.

    Args:
        weights: of all runs.
        module: one of them; its weights are known to the single optimisers by their number.
        descents: the optimisers of the single runs; their moments are where this one begins.
    """

    def __init__(self, weights: StackedWeights, module: nn.Module, descents: Sequence[Descent]) -> None:
        self._weights, self._descents, self._clip = weights, list(descents), descents[0].clip
        self._order = [name for name, _ in module.named_parameters()]
        states = [descent.state_dict() for descent in self._descents]
        self._num_steps = states[0].get("0.step", torch.zeros(())).clone()
        for kind, flat in zip(("exp_avg", "exp_avg_sq"), weights.moments, strict=True):
            views = weights.views(flat)
            for run, state in enumerate(states):
                for number, name in enumerate(self._order) if state else ():
                    views[name][run] = state[f"{number}.{kind}"]
        values, *moments = (flat[weights.num_in_table :] for flat in (weights.values, *weights.moments))
        self._behind = [values, weights.gradient, *moments]  # the table

    def clip(self, read: RowGradient | None = None) -> Array:
        """Scale the gradient of every run to at most the clip; returns the norms before, [runs].

        Where the norm of all runs together is within the clip, it is returned in their place: none is larger.

        Args:
            read: the gradient of the table.
        """
        total = self._weights.total_norm(read)
        if total <= self._clip:
            return np.full(self._weights.num_runs, total)
        norms = self._weights.norms(read)
        if (norms > self._clip).any():
            self._weights.scale(np.minimum(self._clip / (norms + _NORM_MARGIN), 1.0), read)
        return norms

    def step(self, learning_rate: float, read: RowGradient | None = None) -> None:
        """Move all weights.

        Args:
            read: the gradient of the table.
        """
        table = self._weights.table
        if read is not None:
            # β·(m + g·(1 − β)/β) = β·m + (1 − β)·g: with this in the moments, the table moves as if it had no gradient,
            # and none of its size has to be written, read and cleared
            rows = torch.from_numpy(read.places)
            terms = read.values, read.values.square()
            for moment, term, beta in zip(table.parts[1:], terms, BETAS, strict=True):
                moment.index_add_(0, rows, term.mul_((1.0 - beta) / beta))
        blocks = table.step(int(self._num_steps), learning_rate)
        self._num_steps += 1
        # a weight without a gradient does not move: its moments are zero
        columns = [[*column, behind] for column, behind in zip(blocks, self._behind, strict=True)]
        adam(columns, self._num_steps, learning_rate)

    def settle(self) -> None:
        """Give the optimisers of the single runs their moments, so that a checkpoint of each is whole."""
        self._weights.table.settle()
        first, second = (self._weights.views(flat) for flat in self._weights.moments)
        for run, descent in enumerate(self._descents):
            state = {}
            for number, name in enumerate(self._order):
                state[f"{number}.step"] = self._num_steps
                state[f"{number}.exp_avg"], state[f"{number}.exp_avg_sq"] = first[name][run], second[name][run]
            descent.load_state_dict(state)


def joined(views: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    """Small weights that stand side by side as one; [runs, n, ...] each → [runs, Σn, ...]."""
    first, num = views[names[0]], sum(views[name].shape[1] for name in names)
    return first.as_strided((len(first), num, *first.shape[2:]), first.stride(), first.storage_offset())
