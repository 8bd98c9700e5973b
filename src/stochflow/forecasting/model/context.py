"""Inputs of the context encoder: windows of the recent past of each series."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.linear_models import LinearModels
from stochflow.forecasting.model.network import ForecastNetwork


@dataclass(frozen=True)
class ContextWindows:
    """Inputs of all series concatenated along time, each preceded by `length` absent elements, [time, …]."""

    features: Tensor
    positions: Tensor
    present: Tensor
    first: Tensor
    length: int

    def at(self, series: Tensor, origins: Tensor) -> dict[str, Tensor]:
        """Inputs of the encoder for windows that end before each origin; [rows], [rows] → [rows, length, …]."""
        index = (self.first[series] + origins).unsqueeze(-1) + torch.arange(self.length)
        times, present, features = self.positions[index], self.present[index], self.features[index]
        values = window_scaled(features[..., 0], present)
        return {
            "features": torch.cat([values.unsqueeze(-1), features[..., 1:]], dim=-1),
            "times": times - times[:, -1:],
            "present": present,
        }


def encoder_windows(
    network: ForecastNetwork | None, panel: list[Series], models: LinearModels, length: int
) -> ContextWindows | None:
    """Windows of the panel if the network has a context encoder."""
    return context_windows(panel, models, length) if network is not None and network.context is not None else None


def window_scaled(values: Tensor, present: Tensor) -> Tensor:
    """Values [rows, length] standardised per window and clipped to ±5; zero where absent.

    The level is not lost: the state features carry it.
    """
    num = present.sum(dim=-1, keepdim=True).clamp_min(1)
    known = values.masked_fill(~present, 0.0)
    centred = (known - known.sum(dim=-1, keepdim=True) / num).masked_fill(~present, 0.0)
    deviation = (centred.square().sum(dim=-1, keepdim=True) / num).sqrt().clamp_min(1e-3)
    return (centred / deviation).clamp(-5.0, 5.0)


def context_windows(panel: list[Series], models: LinearModels, length: int) -> ContextWindows:
    """Values and residuals of each series' best ensemble member, the calendar and all features, by time."""
    features, positions, present, first, total = [], [], [], [], 0
    for series, ensemble in zip(panel, models.ensembles, strict=True):
        columns = [  # the best member is the first
            ensemble.values[0][:, None],
            np.arcsinh(np.nan_to_num(ensemble.residuals[0]))[:, None],
            series.exogenous[: len(series)],
            series.past,
        ]
        block = np.concatenate(columns, axis=1)
        features.append(np.concatenate([np.zeros((length, block.shape[1])), block]))
        positions.append(np.concatenate([np.zeros(length), series.positions]))
        present.append(np.concatenate([np.zeros(length, dtype=bool), series.observed]))
        first.append(total)
        total += length + len(series)
    return ContextWindows(
        torch.as_tensor(np.concatenate(features), dtype=torch.float32),
        torch.as_tensor(np.concatenate(positions), dtype=torch.float32),
        torch.as_tensor(np.concatenate(present)),
        torch.as_tensor(first),
        length,
    )


@torch.no_grad()
def context_vectors(
    network: ForecastNetwork | None, panel: list[Series], windows: ContextWindows | None, series: Tensor, ends: Tensor
) -> Tensor | None:
    """Context vectors of series [rows] of the panel at the ends [rows] of their past, [rows, width]; None for none."""
    if network is None:
        return None
    inputs = windows.at(series, ends) if windows is not None else None
    return network.context_vector(inputs, static_codes(panel)[series])


def static_codes(panel: list[Series]) -> Tensor:
    """Codes of the static categories of every series, [series, columns]."""
    return torch.as_tensor(np.stack([series.static for series in panel]))
