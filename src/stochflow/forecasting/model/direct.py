"""Direct networks: the last values in, quantiles of all steps ahead out, for the marginals of a share of the paths.

Anchors go step by step, and what one step gets wrong the next ones carry on. A network that says every step at once
errs in another way, so a pool of both is better than either. A few of them are trained side by side, from different
weights and on different draws, by the pinball loss; every other one says how the next values differ from the last one,
the others how they differ from those of the last season. Held-out windows only say how long to train: what is used is
then trained anew on all of them, so that the latest are learned from too.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.linear_ensemble import forward
from stochflow.forecasting.model.paths import evenly
from stochflow.forecasting.model.seasonality import Rhythm

Index = NDArray[np.intp]

NUM_NETWORKS = 4
# levels that the networks learn; others lie on lines between them
KNOTS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# values per network that stand for its distribution of a step
_NUM_VALUES = 100
_MIN_WINDOW, _MAX_WINDOW = 14, 168
# windows of a series that it takes to learn from it, and observed values
_MIN_ROWS, _MIN_OBSERVED = 10, 36
_WIDTH, _LEARNING_RATE, _BATCH_SIZE, _MAX_STEPS = 64, 2e-3, 64, 400
_CHECK_EVERY, _PATIENCE = 20, 5
# decay of the running mean of the weights that is used
_AVERAGING = 0.95
# the latest windows of each series, which say how long to train
_HELD_OUT = 0.2
# beyond the largest seen, in logarithms or largest values: nothing explodes
_HEADROOM = 3.0
# which axis counts the rows of `Windows`
_ROW_AXIS = (("inputs", 0), ("differences", 1), ("observed", 0))


@dataclass(frozen=True)
class Scale:
    """How y becomes z: divided by the largest |y|, through a logarithm or a root if it can be, then standardised."""

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
        centre, spread = float(raw.mean()), float(raw.std())
        return cls(transform, unit, centre, spread, float(raw.max()))

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


class SideBySide(nn.Module):
    """K networks with two hidden layers each, [K, rows, D] → quantiles [K, rows, knots, horizon]."""

    def __init__(self, num_inputs: int, horizon: int, generator: torch.Generator) -> None:
        super().__init__()
        self.horizon = horizon
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise([num_inputs, _WIDTH, _WIDTH, len(KNOTS) * horizon]):
            drawn = torch.rand(NUM_NETWORKS, before, after, generator=generator)
            self.weights.append(nn.Parameter((2 * drawn - 1) * before**-0.5))
            self.biases.append(nn.Parameter(torch.zeros(NUM_NETWORKS, 1, after)))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, torch.relu(hidden) if number else hidden, weight)
        return hidden.unflatten(-1, (len(KNOTS), self.horizon))


@dataclass(frozen=True)
class Windows:
    """Rows to learn from.

    Attributes:
        inputs: [rows, D].
        differences: what followed less the base of each network, [K, rows, horizon].
        observed: 1 where it was seen, [rows, horizon].
    """

    inputs: Tensor
    differences: Tensor
    observed: Tensor

    def at(self, index: Tensor) -> "Windows":
        """Rows by number, others for each network, [K, num] → [K, num, …]."""
        own = torch.arange(NUM_NETWORKS).unsqueeze(-1)
        return Windows(self.inputs[index], self.differences[own, index], self.observed[index])


def direct_values(panel: list[Series], rhythm: Rhythm, horizon: int, config: ForecastConfig) -> dict[str, Array]:
    """Equally likely values of each step after the end of every series, by id, rising, [values, horizon] each.

    Empty where direct networks are not used: without a network at all, with features known in advance, which they do
    not read, with irregular gaps, and from as many values on as a transformer would be tried.
    """
    known = sum(int(series.observed.sum()) for series in panel)
    wanted = config.network != "none" and config.direct_share > 0 and config.max_steps > 0
    if not wanted or known >= config.context_min_values:
        return {}
    window = window_of(rhythm, min(len(series) for series in panel))
    scales = {series.uid: Scale.of(series.y) for series in panel}
    used = [one for one in panel if one.is_plain(rhythm) and scales[one.uid].spread > 1e-9]
    used = [one for one in used if _long_enough(one, window + horizon)]
    if not used:
        return {}
    generator = torch.Generator().manual_seed(config.seed)
    scaled = [scales[one.uid].forward(one.y) for one in used]
    rows = [windows_of(one, z, rhythm, window, horizon) for one, z in zip(used, scaled, strict=True)]
    network = _trained(rows, min(_MAX_STEPS, config.max_steps), generator)
    levels, found = (np.arange(_NUM_VALUES) + 0.5) / _NUM_VALUES, {}
    for series, z in zip(used, scaled, strict=True):
        end = np.array([len(z)])
        with torch.no_grad():
            answer = network(inputs_at(series, z, end, window).expand(NUM_NETWORKS, 1, -1))
        knots = np.sort(answer.double().numpy()[:, 0], axis=1) + bases_of(z, end, rhythm, window, horizon)
        values = [[np.interp(levels, KNOTS, column) for column in one.T] for one in knots]
        found[series.uid] = np.sort(scales[series.uid].inverse(np.concatenate(values, axis=1).T), axis=0)
    return found


def pooled(paths: Array, values: Array, share: float) -> Array:
    """Paths [P, steps] of which a `share`, evenly spread, take the values of another forecast [values, horizon].

    A path that does keeps its rank among its like at every step, and so the ups and downs that it had; beyond the
    other forecast's horizon it keeps its values.
    """
    chosen = evenly(len(paths), share)
    steps = min(paths.shape[1], values.shape[1])
    if not len(chosen):
        return paths
    levels = (np.arange(len(chosen)) + 0.5) / len(chosen)
    rank = paths[chosen, :steps].argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    result = paths.copy()
    result[chosen, :steps] = np.take_along_axis(np.quantile(values[:, :steps], levels, axis=0), rank, axis=0)
    return result


def window_of(rhythm: Rhythm, num: int) -> int:
    """Values that the networks see: two seasons, or two weeks of days; at most a quarter of the shortest series."""
    return max(min(max(2 * rhythm.season, _MIN_WINDOW), _MAX_WINDOW, num // 4), 1)


def inputs_at(series: Series, z: Array, origins: Index, window: int) -> Tensor:
    """Windows before each origin less their last value, that value, and the calendar there, [origins, D]."""
    seen = np.lib.stride_tricks.sliding_window_view(z, window)[origins - window]
    last = seen[:, -1:]
    return torch.as_tensor(
        np.concatenate([seen - last, last, series.outside[origins - 1]], axis=1), dtype=torch.float32
    )


def bases_of(z: Array, origins: Index, rhythm: Rhythm, window: int, horizon: int) -> Array:
    """What each network's differences are from: the last value or the last season, in turn, [K, origins, horizon]."""
    last = np.repeat(z[origins - 1][:, None], horizon, axis=1)
    if not 1 < rhythm.season <= window:
        return np.stack([last] * NUM_NETWORKS)
    ahead = np.arange(1, horizon + 1)
    back = rhythm.season * -(-ahead // rhythm.season)
    season = z[origins[:, None] + ahead - 1 - back]
    return np.stack([season if number % 2 else last for number in range(NUM_NETWORKS)])


def windows_of(series: Series, z: Array, rhythm: Rhythm, window: int, horizon: int) -> Windows:
    """Every window of a series with what followed it."""
    origins = np.arange(window, len(z) - horizon + 1)
    ahead = origins[:, None] + np.arange(horizon)
    differences = z[ahead] - bases_of(z, origins, rhythm, window, horizon)
    rows = [inputs_at(series, z, origins, window), differences, series.observed[ahead]]
    return Windows(*(torch.as_tensor(array, dtype=torch.float32) for array in rows))


def _long_enough(series: Series, length: int) -> bool:
    """Whether there are windows of this length, what follows included, and values in them, to learn from."""
    return len(series) - length + 1 >= _MIN_ROWS and int(series.observed.sum()) >= _MIN_OBSERVED


def _trained(rows: list[Windows], max_steps: int, generator: torch.Generator) -> SideBySide:
    """Networks of all windows, after as many updates as others needed that had not seen the latest of each series."""
    sizes = [len(one.inputs) for one in rows]
    all_rows = Windows(*(torch.cat([getattr(one, name) for one in rows], dim=axis) for name, axis in _ROW_AXIS))
    late = torch.cat([torch.arange(size) >= int(size * (1 - _HELD_OUT)) for size in sizes])
    early, held = torch.nonzero(~late)[:, 0], all_rows.at(torch.nonzero(late)[:, 0].expand(NUM_NETWORKS, -1))
    steps = best_steps(training(all_rows, early, generator), held, max_steps)
    return next(islice(training(all_rows, torch.arange(len(late)), generator), steps, None))


def training(windows: Windows, rows: Tensor, generator: torch.Generator) -> Iterator[SideBySide]:
    """Running means of the weights after 0, 1, 2, … updates on windows drawn from `rows` [num], in one object."""
    network = SideBySide(windows.inputs.shape[-1], windows.observed.shape[-1], generator)
    averaged = copy.deepcopy(network).requires_grad_(False)
    optimiser = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    while True:
        yield averaged
        optimiser.zero_grad()
        drawn = rows[torch.randint(len(rows), (NUM_NETWORKS, _BATCH_SIZE), generator=generator)]
        pinball_losses(network, windows.at(drawn)).sum().backward()
        optimiser.step()
        for mean, now in zip(averaged.parameters(), network.parameters(), strict=True):
            mean.lerp_(now.detach(), 1 - _AVERAGING)


def best_steps(networks: Iterator[SideBySide], held: Windows, max_steps: int) -> int:
    """Updates after which the mean loss on `held` was least, `max_steps` at most; a few if it only rose."""
    best, lowest = 0, float("inf")
    for step, network in zip(range(max_steps + 1), networks, strict=False):
        if step % _CHECK_EVERY:
            continue
        loss = float(pinball_losses(network, held).mean())
        if loss < lowest:
            best, lowest = step, loss
        elif step - best >= _PATIENCE * _CHECK_EVERY:
            break
    return max(best, min(_CHECK_EVERY, max_steps))


def pinball_losses(network: SideBySide, windows: Windows) -> Tensor:
    """Mean of max(q d, (q − 1) d) with d = difference − quantile over all that was observed, [K]."""
    level = torch.tensor(KNOTS).unsqueeze(-1)
    missed = windows.differences.unsqueeze(-2) - network(windows.inputs)
    loss = torch.maximum(level * missed, (level - 1) * missed).mean(dim=-2)
    return (loss * windows.observed).sum(dim=(1, 2)) / windows.observed.sum(dim=(1, 2)).clamp_min(1)
