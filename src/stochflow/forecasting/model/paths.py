"""Paths into the future, outcome by outcome, re-anchored at every step: the one loop over time."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.bins import TokenBins
from stochflow.forecasting.model.linear_ensemble import Anchors
from stochflow.forecasting.model.network import ForecastHeads, ForecastNetwork
from stochflow.forecasting.model.residuals import NoiseKernel
from stochflow.forecasting.model.seasonality import Rhythm
from stochflow.forecasting.model.state_features import residual_window, state_features

# values of z beyond this are explosions of a member, not forecasts
_LIMIT = 50.0
_TRANSFORM_NUMBER = {"identity": 0.0, "root": 1.0, "log": 2.0}

Indices = NDArray[np.intp]


@dataclass
class Starts:
    """Where paths begin: rows are paths, `steps` = horizon. All float64.

    Attributes:
        values, errors: z and e before the origin, latest last, [rows, W].
        residuals: surprises before the origin, latest last, [rows, R].
        offsets: the anchor's intercept, calendar and features at each step ahead, [rows, steps].
        noise: the scale of surprises at each step ahead, [rows, steps].
        outside: what the network is told of each step ahead, [rows, steps, F].
        recall, forget, lag_weights: the anchor's weights, [rows, near], [rows, near], [rows, lags].
        scale: ceiling, centre, spread, the transform's number, unit, offset, low and high, [rows, 8].
        context: row of the context's vector, [rows].
    """

    values: Tensor
    errors: Tensor
    residuals: Tensor
    offsets: Tensor
    noise: Tensor
    outside: Tensor
    recall: Tensor
    forget: Tensor
    lag_weights: Tensor
    scale: Tensor
    context: Tensor

    def __len__(self) -> int:
        return len(self.values)


def starts(series: Series, anchors: Anchors, origins: list[int], horizon: int, num_paths: int) -> Starts:
    """`num_paths` per origin, members in proportion to their weight; rows are ordered by origin.

    An origin is the index of the first value to forecast.
    """
    places = (np.arange(num_paths) + 0.5) / num_paths
    chosen = np.minimum(np.searchsorted(np.cumsum(anchors.weight), places), len(anchors.weight) - 1)
    member, origin = np.tile(chosen, len(origins)), np.repeat(origins, num_paths)
    window, past = anchors.rhythm.window, residual_window(anchors.rhythm)
    ahead = origin[:, None] + np.arange(horizon)
    outside = series.outside[ahead]
    values, errors = (_before(array, member, origin, window) for array in (anchors.values, anchors.errors))
    residuals = np.nan_to_num(_before(anchors.residuals, member, origin, past, fill=0.0))
    offsets = np.einsum("rhf,rf->rh", outside, anchors.feature_weights[member]) + anchors.intercept[member, None]
    numbers = np.array([_TRANSFORM_NUMBER[name] for name in anchors.transform])
    noise = anchors.noise_scale[member, None] * anchors.unrest[member[:, None], ahead % anchors.unrest.shape[1]]
    columns = (anchors.ceiling, anchors.centre, anchors.spread, numbers)
    shared = np.tile([anchors.unit, anchors.offset, anchors.low, anchors.high], (len(member), 1))
    scale = np.concatenate([np.stack(columns, axis=1)[member], shared], axis=1)
    rows = (values, errors, residuals, offsets, noise, outside)
    weights = (anchors.recall[member], anchors.forget[member], anchors.lag_weights[member], scale)
    tensors = [torch.as_tensor(array, dtype=torch.float64) for array in (*rows, *weights)]
    tensors.append(torch.as_tensor(np.repeat(np.arange(len(origins)), num_paths)))
    return Starts(*tensors)


def _before(array: Array, member: Indices, origin: Indices, width: int, fill: float | None = None) -> Array:
    """The last `width` entries before each origin, [rows, width]; before the start the first value, or `fill`."""
    index = origin[:, None] + np.arange(-width, 0)
    found = array[member[:, None], np.maximum(index, 0)]
    return found if fill is None else np.where(index < 0, fill, found)


@torch.no_grad()
def sample_paths(
    start: Starts,
    rhythm: Rhythm,
    network: ForecastNetwork | None,
    kernel: NoiseKernel,
    bins: TokenBins,
    generator: torch.Generator,
    contexts: Tensor | None = None,
    trust: float = 1.0,
) -> Tensor:
    """Values y of every path, [rows, steps].

    The network, which reads `contexts` [contexts, width] if it has any, guides a share `trust` of the paths. On the
    others the intention is always the anchor itself.
    """
    rows, steps = start.offsets.shape
    window, past = start.values.shape[1], start.residuals.shape[1]
    values, errors, residuals = (
        torch.cat([before, before.new_zeros(rows, steps)], dim=1)
        for before in (start.values, start.errors, start.residuals)
    )
    ceiling, centre, spread, transform, unit, offset, low, high = start.scale.unbind(dim=1)
    context = contexts[start.context] if contexts is not None else None
    uniform = torch.rand(steps, 3, rows, dtype=torch.float64, generator=generator)
    guided = torch.rand(rows, dtype=torch.float64, generator=generator) < trust
    for step in range(steps):
        now = window + step
        smooth = sum(
            start.recall[:, index] * values[:, now - lag] + start.forget[:, index] * errors[:, now - lag]
            for index, lag in enumerate(rhythm.near)
        )
        lagged = values[:, [now - lag for lag in rhythm.lags]]
        fitted = smooth + (lagged * start.lag_weights).sum(dim=1) + start.offsets[:, step]
        surprise = kernel.quantile(uniform[step, 0])
        if network is not None:
            seen = residuals[:, step : past + step], values[:, step:now], fitted, start.outside[:, step]
            heads = network(state_features(*seen, rhythm), context)
            surprise = torch.where(guided, _moved(surprise, heads, network.intentions, uniform[step, 1]), surprise)
        surprise = bins.spread(bins.encode(surprise), uniform[step, 2])
        value = (fitted + start.noise[:, step] * surprise).clamp(-_LIMIT, _LIMIT)
        value = torch.minimum(value, ceiling)
        values[:, now], errors[:, now] = value, value - smooth
        residuals[:, past + step] = (value - fitted) / start.noise[:, step]
    y = _inverse(transform.unsqueeze(-1), values[:, window:] * spread.unsqueeze(-1) + centre.unsqueeze(-1))
    y = torch.minimum(torch.maximum(y, low.unsqueeze(-1)), high.unsqueeze(-1))
    return y * unit.unsqueeze(-1) + offset.unsqueeze(-1)


def _moved(surprise: Tensor, heads: ForecastHeads, intentions: Tensor, uniform: Tensor) -> Tensor:
    """The surprise around an intention that `uniform` draws, stretched on its side, [rows]."""
    cumulative = heads.log_policy.double().exp().cumsum(dim=-1)
    intended = (uniform.unsqueeze(-1) > cumulative).sum(dim=-1).clamp_max(cumulative.shape[-1] - 1)
    stretch = heads.log_stretch.double().exp()
    return surprise * torch.where(surprise < 0, stretch[:, 0], stretch[:, 1]) + intentions[intended]


def _inverse(kind: Tensor, raw: Tensor) -> Tensor:
    """f⁻¹ by the transform's number, [rows, 1] and [rows, steps] → [rows, steps]."""
    return torch.where(kind == 1, raw.clamp_min(0).square(), torch.where(kind == 2, raw.clamp_max(700).exp(), raw))


def evenly(num: int, share: float) -> Indices:
    """Numbers of a `share` of `num` paths, evenly spread, so that every member gives as much."""
    return np.flatnonzero(np.diff(np.floor(share * np.arange(num + 1))))


def mixed(paths: Array, others: Array, share: float) -> Array:
    """Paths [..., P, steps] of which a `share`, evenly spread, are the first of `others` [..., Q, steps]."""
    chosen, result = evenly(paths.shape[-2], share), paths.copy()
    result[..., chosen, :] = others[..., : len(chosen), :]
    return result


def join(parts: list[Starts]) -> Starts:
    """Starts of several series as one batch; context rows are renumbered in order."""
    columns = {}
    for name in Starts.__dataclass_fields__:
        pieces = [getattr(part, name) for part in parts]
        if name == "context":
            shifts = np.cumsum([0] + [int(part.context.max()) + 1 for part in parts[:-1]])
            pieces = [piece + int(shift) for piece, shift in zip(pieces, shifts, strict=True)]
        columns[name] = torch.cat(pieces)
    return Starts(**columns)
