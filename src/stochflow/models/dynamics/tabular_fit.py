"""Adam on the tables of P̂ with a gradient in closed form: what matters of a batch are its counts."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.models.dynamics.tabular import DynamicsModel, counted_gradient, table_log_probs

# those of torch.optim.Adam and torch.nn.utils.clip_grad_norm_
_DECAY_MEAN, _DECAY_SQUARE, _EPSILON, _NORM_MARGIN = 0.9, 0.999, 1e-8, 1e-6


class TableDescent:
    """The updates of `torch.optim.Adam` with a gradient clip, on tables so small that calling torch is the cost.

    One model or several of a kind, each for itself. All tables are one array with the intention's table first,
    [K, models, 1 + L, K], or [K, models, 1, K] without positions. Outcomes stand in front: sums over them are then sums
    of whole rows, which numpy makes in a fraction of the time.
    """

    def __init__(self, models: Sequence[DynamicsModel], clip: float) -> None:
        if not all(model.tabular for model in models):
            raise ValueError("only a model that is nothing but tables can be learned from counts")
        self._clip, first = clip, models[0]
        self._by_position = first.position is not None
        self._weights = [[model.intention, *([] if model.position is None else [model.position])] for model in models]
        self._possible = None if first.possible is None else first.possible.cpu().numpy().T[:, None, None]
        self._step, self._fitted = 0, self._tables()
        self._means, self._squares = np.zeros_like(self._fitted), np.zeros_like(self._fitted)

    def fit(self, counts: npt.NDArray[np.int64], learning_rate: float) -> np.ndarray:
        """One update per table of transition counts, in turn; [rounds, models, L, K, K] → losses, [rounds, models]."""
        tables = self._tables()
        self._convert(tables.dtype)
        shares = counts.transpose(4, 0, 1, 2, 3).astype(tables.dtype, order="C")
        shares /= np.maximum(np.add.reduce(counts, axis=(2, 3, 4)), 1)[:, :, None, None].astype(tables.dtype)
        if not self._by_position:
            shares = np.add.reduce(shares, axis=3, keepdims=True)
        explained = shares if self._possible is None else shares * self._possible[:, None]
        totals, logits = np.add.reduce(explained, axis=0), np.empty_like(shares)
        for number, total in enumerate(totals):
            before = logits[:, number]
            before[:] = self._logits(tables)
            self._update(tables, self._gradient(before, explained[:, number], total), learning_rate)
        self._write(tables)
        self._fitted = tables
        possible = None if self._possible is None else self._possible[:, None]
        # in an order that does not depend on how many rounds there are
        losses = np.add.reduce(shares * table_log_probs(logits, possible), axis=0)
        return -np.add.reduce(losses.reshape(*losses.shape[:2], -1), axis=2)

    def log_probs(self) -> np.ndarray:
        """log P̂(b|t,a) of every model as the last `fit` left it, [models, L or 1, K, K]."""
        found = table_log_probs(self._logits(self._fitted), self._possible)
        return np.ascontiguousarray(found.transpose(1, 2, 3, 0))

    def state_dict(self, model: int = 0) -> dict[str, Tensor]:
        """Moments and step counts of a model by parameter number; nothing before the first update."""
        if not self._step:
            return {}
        state: dict[str, Tensor] = {}
        moments = zip(self._split(self._means, model), self._split(self._squares, model), strict=True)
        for number, (mean, square) in enumerate(moments):
            state[f"{number}.step"] = torch.tensor(float(self._step))
            state[f"{number}.exp_avg"], state[f"{number}.exp_avg_sq"] = map(torch.tensor, (mean, square))
        return state

    def load_state_dict(self, state: dict[str, Tensor], model: int = 0) -> None:
        self._step, self._means[:, model], self._squares[:, model] = 0, 0.0, 0.0
        if state:
            self._step = int(state["0.step"])
            self._convert(state["0.exp_avg"].numpy().dtype)
            for kind, moments in (("exp_avg", self._means), ("exp_avg_sq", self._squares)):
                for number, part in enumerate(self._split(moments, model)):
                    part[:] = state[f"{number}.{kind}"].cpu().numpy()

    def _convert(self, dtype: np.dtype) -> None:
        """Follow the models' precision, which somebody may have changed."""
        self._means, self._squares = (each.astype(dtype, copy=False) for each in (self._means, self._squares))

    def _logits(self, tables: np.ndarray) -> np.ndarray:
        """Of P̂(b|t,a), [K, models, L or 1, K]."""
        return tables[:, :, :1] + tables[:, :, 1:] if self._by_position else tables

    def _gradient(self, logits: np.ndarray, explained: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """What `counted_gradient` finds, in the tables themselves."""
        gradient = np.empty_like(self._means)
        into = gradient[:, :, 1:] if self._by_position else gradient
        counted_gradient(logits, explained, totals, self._possible, into)
        if self._by_position:
            np.add.reduce(into, axis=2, out=gradient[:, :, 0])
        return gradient

    def _update(self, tables: np.ndarray, gradient: np.ndarray, learning_rate: float) -> None:
        flat, most = gradient.reshape(-1), (self._clip - _NORM_MARGIN) ** 2
        if np.dot(flat, flat) > most:  # otherwise none of the models can be beyond the clip
            squares = np.add.reduce(gradient * gradient, axis=(0, 2, 3))
            shares = self._clip / (np.sqrt(np.maximum(squares, most)) + _NORM_MARGIN)
            gradient *= np.minimum(shares, 1.0)[:, None, None]
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
        """What the models' weights are now."""
        arrays = [[weight.detach().cpu().numpy() for weight in weights] for weights in self._weights]
        num_tokens, num_rows = arrays[0][0].shape[0], 1 + sum(len(weight) for weight in arrays[0][1:])
        found = np.empty((num_tokens, len(arrays), num_rows, num_tokens), arrays[0][0].dtype)
        for model, weights in enumerate(arrays):
            for part, weight in zip(self._split(found, model), weights, strict=True):
                part[:] = weight
        return found

    @torch.no_grad()
    def _write(self, tables: np.ndarray) -> None:
        for number, weights in enumerate(self._weights):
            for weight, part in zip(weights, self._split(tables, number), strict=True):
                weight.copy_(torch.from_numpy(part))

    def _split(self, tables: np.ndarray, model: int) -> list[np.ndarray]:
        """Views of what belongs to each parameter of a model, in its shape, [K, K] and perhaps [L, K, K]."""
        own = tables[:, model].transpose(1, 2, 0)
        return [own[0], own[1:]] if self._by_position else [own[0]]
