"""Losses over trajectories and states with closed-form gradients in the network's outputs (logits and log-flows).

For small batches the autograd graph of a loss costs more than the loss itself. The gradient of log softmax(z)[a] is
onehot(a) − softmax(z), so each term contributes coefficient·(onehot(action) − policy). The contributions are added up
in `gradient`, an array shaped like the outputs, which goes to `Evaluation.backward`. Tests compare every function here
with autograd on the textbook formula.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from stochflow.core.arrays import Array
from stochflow.core.logspace import TINY_PROBABILITY

_MANY = 256  # rows of a softmax


def log_softmax(logits: Array) -> tuple[Array, Array]:
    """log softmax over the last dimension, and its exponential; same shape."""
    if logits.size > _MANY * logits.shape[-1]:
        return _log_softmax_by_column(logits)
    centred = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    weights = np.exp(centred)
    sums = np.add.reduce(weights, axis=-1, keepdims=True)
    return centred - np.log(sums), weights / sums


def _log_softmax_by_column(logits: Array) -> tuple[Array, Array]:
    """The same numbers; for many rows of a few numbers, which numpy would go through one by one, half of the time."""
    centred = logits.transpose(logits.ndim - 1, *range(logits.ndim - 1)).copy()
    centred -= np.maximum.reduce(centred, axis=0)
    weights = np.exp(centred)
    sums = np.add.reduce(weights, axis=0)
    centred -= np.log(sums)
    weights /= sums
    back = (*range(1, logits.ndim), 0)
    return centred.transpose(back), weights.transpose(back)


def log_sum(values: Array) -> Array:
    """log Σ exp over the last dimension; [..., n] → [...]."""
    columns = values.transpose(values.ndim - 1, *range(values.ndim - 1)).copy()  # see `_log_softmax_by_column`
    peak = np.maximum.reduce(columns, axis=0)
    columns -= peak
    total: Array = peak + np.log(np.add.reduce(np.exp(columns, out=columns), axis=0))
    return total


def silent() -> np.errstate:
    """A context without warnings of numbers that are not finite, as in torch: the trainer names them."""
    return np.errstate(all="ignore")


class PathGradient(NamedTuple):
    """A loss over whole paths and its gradient.

    Attributes:
        loss: a scalar.
        ratio: in log π + log P̂ − log π_B of every step, [batch, time].
        flow: in log F of every state but the last, [batch, time].
    """

    loss: Any
    ratio: Array
    flow: Array


@lru_cache(maxsize=64)
def _log_completions(num_tokens: int, length: int) -> Array:
    """(L − t)·log K of every depth but the last, in the precision in which the network counts completions, [L]."""
    return np.arange(length, 0, -1, dtype=np.float32) * np.float32(math.log(num_tokens))


@lru_cache(maxsize=64)
def _places(num_rows: int, length: int) -> tuple[Array, Array]:
    """Numbers of rows and of steps, [num_rows, 1] and [L]: what picks one entry of each."""
    return np.arange(num_rows)[:, None], np.arange(length)


class PathOutputs:
    """The heads along the paths of a batch, and the gradient of a loss in them as it is added up.

    Attributes:
        log_policy: log π(·|s_t), [batch, time, K].
        log_flow: log F(s_t), [batch, time].
        gradient: d loss/d outputs so far, in their shape.
    """

    def __init__(self, rows: Array, num_tokens: int, length: int) -> None:
        """The three heads side by side, [batch, levels, n]."""
        self._rows, self.num_tokens, self._length = rows, num_tokens, length
        self.log_policy, self._policy = log_softmax(self._rows[:, :length, :num_tokens])
        self.log_flow = self._rows[:, :length, -1] + _log_completions(num_tokens, length)
        self.gradient = np.zeros(self._rows.shape, self._rows.dtype)
        self._places = _places(len(self._rows), length)

    def log_forward(self, actions: Array) -> Array:
        """log π(a_t|s_t); [batch, time] → [batch, time]."""
        return self._chosen(self.log_policy, actions)

    def log_backward(self, intentions: Array) -> Array:
        """log π_B(a_t|s_{t+1}); [batch, time] → [batch, time]."""
        num = self.num_tokens
        log_backward, self._backward = log_softmax(self._rows[:, 1:, num : 2 * num])
        return self._chosen(log_backward, intentions)

    def log_dynamics(self, log_matrices: Array, intentions: Array, outcomes: Array) -> Array:
        """log P̂(b_t|s_t,a_t); [batch or 1, time, K, K], [batch, time] twice → [batch, time]."""
        return log_matrices[self._tables(log_matrices), self._places[1], intentions, outcomes]

    def log_likelihood(self, log_matrices: Array, outcomes: Array) -> Array:
        """log P̂(b_t|s_t,a) of every intention a; [batch or 1, time, K, K], [batch, time] → [batch, time, K]."""
        return log_matrices[self._tables(log_matrices), self._places[1], :, outcomes]

    def add_grad_forward(self, coefficient: Array, choice: Array) -> None:
        """Add the gradient of Σ coefficient·log Σ_a π(a|s_t)·w(a), where `choice` is the share of each a in the sum.

        Args:
            coefficient: [batch, time].
            choice: [batch, time, K], or the one intention there is, [batch, time].
        """
        into = self.gradient[:, : self._length, : self.num_tokens]
        self._add_grad(into, coefficient, choice, self._policy)

    def add_grad_backward(self, coefficient: Array, intentions: Array) -> None:
        """The same for log π_B(a_t|s_{t+1})."""
        into = self.gradient[:, 1:, self.num_tokens : 2 * self.num_tokens]
        self._add_grad(into, coefficient, intentions, self._backward)

    def add_grad_flow(self, coefficient: Array) -> None:
        """The same for log F(s_t)."""
        self.gradient[:, : self._length, -1] += coefficient

    def entropies(self) -> Array:
        """h(s_t) = H(π(·|s_t))/log K, [batch, time]; zero for a single action."""
        scale = -1.0 / math.log(self.num_tokens) if self.num_tokens > 1 else 0.0
        found: Array = scale * np.add.reduce(self._policy * self.log_policy, axis=-1)
        return found

    def add_grad_entropies(self, coefficient: Array, entropies: Array) -> None:
        """Add the gradient of Σ coefficient·h(s_t); [batch, time] each."""
        if self.num_tokens > 1:
            log_scale = math.log(self.num_tokens)
            surprise = self.log_policy + (log_scale * entropies)[..., None]
            self.gradient[:, : self._length, : self.num_tokens] -= (
                (coefficient / log_scale)[..., None] * self._policy * surprise
            )

    def _tables(self, log_matrices: Array) -> Array:
        """Which of the tables is that of a row: its own, or the one of all; [batch, 1]."""
        return self._places[0] if len(log_matrices) > 1 else np.zeros_like(self._places[0])

    def _add_grad(self, into: Array, coefficient: Array, choice: Array, policy: Array) -> None:
        into -= coefficient[..., None] * policy
        if choice.ndim == coefficient.ndim:
            into[self._places[0], self._places[1], choice] += coefficient
        else:
            into += coefficient[..., None] * choice

    def _chosen(self, table: Array, actions: Array) -> Array:
        chosen: Array = table[self._places[0], self._places[1], actions]
        return chosen


class StateOutputs:
    """The heads at some states, and the gradient of a loss in them as it is added up.

    Attributes:
        log_policy: log π(·|s), [rows, K].
        log_flow: log F(s), [rows].
        gradient: d loss/d outputs so far, in their shape.
    """

    def __init__(self, rows: Array, num_tokens: int, left: Array) -> None:
        """The three heads side by side, [rows, n], and the decisions to come, [rows]."""
        self.log_policy, self._policy = log_softmax(rows[:, :num_tokens])
        self.log_flow = rows[:, -1] + left.astype(np.float32) * np.float32(math.log(num_tokens))
        self.gradient = np.zeros_like(rows)
        self._num_tokens = num_tokens

    @silent()
    def divergence(self, matrices: Array, sizes: Sequence[int], log_targets: Array, weights: Array) -> float:
        """Σ weight·KL(M(·|s)‖target) with M = πP; adds its gradient.

        Args:
            matrices: P̂(b|a) of every level, [levels, K, K].
            sizes: states of every level, which follow one another.
            log_targets: [rows, K].
            weights: [rows].
        """
        bounds = list(pairwise(accumulate(sizes, initial=0)))
        marginals, slopes = np.empty_like(self._policy), np.empty_like(self._policy)
        for (first, last), matrix in zip(bounds, matrices, strict=True):
            np.matmul(self._policy[first:last], matrix, out=marginals[first:last])
        gaps = np.log(marginals) - log_targets
        # the rows of P̂ sum to one, so what all gaps have in common makes no difference to the gradient
        for (first, last), matrix in zip(bounds, matrices, strict=True):
            np.matmul(gaps[first:last], matrix.T, out=slopes[first:last])
        self.add_grad_policy(weights[:, None] * self._policy * slopes)
        return float(weights @ np.add.reduce(marginals * gaps, axis=-1))

    @silent()
    def flow_loss(self, values: Array, weights: Array, share: float) -> float:
        """Σ weight·(log F(s) − value)²; adds the gradient of its share in the loss. [rows] each."""
        errors = self.log_flow - values
        coefficient = weights * errors
        self.gradient[:, -1] += (2.0 * share) * coefficient
        return float(coefficient @ errors)

    def imitation_loss(self, planned: Array, weights: Array, share: float) -> float:
        """Σ weight·KL(π*‖π) from planned policies, [rows, K]; adds the gradient of its share in the loss."""
        self.gradient[:, : self._num_tokens] += share * weights[:, None] * (self._policy - planned)
        log_planned = np.log(np.maximum(planned, TINY_PROBABILITY))
        return float(weights @ np.add.reduce(planned * (log_planned - self.log_policy), axis=-1))

    def add_grad_policy(self, coefficient: Array) -> None:
        """Add the gradient that follows from that in log π, [rows, K]."""
        shift = np.add.reduce(coefficient, axis=-1, keepdims=True)
        self.gradient[:, : self._num_tokens] += coefficient - self._policy * shift
