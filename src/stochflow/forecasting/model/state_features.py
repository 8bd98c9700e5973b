"""What the network sees before each step: recent surprises, where the anchor points, and the calendar."""

import torch
from torch import Tensor

from stochflow.forecasting.model.seasonality import Rhythm

NUM_RECENT = 6
NUM_SEASONS = 4
VOLATILITY_WINDOW = 32
_DECAYS = (0.05, 0.25)
_CALM = 0.1


def residual_window(rhythm: Rhythm) -> int:
    """Steps of past residuals that the features read."""
    seasonal = NUM_SEASONS * rhythm.season if rhythm.season > 1 else 0
    return max(VOLATILITY_WINDOW, seasonal, rhythm.long_season)


def state_features(residuals: Tensor, values: Tensor, fitted: Tensor, outside: Tensor, rhythm: Rhythm) -> Tensor:
    """Features of states, [..., features].

    Args:
        residuals: past residuals in units of the anchor's noise, latest last, zero where unknown, [..., R].
        values: past values z, latest last, [..., W].
        fitted: the anchor's next value ẑ, [...].
        outside: what the calendar and the user know of the next step, [..., F].
    """
    recent = torch.asinh(residuals[..., -NUM_RECENT:])
    sizes = residuals.abs()
    columns = [recent]
    ages = torch.arange(VOLATILITY_WINDOW - 1, -1, -1, dtype=residuals.dtype, device=residuals.device)
    for decay in _DECAYS:
        weights = (1 - decay) ** ages
        level = sizes[..., -VOLATILITY_WINDOW:] @ (weights / weights.sum())
        columns.append(torch.log(level + _CALM).unsqueeze(-1))
    levels = [fitted, values[..., -1]]
    if rhythm.season > 1:
        seasons = [sizes[..., -index * rhythm.season] for index in range(1, NUM_SEASONS + 1)]
        columns.append(torch.log(torch.stack(seasons).mean(dim=0) + _CALM).unsqueeze(-1))
        columns.append(torch.asinh(residuals[..., -rhythm.season]).unsqueeze(-1))
        levels.append(values[..., -rhythm.season])
    if rhythm.long_season:
        columns.append(torch.log(sizes[..., -rhythm.long_season] + _CALM).unsqueeze(-1))
    columns.append(torch.stack(levels, dim=-1).clamp(-5.0, 5.0))
    return torch.cat([*columns, outside], dim=-1).float()
