"""Preallocated memory for the activations of the k-mer network, and views of its weights."""

import weakref
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.models.engine.layers import Weights, lowered, transposed
from stochflow.models.kmer_body import PrefixBody

_MAX_VIEWS = 256  # stretches of nodes whose views are kept: those of a few batch sizes


class Rows(NamedTuple):
    """Some consecutive nodes in a workspace.

    Attributes:
        sums: the first layer, [rows, width].
        made: the activations, see `layers`.
        outputs: the heads side by side, [rows, n].
        arrays: the last of the activations and the heads as numpy sees them; None where it cannot.
    """

    sums: Tensor
    made: list[Tensor]
    outputs: Tensor
    arrays: tuple[Array, Array] | None


class Version:
    """How often a gradient was taken in the weights of a network; its evaluations share one."""

    number = 0


class Buffers:
    """Weights of a network, and preallocated memory for its activations at a number of nodes, used batch after batch.

    All levels of a tree stand under each other, so that nothing has to be put together for the gradient.

    Attributes:
        trunk: weights of the body behind the first layer.
        heads: W and b of the heads for π, π_B and log F; [n, width] and [n] each.
        version: counts the gradients that were taken.
        sizes: outputs per head.
        arrays: the first layer and the heads of all nodes as numpy sees them, where it can.
        head_arrays: the same for what `read_heads` returns.
    """

    def __init__(self, body: PrefixBody, heads: list[Tensor], capacity: int, version: "Version") -> None:
        self.body, self.heads, self.capacity, self.version = body, heads, capacity, version
        self.trunk = body.trunk_weights
        self.table, self.start = body.embedding.weight, body.start
        self.sizes = [len(weight) for weight in heads[::2]]
        widths = [body.width, *body.trunk.widths(body.width, len(body.layers)), sum(self.sizes)]
        self._sums, *self._made, self._outputs = (self.start.detach().new_empty(capacity, n) for n in widths)
        num, like = sum(self.sizes), self.start.detach()
        self._heads = like.new_empty(num, body.width), like.new_empty(num)
        self.arrays: tuple[Array, Array] | None = None
        self.head_arrays: tuple[Array, Array] | None = None
        if self.start.device.type == "cpu":
            self.arrays = self._sums.numpy(), self._outputs.numpy()
            self.head_arrays = self._heads[0].numpy(), self._heads[1].numpy()
        self._columns: tuple[list[int], list[Tensor]] = [], []
        self._rows: dict[tuple[int, int], Rows] = {}
        self._user: weakref.ref[object] | None = None

    @property
    def weights(self) -> list[Tensor]:
        """All that a gradient is wanted for."""
        return [self.table, self.start, *self.trunk, *self.heads]

    @property
    def free(self) -> bool:
        """True when nobody needs what is written here any more."""
        return self._user is None or self._user() is None

    def lend(self, user: object) -> None:
        self._user = weakref.ref(user)

    def read_heads(self) -> tuple[Tensor, Tensor]:
        """W and b of all heads as they are now; [n, width], [n]."""
        weight, bias = self._heads
        if self.head_arrays is None:
            torch.cat(self.heads[::2], out=weight)
            torch.cat(self.heads[1::2], out=bias)
        else:  # by numpy, in a fraction of the time
            for number, (first, last) in enumerate(pairwise(accumulate(self.sizes, initial=0))):
                self.head_arrays[0][first:last] = self.heads[2 * number].detach().numpy()
                self.head_arrays[1][first:last] = self.heads[2 * number + 1].detach().numpy()
        return weight, bias

    def read_trunk(self) -> tuple[Weights, Weights]:
        """What `Trunk.add_gradients` and `Trunk.activations` read, as it is now."""
        if self.body.precision is not None:
            weights = lowered(self.trunk, self.body.precision)
            return weights, transposed(weights)
        places = [weight.data_ptr() for weight in self.trunk]
        if places != self._columns[0]:  # an optimiser has taken the weights elsewhere
            self._columns = places, transposed(self.trunk)
        return self.trunk, self._columns[1]

    def rows(self, first: int, last: int) -> Rows:
        """The nodes from one to before another."""
        if (first, last) not in self._rows:
            if len(self._rows) >= _MAX_VIEWS:
                self._rows.clear()
            buffers, num = (self._sums, *self._made, self._outputs), last - first
            sums, *made, outputs = (buffer.narrow(0, first, num) for buffer in buffers)
            arrays = None if self.arrays is None else (made[-1].numpy(), outputs.numpy())
            self._rows[first, last] = Rows(sums, made, outputs, arrays)
        return self._rows[first, last]

    def __deepcopy__(self, memo: object) -> None:
        """A copy of a network has its own weights and allocates its own buffers."""
