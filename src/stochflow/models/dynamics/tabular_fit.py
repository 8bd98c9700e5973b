"""Adam on the tables of P̂ with a gradient in closed form: what matters of a batch are its counts."""

import math

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Ints
from stochflow.core.torch_kernels import ADAM_EPSILON, BETA_1, BETA_2
from stochflow.models.dynamics.tabular import DynamicsModel, counted_gradient, table_log_probs

_NORM_MARGIN = 1e-6  # that of torch.nn.utils.clip_grad_norm_


class TableAdam:
    """`torch.optim.Adam` with a gradient clip on tables so small that calling torch is the cost.

    The tables are one array with the intention's table first, [K, 1 + L, K], or [K, 1, K] without positions. Outcomes
    stand in front: sums over them are then sums of whole rows, which numpy computes in a fraction of the time.
    """

    def __init__(self, model: DynamicsModel, clip: float) -> None:
        if not model.tabular:
            raise ValueError("only a model that is nothing but tables can be learned from counts")
        self._clip, self._by_position = clip, model.position is not None
        self._weights = [model.intention, *([] if model.position is None else [model.position])]
        self._possible = None if model.possible is None else model.possible.cpu().numpy().T[:, None]
        self._step = 0
        self._means, self._squares = np.zeros_like(self._tables()), np.zeros_like(self._tables())

    def fit(self, counts: Ints, learning_rate: float) -> np.ndarray:
        """One update per table of transition counts, in turn; [rounds, L, K, K] → losses, [rounds]."""
        tables = self._tables()
        self._convert(tables.dtype)
        shares = counts.transpose(3, 0, 1, 2).astype(tables.dtype, order="C")
        shares /= np.maximum(np.add.reduce(counts, axis=(1, 2, 3)), 1)[:, None, None].astype(tables.dtype)
        if not self._by_position:
            shares = np.add.reduce(shares, axis=2, keepdims=True)
        explained = shares if self._possible is None else shares * self._possible[:, None]
        totals, logits = np.add.reduce(explained, axis=0), np.empty_like(shares)
        for number, total in enumerate(totals):
            before = logits[:, number]
            before[:] = self._logits(tables)
            self._update(tables, self._gradient(before, explained[:, number], total), learning_rate)
        self._write(tables)
        possible = None if self._possible is None else self._possible[:, None]
        # in an order that does not depend on how many rounds there are
        losses = np.add.reduce(shares * table_log_probs(logits, possible), axis=0)
        return -np.add.reduce(losses.reshape(len(losses), -1), axis=1)

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and step counts by parameter number; nothing before the first update."""
        if not self._step:
            return {}
        state: dict[str, Tensor] = {}
        for number, (mean, square) in enumerate(zip(self._split(self._means), self._split(self._squares), strict=True)):
            state[f"{number}.step"] = torch.tensor(float(self._step))
            state[f"{number}.exp_avg"], state[f"{number}.exp_avg_sq"] = map(torch.tensor, (mean, square))
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._step, self._means[:], self._squares[:] = 0, 0.0, 0.0
        if state:
            self._step = int(state["0.step"])
            self._convert(state["0.exp_avg"].numpy().dtype)
            for kind, moments in (("exp_avg", self._means), ("exp_avg_sq", self._squares)):
                for number, part in enumerate(self._split(moments)):
                    part[:] = state[f"{number}.{kind}"].cpu().numpy()

    def _convert(self, dtype: np.dtype) -> None:
        """Follow the model's precision, which may have changed."""
        self._means, self._squares = (each.astype(dtype, copy=False) for each in (self._means, self._squares))

    def _logits(self, tables: np.ndarray) -> np.ndarray:
        """Of P̂(b|t,a), [K, L or 1, K]."""
        return tables[:, :1] + tables[:, 1:] if self._by_position else tables

    def _gradient(self, logits: np.ndarray, explained: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """What `counted_gradient` finds, in the tables themselves."""
        gradient = np.empty_like(self._means)
        into = gradient[:, 1:] if self._by_position else gradient
        counted_gradient(logits, explained, totals, self._possible, into)
        if self._by_position:
            np.add.reduce(into, axis=1, out=gradient[:, 0])
        return gradient

    def _update(self, tables: np.ndarray, gradient: np.ndarray, learning_rate: float) -> None:
        flat = gradient.reshape(-1)
        norm = math.sqrt(np.dot(flat, flat))
        if norm > self._clip - _NORM_MARGIN:
            gradient *= min(self._clip / (norm + _NORM_MARGIN), 1.0)
        self._step += 1
        self._means += (1.0 - BETA_1) * (gradient - self._means)
        gradient *= gradient
        gradient -= self._squares
        gradient *= 1.0 - BETA_2
        self._squares += gradient
        # both corrections of Adam as one factor of the step
        root = math.sqrt(1.0 - BETA_2**self._step)
        spread = np.sqrt(self._squares)
        spread += ADAM_EPSILON * root
        np.divide(self._means, spread, out=spread)
        spread *= learning_rate * root / (1.0 - BETA_1**self._step)
        tables -= spread

    def _tables(self) -> np.ndarray:
        """What the model's weights are now."""
        arrays = [weight.detach().cpu().numpy() for weight in self._weights]
        num_tokens, num_rows = arrays[0].shape[0], 1 + sum(len(weight) for weight in arrays[1:])
        found = np.empty((num_tokens, num_rows, num_tokens), arrays[0].dtype)
        for part, weight in zip(self._split(found), arrays, strict=True):
            part[:] = weight
        return found

    @torch.no_grad()
    def _write(self, tables: np.ndarray) -> None:
        for weight, part in zip(self._weights, self._split(tables), strict=True):
            weight.copy_(torch.from_numpy(part))

    def _split(self, tables: np.ndarray) -> list[np.ndarray]:
        """Views of what belongs to each parameter, in its shape, [K, K] and perhaps [L, K, K]."""
        own = tables.transpose(1, 2, 0)
        return [own[0], own[1:]] if self._by_position else [own[0]]
