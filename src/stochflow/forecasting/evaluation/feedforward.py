"""A plain neural baseline: the last values in, quantiles of all steps ahead out."""

import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from stochflow.core.errors import DataError
from stochflow.forecasting.evaluation.baselines import Array, Mask, require_values
from stochflow.forecasting.model.seasonality import Rhythm

# levels that the network learns; others lie on lines between them
KNOTS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
MAX_WINDOW = 168
MIN_ROWS = 10
VALIDATION_SHARE = 0.2
CHECK_EVERY, PATIENCE = 20, 5


@dataclass
class FeedForward:
    """Window → two hidden layers → quantiles of every step, by the pinball loss, stopped early by the latest windows.

    Attributes:
        generator: draws initial weights and batches.
    """

    generator: torch.Generator
    width: int = 64
    learning_rate: float = 2e-3
    batch_size: int = 64
    max_steps: int = 400
    name: str = "FeedForward"

    def quantiles(self, y: Array, rhythm: Rhythm, horizon: int, levels: Array, observed: Mask) -> Array:
        require_values(y, observed)
        window = max(min(max(2 * rhythm.season, 14), MAX_WINDOW, len(y) // 4), 1)
        if len(y) - window - horizon + 1 < MIN_ROWS:
            raise DataError(
                f"{len(y)} values are too few to learn {horizon} steps from; "
                f"give at least {2 * (horizon + MIN_ROWS)} or a shorter horizon"
            )
        centre, spread = y.mean(), y.std() + 1e-9
        z = (y - centre) / spread
        starts = np.arange(window, len(y) + 1)
        inputs, last = _inputs(z, starts, window, rhythm)
        ahead = starts[: len(y) - window - horizon + 1, None] + np.arange(horizon)
        targets = torch.as_tensor(z[ahead] - z[ahead[:, :1] - 1], dtype=torch.float32)
        network = self._trained(inputs[: len(ahead)], targets, torch.as_tensor(observed[ahead]))
        with torch.no_grad():
            knots = network(inputs[-1:])[0].sort(dim=0).values.double().numpy()
        learned = np.stack([np.interp(levels, KNOTS, column) for column in knots.T], axis=1)
        values = (learned + last[-1]) * spread + centre
        return np.maximum(values, 0.0) if (y >= 0).all() else values

    def _trained(self, inputs: Tensor, targets: Tensor, observed: Tensor) -> nn.Module:
        """The network with the best pinball loss on the latest rows; [rows, D], [rows, H], [rows, H]."""
        num = int(len(inputs) * (1 - VALIDATION_SHARE))
        network = _network(inputs.shape[1], self.width, targets.shape[1], self.generator)
        optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        best, lowest, since = network, float("inf"), 0
        for step in range(self.max_steps):
            if step % CHECK_EVERY == 0:
                with torch.no_grad():
                    loss = float(pinball_loss(network(inputs[num:]), targets[num:], observed[num:]))
                since = 0 if loss < lowest else since + 1
                if loss < lowest:
                    best, lowest = copy.deepcopy(network), loss
                if since == PATIENCE:
                    break
            picked = torch.randint(num, (self.batch_size,), generator=self.generator)
            optimiser.zero_grad()
            pinball_loss(network(inputs[picked]), targets[picked], observed[picked]).backward()
            optimiser.step()
        return best


def pinball_loss(knots: Tensor, targets: Tensor, observed: Tensor) -> Tensor:
    """Mean of max(q d, (q − 1) d) with d = target − quantile; knots [rows, Q, H], targets and observed [rows, H]."""
    level = torch.tensor(KNOTS).unsqueeze(-1)
    missed = targets.unsqueeze(1) - knots
    loss = torch.maximum(level * missed, (level - 1) * missed).mean(dim=1)
    return (loss * observed).sum() / observed.sum().clamp_min(1)


def _inputs(z: Array, starts: np.ndarray, window: int, rhythm: Rhythm) -> tuple[Tensor, Array]:
    """Windows before each start, relative to their last value, with it and the calendar, [rows, D]; and that value."""
    windows = np.lib.stride_tricks.sliding_window_view(z, window)[starts - window]
    last = windows[:, -1]
    columns = [windows - last[:, None], last[:, None], rhythm.wave_values(starts.astype(float))]
    return torch.as_tensor(np.concatenate(columns, axis=1), dtype=torch.float32), last


def _network(num_inputs: int, width: int, horizon: int, generator: torch.Generator) -> nn.Sequential:
    """[rows, D] → [rows, Q, H]; weights uniform within 1/√inputs."""
    sizes = [num_inputs, width, width, len(KNOTS) * horizon]
    layers = [nn.utils.skip_init(nn.Linear, before, after) for before, after in pairwise(sizes)]
    with torch.no_grad():
        for layer in layers:
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.zero_()
    first, second, third = layers
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.Unflatten(1, (len(KNOTS), horizon)))
