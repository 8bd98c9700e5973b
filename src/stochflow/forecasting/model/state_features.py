"""Features of a state: recent residuals, their volatility, the linear prediction, and exogenous features."""

import torch
from torch import Tensor

from stochflow.forecasting.model.seasonality import Seasonality

NUM_RECENT = 6
NUM_SEASONS = 4
VOLATILITY_WINDOW = 32
_DECAYS = (0.05, 0.25)
_FLOOR = 0.1


def residual_window(seasonality: Seasonality) -> int:
    """Number of past residuals that the features read."""
    seasonal = NUM_SEASONS * seasonality.season if seasonality.season > 1 else 0
    return max(VOLATILITY_WINDOW, seasonal, seasonality.long_season)


def state_features(
    residuals: Tensor, values: Tensor, fitted: Tensor, exogenous: Tensor, seasonality: Seasonality
) -> Tensor:
    """Features of states, [..., features].

    Args:
        residuals: past standardised residuals, latest last, zero where unknown, [..., R].
        values: past values z, latest last, [..., W].
        fitted: linear prediction ẑ of the next value, [...].
        exogenous: calendar and features of the next step, [..., F].
    """
    recent = torch.asinh(residuals[..., -NUM_RECENT:])
    sizes = residuals.abs()
    columns = [recent]
    ages = torch.arange(VOLATILITY_WINDOW - 1, -1, -1, dtype=residuals.dtype, device=residuals.device)
    for decay in _DECAYS:
        weights = (1 - decay) ** ages
        level = sizes[..., -VOLATILITY_WINDOW:] @ (weights / weights.sum())
        columns.append(torch.log(level + _FLOOR).unsqueeze(-1))
    levels = [fitted, values[..., -1]]
    if seasonality.season > 1:
        seasons = [sizes[..., -index * seasonality.season] for index in range(1, NUM_SEASONS + 1)]
        columns.append(torch.log(torch.stack(seasons).mean(dim=0) + _FLOOR).unsqueeze(-1))
        columns.append(torch.asinh(residuals[..., -seasonality.season]).unsqueeze(-1))
        levels.append(values[..., -seasonality.season])
    if seasonality.long_season:
        columns.append(torch.log(sizes[..., -seasonality.long_season] + _FLOOR).unsqueeze(-1))
    columns.append(torch.stack(levels, dim=-1).clamp(-5.0, 5.0))
    return torch.cat([*columns, exogenous], dim=-1).float()
