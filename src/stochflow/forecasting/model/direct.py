"""Direct networks: multi-step quantile regression on the last values of a series.

Paths of the linear ensemble are recursive, so an error of one step is carried on by the next ones. Direct forecasts of
all steps at once err differently, and a mixture of both is better than either. A few networks with different initial
weights and batches are trained by the pinball loss; the even ones predict differences from the last value, the odd ones
differences from the last season. Held-out windows choose the number of updates; the networks that are used are then
trained anew on all windows, so that they learn from the latest ones too.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import torch
from torch import Tensor, nn

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Index, Series
from stochflow.forecasting.model.linear_ensemble import forward
from stochflow.forecasting.model.seasonality import Seasonality

NUM_NETWORKS = 4
# quantile levels that the networks learn; others are interpolated
KNOTS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# windows of a series that training needs
MIN_ROWS = 10
# equally likely values per network that represent the distribution of a step
_NUM_VALUES = 100
_MIN_WINDOW, _MAX_WINDOW, _MIN_OBSERVED = 14, 168, 36
_WIDTH, _LEARNING_RATE, _BATCH_SIZE, MAX_STEPS = 64, 2e-3, 64, 400
_CHECK_EVERY, _PATIENCE = 20, 5
# decay of the exponential moving average of the weights
AVERAGING = 0.95
# share of the latest windows of each series that early stopping holds out
_HELD_OUT = 0.2
# upper bound of forecasts: so much above the largest value, in logarithms or in units of the largest value
_HEADROOM = 3.0


@dataclass(frozen=True)
class Scale:
    """Standardised transform z of y: y over its largest |y|, its logarithm or root if it has one, standardised."""

    transform: str
    unit: float
    centre: float
    spread: float
    most: float

    @classmethod
    def of(cls, y: Array) -> "Scale":
        """The scale of values [n]."""
        transform = "log" if (y > 0).all() else "root" if (y >= 0).all() else "identity"
        unit = float(np.abs(y).max()) or 1.0
        raw = forward(transform, y / unit)
        return cls(transform, unit, float(raw.mean()), float(raw.std()), float(raw.max()))

    def forward(self, y: Array) -> Array:
        """z of y, same shape."""
        return (forward(self.transform, y / self.unit) - self.centre) / self.spread

    def inverse(self, z: Array) -> Array:
        """y of z, same shape."""
        raw = np.minimum(z * self.spread + self.centre, self.most + _HEADROOM)
        match self.transform:
            case "log":
                raw = np.exp(raw)
            case "root":
                raw = np.maximum(raw, 0.0) ** 2
        return raw * self.unit


class DirectNetworks(nn.Module):
    """K networks with two hidden layers each, batched: [K, rows, D] → quantiles [K, rows, knots, horizon]."""

    def __init__(self, num: int, num_inputs: int, horizon: int, generator: torch.Generator) -> None:
        super().__init__()
        self.horizon = horizon
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise([num_inputs, _WIDTH, _WIDTH, len(KNOTS) * horizon]):
            drawn = torch.rand(num, before, after, generator=generator)
            self.weights.append(nn.Parameter((2 * drawn - 1) * before**-0.5))
            self.biases.append(nn.Parameter(torch.zeros(num, 1, after)))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, torch.relu(hidden) if number else hidden, weight)
        return hidden.unflatten(-1, (len(KNOTS), self.horizon))


@dataclass(frozen=True)
class Windows:
    """Training rows of K networks.

    Attributes:
        inputs: [rows, D].
        differences: targets less the base of each network, [K, rows, horizon].
        observed: 1 where the target was observed, [rows, horizon].
    """

    inputs: Tensor
    differences: Tensor
    observed: Tensor

    def at(self, index: Tensor) -> "Windows":
        """Rows by index, different ones for each network, [K, num] → [K, num, …]."""
        own = torch.arange(len(self.differences)).unsqueeze(-1)
        return Windows(self.inputs[index], self.differences[own, index], self.observed[index])


def direct_quantiles(
    panel: list[Series], seasonality: Seasonality, horizon: int, config: ForecastConfig
) -> dict[str, Array]:
    """Equally likely values of each step after the end of every series, by id, sorted, [values, horizon] each.

    Empty where direct networks are not used: without a network, with features known in advance, which they do not read,
    with irregular gaps, and from as many values on as a transformer would be tried.
    """
    known = sum(int(series.observed.sum()) for series in panel)
    wanted = config.network != "none" and config.direct_share > 0 and config.max_steps > 0
    if not wanted or known >= config.context_min_values:
        return {}
    window = window_length(seasonality, min(len(series) for series in panel))
    scales = {series.uid: Scale.of(series.y) for series in panel}
    used = [one for one in panel if one.is_plain(seasonality) and scales[one.uid].spread > 1e-9]
    # enough windows, and enough observed values in them
    used = [one for one in used if len(one) - window - horizon + 1 >= MIN_ROWS and one.observed.sum() >= _MIN_OBSERVED]
    if not used:
        return {}
    generator = torch.Generator().manual_seed(config.seed)
    scaled = [scales[one.uid].forward(one.y) for one in used]
    rows = [windows_of(one, z, seasonality, window, horizon, NUM_NETWORKS) for one, z in zip(used, scaled, strict=True)]
    network = train_direct(rows, min(MAX_STEPS, config.max_steps), generator)
    levels, found = (np.arange(_NUM_VALUES) + 0.5) / _NUM_VALUES, {}
    for series, z in zip(used, scaled, strict=True):
        values = quantiles_ahead(network, series, z, seasonality, window, levels).reshape(-1, horizon)
        found[series.uid] = np.sort(scales[series.uid].inverse(values), axis=0)
    return found


def window_length(seasonality: Seasonality, num: int) -> int:
    """Values that the networks read: two seasons, at least 14 and at most 168, and at most a quarter of `num`."""
    return max(min(max(2 * seasonality.season, _MIN_WINDOW), _MAX_WINDOW, num // 4), 1)


def inputs_at(series: Series, z: Array, origins: Index, window: int) -> Tensor:
    """Windows before each origin less their last value, that value, and exogenous features there, [origins, D]."""
    seen = np.lib.stride_tricks.sliding_window_view(z, window)[origins - window]
    last = seen[:, -1:]
    columns = [seen - last, last, series.exogenous[origins - 1]]
    return torch.as_tensor(np.concatenate(columns, axis=1), dtype=torch.float32)


def bases_of(z: Array, origins: Index, seasonality: Seasonality, window: int, horizon: int, num: int) -> Array:
    """Naive forecasts that the networks correct: last value and last season in turn, [num, origins, horizon]."""
    last = np.repeat(z[origins - 1][:, None], horizon, axis=1)
    if not 1 < seasonality.season <= window:
        return np.stack([last] * num)
    ahead = np.arange(1, horizon + 1)
    back = seasonality.season * -(-ahead // seasonality.season)
    season = z[origins[:, None] + ahead - 1 - back]
    return np.stack([season if number % 2 else last for number in range(num)])


def windows_of(series: Series, z: Array, seasonality: Seasonality, window: int, horizon: int, num: int) -> Windows:
    """Every window of a series with its targets, for `num` networks."""
    origins = np.arange(window, len(z) - horizon + 1)
    ahead = origins[:, None] + np.arange(horizon)
    differences = z[ahead] - bases_of(z, origins, seasonality, window, horizon, num)
    rows = [inputs_at(series, z, origins, window), differences, series.observed[ahead]]
    return Windows(*(torch.as_tensor(array, dtype=torch.float32) for array in rows))


def quantiles_ahead(
    network: DirectNetworks, series: Series, z: Array, seasonality: Seasonality, window: int, levels: Array
) -> Array:
    """Quantiles of z at `levels` [L] in the steps after its end, [K, L, horizon]."""
    end, num = np.array([len(z)]), len(network.weights[0])
    with torch.no_grad():
        answer = network(inputs_at(series, z, end, window).expand(num, 1, -1))
    bases = bases_of(z, end, seasonality, window, network.horizon, num)
    knots = np.sort(answer.double().numpy()[:, 0], axis=1) + bases
    return np.array([[np.interp(levels, KNOTS, column) for column in one.T] for one in knots]).swapaxes(1, 2)


def train_direct(
    rows: list[Windows], max_steps: int, generator: torch.Generator, averaging: float = AVERAGING, refit: bool = True
) -> DirectNetworks:
    """Networks trained with early stopping on the latest windows of each series.

    With `refit`, new networks are then trained for as many updates on all windows, the held-out ones included.
    """
    sizes = [len(one.inputs) for one in rows]
    parts = zip(*((one.inputs, one.differences, one.observed) for one in rows), strict=True)
    all_rows = Windows(*(torch.cat(part, dim=-2) for part in parts))
    late = torch.cat([torch.arange(size) >= int(size * (1 - _HELD_OUT)) for size in sizes])
    early, held = torch.nonzero(~late)[:, 0], torch.nonzero(late)[:, 0].expand(len(all_rows.differences), -1)
    stopped, steps = early_stopping(training(all_rows, early, generator, averaging), all_rows.at(held), max_steps)
    if not refit:
        return stopped
    return next(islice(training(all_rows, torch.arange(len(late)), generator, averaging), steps, None))


def training(windows: Windows, rows: Tensor, generator: torch.Generator, averaging: float) -> Iterator[DirectNetworks]:
    """Moving averages of the weights after 0, 1, 2, … updates on windows drawn from `rows` [num], in one object."""
    num = len(windows.differences)
    network = DirectNetworks(num, windows.inputs.shape[-1], windows.observed.shape[-1], generator)
    averaged = copy.deepcopy(network).requires_grad_(False)
    optimiser = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    while True:
        yield averaged
        optimiser.zero_grad()
        drawn = rows[torch.randint(len(rows), (num, _BATCH_SIZE), generator=generator)]
        pinball_losses(network, windows.at(drawn)).sum().backward()
        optimiser.step()
        for mean, now in zip(averaged.parameters(), network.parameters(), strict=True):
            mean.lerp_(now.detach(), 1 - averaging)


def early_stopping(networks: Iterator[DirectNetworks], held: Windows, max_steps: int) -> tuple[DirectNetworks, int]:
    """Networks with the least mean loss on `held` after at most `max_steps` updates, and the number of updates.

    The number is at least that of the first check, even if the loss only rose.
    """
    weights: dict[str, Tensor] = {}
    best, lowest = 0, float("inf")
    for step, network in zip(range(max_steps + 1), networks, strict=False):
        if step % _CHECK_EVERY:
            continue
        loss = float(pinball_losses(network, held).mean())
        if not weights or loss < lowest:
            best, lowest, weights = step, loss, copy.deepcopy(network.state_dict())
        elif step - best >= _PATIENCE * _CHECK_EVERY:
            break
    network.load_state_dict(weights)
    return network, max(best, min(_CHECK_EVERY, max_steps))


def pinball_losses(network: DirectNetworks, windows: Windows) -> Tensor:
    """Mean pinball loss max(q d, (q − 1) d), d = difference − quantile, over all observed targets, [K]."""
    level = torch.tensor(KNOTS).unsqueeze(-1)
    missed = windows.differences.unsqueeze(-2) - network(windows.inputs)
    loss = torch.maximum(level * missed, (level - 1) * missed).mean(dim=-2)
    return (loss * windows.observed).sum(dim=(1, 2)) / windows.observed.sum(dim=(1, 2)).clamp_min(1)
