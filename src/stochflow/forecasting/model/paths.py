"""Forecast paths by ancestral sampling: each step is drawn given the sampled values before it."""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from stochflow.forecasting.data.series import Array, Index, Series
from stochflow.forecasting.model.linear_ensemble import LinearEnsemble
from stochflow.forecasting.model.linear_models import LinearModels
from stochflow.forecasting.model.network import ForecastHeads, ForecastNetwork
from stochflow.forecasting.model.past_model import PastModel
from stochflow.forecasting.model.state_features import residual_window, state_features

# bound of |z|: an unstable member must not overflow
_LIMIT = 50.0
_TRANSFORM_NUMBER = {"identity": 0.0, "root": 1.0, "log": 2.0}


@dataclass
class PathStarts:
    """Initial conditions of paths, one row per path; `steps` is the horizon. All float64.

    Attributes:
        values, errors: z and e before the origin, latest last, [rows, W].
        residuals: standardised residuals before the origin, latest last, [rows, R].
        offsets: intercept plus calendar terms of the linear prediction at each step ahead, [rows, steps].
        effects: what features add to z at each step ahead, [rows, steps].
        noise_std: scale of the residual at each step ahead, [rows, steps].
        exogenous: features of each step ahead, [rows, steps, F].
        ar, ma, lag_weights: of the ensemble member, [rows, smoothing lags] twice and [rows, lags].
        scale: ceiling, centre, spread, the transform's number, unit, offset, low and high, [rows, 8].
        context: index of the context vector, [rows].
    """

    values: Tensor
    errors: Tensor
    residuals: Tensor
    offsets: Tensor
    effects: Tensor
    noise_std: Tensor
    exogenous: Tensor
    ar: Tensor
    ma: Tensor
    lag_weights: Tensor
    scale: Tensor
    context: Tensor


def path_starts(
    series: Series,
    ensemble: LinearEnsemble,
    origins: list[int],
    horizon: int,
    num_paths: int,
    past: PastModel | None = None,
    generator: torch.Generator | None = None,
) -> PathStarts:
    """`num_paths` per origin, members in proportion to their weight; rows are sorted by origin, then member.

    An origin is the index of the first value to forecast. Where past features have effects, the model `past` of them
    draws how they go on, by `generator`.
    """
    places = (np.arange(num_paths) + 0.5) / num_paths
    chosen = np.minimum(np.searchsorted(np.cumsum(ensemble.weight), places), len(ensemble.weight) - 1)
    member, origin = np.tile(chosen, len(origins)), np.repeat(origins, num_paths)
    window, memory = ensemble.seasonality.window, residual_window(ensemble.seasonality)
    ahead = origin[:, None] + np.arange(horizon)
    exogenous = series.exogenous[ahead]
    values, errors = (_before(array, member, origin, window) for array in (ensemble.values, ensemble.errors))
    residuals = np.nan_to_num(_before(ensemble.residuals, member, origin, memory, fill=0.0))
    offsets = np.einsum("rhf,rf->rh", series.calendar[ahead], ensemble.calendar_weights[member])
    offsets += ensemble.intercept[member, None]
    features = [series.known_features[ahead]]
    if past is not None and generator is not None:
        features.append(past.lagged_ahead(series.past[:, series.used_past], origin, horizon, generator))
    effects = np.einsum("rhe,re->rh", np.concatenate(features, axis=-1), ensemble.effects[member])
    numbers = np.array([_TRANSFORM_NUMBER[name] for name in ensemble.transform])
    season = ensemble.seasonal_scale.shape[1]
    noise_std = ensemble.noise_std(np.arange(season))[member[:, None], ahead % season]
    columns = (ensemble.ceiling, ensemble.centre, ensemble.spread, numbers)
    shared = np.tile([ensemble.unit, ensemble.offset, ensemble.low, ensemble.high], (len(member), 1))
    scale = np.concatenate([np.stack(columns, axis=1)[member], shared], axis=1)
    rows = (values, errors, residuals, offsets, effects, noise_std, exogenous)
    weights = (ensemble.ar[member], ensemble.ma[member], ensemble.lag_weights[member], scale)
    tensors = [torch.as_tensor(array, dtype=torch.float64) for array in (*rows, *weights)]
    tensors.append(torch.as_tensor(np.repeat(np.arange(len(origins)), num_paths)))
    return PathStarts(*tensors)


