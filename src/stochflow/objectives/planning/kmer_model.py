"""A model of log R that is a sum over k-mers, and the automaton along which it is one."""

from typing import NamedTuple

import torch
from scipy import sparse
from torch import Tensor

from stochflow.environments.sequences.score_automaton import ScoreAutomaton
from stochflow.truth.automaton import AutomatonReward

_MAX_KMERS = 4096  # of one length at one position
_PENALTIES = [4.0**power for power in range(-4, 7)]
_LEAST = 1e-9  # of the largest eigenvalue: those below it are rounding


class PlacedKmers:
    """The k-mers of at most `longest` letters that end at each position, every one with a number of its own.

    >>> kmers = PlacedKmers(2, 3, longest=2)
    >>> kmers.design(torch.tensor([[0, 1, 1]])).indices.tolist()  # 0, 1 and 01, 1 and 11
    [0, 7, 9, 13, 17]
    """

    def __init__(self, num_tokens: int, length: int, longest: int) -> None:
        self.num_tokens, self.length = num_tokens, length
        self.longest = max(k for k in range(1, min(longest, length) + 1) if k == 1 or num_tokens**k <= _MAX_KMERS)
        self._sizes = [num_tokens**k for k in range(1, self.longest + 1)]
        self.num = length * sum(self._sizes)

    def _numbers(self, position: int, windows: Tensor) -> Tensor:
        """Numbers of the k-mers that end at a position, from its last letters as one code; [n] → [n, k-mers]."""
        first, found = position * sum(self._sizes), []
        for size in self._sizes[: position + 1]:
            found.append(first + windows % size)
            first += size
        return torch.stack(found, dim=1)

    def design(self, tokens: Tensor) -> sparse.csr_matrix:
        """One in the columns of the k-mers of each sequence; [n, L] → [n, num]."""
        windows, columns = torch.zeros(len(tokens), dtype=torch.int64), []
        for position, letters in enumerate(tokens.T):
            windows = (windows * self.num_tokens + letters) % self._sizes[-1]
            columns.append(self._numbers(position, windows))
        numbers = torch.cat(columns, dim=1)
        rows = torch.arange(len(tokens) + 1) * numbers.shape[1]
        ones = torch.ones(numbers.numel(), dtype=torch.float64)
        return sparse.csr_matrix((ones.numpy(), numbers.flatten().numpy(), rows.numpy()), (len(tokens), self.num))

    def automaton(self, weights: Tensor, constant: float) -> AutomatonReward:
        """log R = constant + Σ weights of k-mers as a sum along the automaton of (position, last letters)."""
        sizes = [min(self.num_tokens**position, self._sizes[-1] // self.num_tokens) for position in range(self.length)]
        transitions, steps, first = [], [], 0
        for position, (size, following) in enumerate(zip(sizes, [*sizes[1:], 1], strict=True)):
            windows, first = torch.arange(size * self.num_tokens), first + size
            transitions.append(first + windows % following)
            steps.append(weights[self._numbers(position, windows)].sum(dim=1))
        end = torch.full((self.num_tokens,), first)
        shape = (first + 1, self.num_tokens)
        automaton = ScoreAutomaton(torch.cat([*transitions, end]).view(shape), torch.ones(shape[0]).double())
        terminal = torch.full((shape[0],), constant, dtype=torch.float64)
        return AutomatonReward(automaton, terminal, torch.cat([*steps, end.new_zeros(end.shape).double()]).view(shape))


class Ridge(NamedTuple):
    """A ridge regression y ≈ mean + Xw.

    Attributes:
        weights: w, float64, [num].
        mean: of y.
    """

    weights: Tensor
    mean: float


def fit_ridge(design: sparse.csr_matrix, targets: Tensor) -> Ridge:
    """The ridge regression with the smallest leave-one-out error; all weights are zero if the mean has a smaller one.

    One eigendecomposition, of XᵀX or XXᵀ, whichever is smaller, serves all penalties, and the error of a row that is
    left out is its residual over one minus its leverage. The mean is that of all rows.

    Args:
        design: X, [n, num].
        targets: y, float64, [n].
    """
    mean = float(targets.mean())
    centred = targets - mean
    wide = design.shape[0] <= design.shape[1]
    values, vectors = torch.linalg.eigh(torch.from_numpy((design @ design.T if wide else design.T @ design).toarray()))
    kept = values > _LEAST * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    # left singular vectors, [n, rank]
    left = vectors if wide else torch.from_numpy(design @ vectors.numpy()) / values.sqrt()
    projected, squares = left.T @ centred, left.square()

    def squared_error(penalty: float) -> float:
        shares = values / (values + penalty)
        return float(((centred - left @ (shares * projected)) / (1.0 - squares @ shares)).square().sum())

    errors = {penalty: squared_error(penalty) for penalty in _PENALTIES}
    penalty = min(errors, key=errors.__getitem__)
    if not errors[penalty] < float(centred.square().sum()):
        return Ridge(torch.zeros(design.shape[1], dtype=torch.float64), mean)
    return Ridge(torch.from_numpy(design.T @ (left @ (projected / (values + penalty))).numpy()), mean)
