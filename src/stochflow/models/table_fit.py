"""Adam on the tables of P̂ with a gradient in closed form: what matters of a batch are its counts."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.models.dynamics import DynamicsModel, counted_gradient, table_log_probs

# those of torch.optim.Adam and torch.nn.utils.clip_grad_norm_
_DECAY_MEAN, _DECAY_SQUARE, _EPSILON, _NORM_MARGIN = 0.9, 0.999, 1e-8, 1e-6


class TableDescent:
    """The updates of `torch.optim.Adam` with a gradient clip, on tables so small that calling torch is the cost.

    One model or several of a kind, each for itself. All tables are one array, [models, 1 + L, K, K] with the
    intention's table first, or [models, 1, K, K] without positions.
    """

    def __init__(self, models: Sequence[DynamicsModel], clip: float) -> None:
        if not all(model.tabular for model in models):
            raise ValueError("only a model that is nothing but tables can be learned from counts")
        self._models, self._clip, first = models, clip, models[0]
        self._by_position = first.position is not None
        self._possible = None if first.possible is None else first.possible.cpu().numpy()
        self._step = 0
        self._means, self._squares = np.zeros_like(self._tables()), np.zeros_like(self._tables())

    def fit(self, counts: npt.NDArray[np.int64], learning_rate: float) -> np.ndarray:
        """One update per table of transition counts, in turn; [rounds, models, L, K, K] → losses, [rounds, models]."""
        tables = self._tables()
        self._convert(tables.dtype)
        shares = counts.astype(tables.dtype)
        shares /= np.maximum(np.add.reduce(shares, axis=(2, 3, 4), keepdims=True), 1.0)
        if not self._by_position:
            shares = np.add.reduce(shares, axis=2, keepdims=True)
        explained = shares if self._possible is None else shares * self._possible
        totals = np.add.reduce(explained, axis=-1, keepdims=True)
        logits = np.empty_like(shares)
        for before, explains, total in zip(logits, explained, totals, strict=True):
            before[:] = tables[:, :1] + tables[:, 1:] if self._by_position else tables
            self._update(tables, self._gradient(before, explains, total), learning_rate)
        self._write(tables)
        return -np.einsum("rmlab,rmlab->rm", shares, table_log_probs(logits, self._possible))

    def state_dict(self, model: int = 0) -> dict[str, Tensor]:
        """Moments and step counts of a model by parameter number; nothing before the first update."""
        if not self._step:
            return {}
        state: dict[str, Tensor] = {}
        moments = zip(self._split(self._means[model]), self._split(self._squares[model]), strict=True)
        for number, (mean, square) in enumerate(moments):
            state[f"{number}.step"] = torch.tensor(float(self._step))
            state[f"{number}.exp_avg"], state[f"{number}.exp_avg_sq"] = mean.clone(), square.clone()
        return state

    def load_state_dict(self, state: dict[str, Tensor], model: int = 0) -> None:
        self._step, self._means[model], self._squares[model] = 0, 0.0, 0.0
        if state:
            numbers = range(1 + self._by_position)
            self._step = int(state["0.step"])
            means = _joined([state[f"{number}.exp_avg"] for number in numbers])
            self._convert(means.dtype)
            self._means[model] = means
            self._squares[model] = _joined([state[f"{number}.exp_avg_sq"] for number in numbers])

    def _convert(self, dtype: np.dtype) -> None:
        """Follow the models' precision, which somebody may have changed."""
        self._means, self._squares = (each.astype(dtype, copy=False) for each in (self._means, self._squares))

    def _gradient(self, logits: np.ndarray, explained: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """What `counted_gradient` finds, in the tables themselves."""
        gradient = np.empty_like(self._means)
        into = gradient[:, 1:] if self._by_position else gradient
        counted_gradient(logits, explained, totals, self._possible, into)
        if self._by_position:
            np.add.reduce(gradient[:, 1:], axis=1, out=gradient[:, 0])
        return gradient

    def _update(self, tables: np.ndarray, gradient: np.ndarray, learning_rate: float) -> None:
        flat = gradient.reshape(len(gradient), -1)
        squares = np.add.reduce(flat * flat, axis=1)
        if np.maximum.reduce(squares) > (self._clip - _NORM_MARGIN) ** 2:
            shares = self._clip / (np.sqrt(squares) + _NORM_MARGIN)
            gradient *= np.minimum(shares, 1.0)[:, None, None, None]
        self._step += 1
        self._means += (1.0 - _DECAY_MEAN) * (gradient - self._means)
        gradient *= gradient
        gradient -= self._squares
        gradient *= 1.0 - _DECAY_SQUARE
        self._squares += gradient
        # both corrections of Adam as one factor of the step
        root = math.sqrt(1.0 - _DECAY_SQUARE**self._step)
        spread = np.sqrt(self._squares)
        spread += _EPSILON * root
        np.divide(self._means, spread, out=spread)
        spread *= learning_rate * root / (1.0 - _DECAY_MEAN**self._step)
        tables -= spread

    def _tables(self) -> np.ndarray:
        return np.stack([_joined([weight.detach() for weight in self._weights(model)]) for model in self._models])

    @torch.no_grad()
    def _write(self, tables: np.ndarray) -> None:
        for model, table in zip(self._models, tables, strict=True):
            for weight, part in zip(self._weights(model), self._split(table), strict=True):
                weight.copy_(part)

    def _weights(self, model: DynamicsModel) -> list[Tensor]:
        return [model.intention] if model.position is None else [model.intention, model.position]

    def _split(self, tables: np.ndarray) -> list[Tensor]:
        """The array of one model as one tensor per parameter."""
        first, others = torch.from_numpy(tables[0]), torch.from_numpy(tables[1:])
        return [first, others] if self._by_position else [first]


def _joined(tensors: list[Tensor]) -> np.ndarray:
    """Tables [K, K] and perhaps [L, K, K] as one array of its own."""
    return np.concatenate([tensor.cpu().numpy().reshape(-1, *tensor.shape[-2:]) for tensor in tensors])
