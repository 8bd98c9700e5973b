"""Adam on the tables of P̂ with a gradient in closed form: what matters of a batch are its counts."""

import math

import numpy as np
import torch
from torch import Tensor

from stochflow.models.dynamics import DynamicsModel, counted_cross_entropy

# those of torch.optim.Adam and torch.nn.utils.clip_grad_norm_
_DECAY_MEAN, _DECAY_SQUARE, _EPSILON, _NORM_MARGIN = 0.9, 0.999, 1e-8, 1e-6


class TableDescent:
    """The updates of `torch.optim.Adam` with a gradient clip, on tables so small that calling torch is the cost.

    All tables are one array, [1 + L, K, K] with the intention's table first, or [1, K, K] without positions.
    """

    def __init__(self, model: DynamicsModel, clip: float) -> None:
        if not model.tabular:
            raise ValueError("only a model that is nothing but tables can be learned from counts")
        self._model, self._clip = model, clip
        self._parameters = [model.intention] if model.position is None else [model.intention, model.position]
        self._possible = None if model.possible is None else model.possible.cpu().numpy()
        self._step = 0
        self._means, self._squares = np.zeros_like(self._tables()), np.zeros_like(self._tables())

    def fit(self, counts: Tensor, learning_rate: float) -> list[float]:
        """One update per table of transition counts, in turn; [rounds, L, K, K] → the loss before each."""
        tables = self._tables()
        losses = []
        observed = counts.numpy().astype(tables.dtype)
        observed /= observed.sum(axis=(1, 2, 3), keepdims=True).clip(min=1.0)
        for shares in observed:
            loss, gradient = self._loss_and_gradient(tables, shares)
            losses.append(loss)
            self._update(tables, gradient, learning_rate)
        self._write(tables)
        return losses

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and step counts by parameter number; nothing before the first update."""
        if not self._step:
            return {}
        state: dict[str, Tensor] = {}
        moments = zip(self._split(self._means), self._split(self._squares), strict=True)
        for number, (mean, square) in enumerate(moments):
            state[f"{number}.step"] = torch.tensor(float(self._step))
            state[f"{number}.exp_avg"], state[f"{number}.exp_avg_sq"] = mean.clone(), square.clone()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._step, self._means, self._squares = 0, np.zeros_like(self._means), np.zeros_like(self._squares)
        if state:
            numbers = range(len(self._parameters))
            self._step = int(state["0.step"])
            self._means = _joined([state[f"{number}.exp_avg"] for number in numbers])
            self._squares = _joined([state[f"{number}.exp_avg_sq"] for number in numbers])

    def _loss_and_gradient(self, tables: np.ndarray, shares: np.ndarray) -> tuple[float, np.ndarray]:
        if self._model.position is None:
            return counted_cross_entropy(tables, shares.sum(axis=0, keepdims=True), self._possible)
        gradient = np.empty_like(tables)
        loss, gradient[1:] = counted_cross_entropy(tables[0] + tables[1:], shares, self._possible)
        np.add.reduce(gradient[1:], axis=0, out=gradient[0])
        return loss, gradient

    def _update(self, tables: np.ndarray, gradient: np.ndarray, learning_rate: float) -> None:
        norm = math.sqrt(np.vdot(gradient, gradient))
        gradient *= min(self._clip / (norm + _NORM_MARGIN), 1.0)
        self._step += 1
        self._means += (1.0 - _DECAY_MEAN) * (gradient - self._means)
        self._squares += (1.0 - _DECAY_SQUARE) * (gradient * gradient - self._squares)
        spread = np.sqrt(self._squares) / math.sqrt(1.0 - _DECAY_SQUARE**self._step) + _EPSILON
        tables -= learning_rate / (1.0 - _DECAY_MEAN**self._step) * self._means / spread

    def _tables(self) -> np.ndarray:
        return _joined([parameter.detach() for parameter in self._parameters])

    @torch.no_grad()
    def _write(self, tables: np.ndarray) -> None:
        for parameter, table in zip(self._parameters, self._split(tables), strict=True):
            parameter.copy_(table)

    def _split(self, tables: np.ndarray) -> list[Tensor]:
        """The array as one tensor per parameter."""
        first, others = torch.from_numpy(tables[0]), torch.from_numpy(tables[1:])
        return [first] if self._model.position is None else [first, others]


def _joined(tensors: list[Tensor]) -> np.ndarray:
    """Tables [K, K] and perhaps [L, K, K] as one array of its own."""
    return torch.cat([tensor.cpu().reshape(-1, *tensor.shape[-2:]) for tensor in tensors]).numpy()