def _before(array: Array, member: Index, origin: Index, width: int, fill: float | None = None) -> Array:
    """The last `width` entries before each origin, [rows, width]; before the start the first value, or `fill`."""
    index = origin[:, None] + np.arange(-width, 0)
    found = array[member[:, None], np.maximum(index, 0)]
    return found if fill is None else np.where(index < 0, fill, found)


@torch.no_grad()
def sample_paths(
    start: PathStarts,
    models: LinearModels,
    network: ForecastNetwork | None,
    generator: torch.Generator,
    contexts: Tensor | None = None,
    network_weight: float = 1.0,
) -> Tensor:
    """Values y of every path, [rows, steps].

    Args:
        models: seasonality, residual distribution and bins; the members' weights are in `start`.
        network: shifts and scales the residuals; None for the linear ensemble alone.
        contexts: context vectors of the network, [contexts, width].
        network_weight: probability that a path follows the network rather than the linear ensemble alone.
    """
    bins, seasonality = models.bins, models.seasonality
    rows, steps = start.offsets.shape
    window, past = start.values.shape[1], start.residuals.shape[1]
    values, errors, residuals = (
        torch.cat([before, before.new_zeros(rows, steps)], dim=1)
        for before in (start.values, start.errors, start.residuals)
    )
    ceiling, centre, spread, transform, unit, offset, low, high = start.scale.unbind(dim=1)
    context = contexts[start.context] if contexts is not None else None
    uniform = torch.rand(steps, 3, rows, dtype=torch.float64, generator=generator)
    guided = torch.rand(rows, dtype=torch.float64, generator=generator) < network_weight
    for step in range(steps):
        now = window + step
        smooth = sum(
            start.ar[:, index] * values[:, now - lag] + start.ma[:, index] * errors[:, now - lag]
            for index, lag in enumerate(seasonality.smoothing_lags)
        )
        lagged = values[:, [now - lag for lag in seasonality.lags]]
        fitted = smooth + (lagged * start.lag_weights).sum(dim=1) + start.offsets[:, step]
        residual = models.noise.quantile(uniform[step, 0])
        if network is not None:
            seen = residuals[:, step : past + step], values[:, step:now], fitted, start.exogenous[:, step]
            heads = network(state_features(*seen, seasonality), context)
            residual = torch.where(guided, _shifted(residual, heads, network.intentions, uniform[step, 1]), residual)
        residual = bins.sample(bins.encode(residual), uniform[step, 2])
        value = (fitted + start.noise_std[:, step] * residual).clamp(-_LIMIT, _LIMIT)
        value = torch.minimum(value, ceiling)
        values[:, now], errors[:, now] = value, value - smooth
        residuals[:, past + step] = (value - fitted) / start.noise_std[:, step]
    y = _inverse(
        transform.unsqueeze(-1), (values[:, window:] + start.effects) * spread.unsqueeze(-1) + centre.unsqueeze(-1)
    )
    y = torch.minimum(torch.maximum(y, low.unsqueeze(-1)), high.unsqueeze(-1))
    return y * unit.unsqueeze(-1) + offset.unsqueeze(-1)


def _shifted(residual: Tensor, heads: ForecastHeads, intentions: Tensor, uniform: Tensor) -> Tensor:
    """The residual scaled on its side of zero and shifted by an intention drawn with `uniform`, [rows]."""
    cumulative = heads.log_policy.double().exp().cumsum(dim=-1)
    intended = (uniform.unsqueeze(-1) > cumulative).sum(dim=-1).clamp_max(cumulative.shape[-1] - 1)
    stretch = heads.log_stretch.double().exp()
    return residual * torch.where(residual < 0, stretch[:, 0], stretch[:, 1]) + intentions[intended]


def _inverse(kind: Tensor, raw: Tensor) -> Tensor:
    """f⁻¹ by the transform's number, [rows, 1] and [rows, steps] → [rows, steps]."""
    return torch.where(kind == 1, raw.clamp_min(0).square(), torch.where(kind == 2, raw.clamp_max(700).exp(), raw))


def join(parts: list[PathStarts]) -> PathStarts:
    """Initial conditions of several series as one batch; contexts are renumbered in order."""
    shifts = np.cumsum([0, *(int(part.context.max()) + 1 for part in parts[:-1])])
    moved = [replace(part, context=part.context + int(shift)) for part, shift in zip(parts, shifts, strict=True)]
    return PathStarts(*(torch.cat([getattr(part, each.name) for part in moved]) for each in fields(PathStarts)))
