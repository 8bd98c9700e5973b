"""Sampled paths as tables: one row per series and step, or one per path."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from stochflow.core.errors import ConfigError
from stochflow.forecasting.config import is_whole
from stochflow.forecasting.data.series import Array

MODEL = "stochflow"
# path steps of one series that may be requested
_MAX_DRAWN = 200_000_000


def interval_levels(level: Sequence[float] | None, quantiles: Sequence[float] | None) -> dict[str, float]:
    """Column name → quantile level, for intervals in per cent and for quantiles between 0 and 1."""
    columns: dict[str, float] = {}
    for percent in _numbers("level", level):
        if not 0 < percent < 100:
            raise ConfigError(f"level {percent:g} is no interval; give per cents between 0 and 100, such as 80")
        columns[f"{MODEL}-lo-{percent:.12g}"] = 0.5 - percent / 200
        columns[f"{MODEL}-hi-{percent:.12g}"] = 0.5 + percent / 200
    for quantile in _numbers("quantiles", quantiles):
        if not 0 < quantile < 1:
            raise ConfigError(f"quantile {quantile:g} lies outside (0, 1); give shares such as 0.1")
        columns[f"{MODEL}-q-{quantile:.12g}"] = quantile
    return columns


def _numbers(name: str, given: Sequence[float] | None) -> list[float]:
    """One number or several as a list."""
    try:
        return [] if given is None else [float(value) for value in np.atleast_1d(np.asarray(given, dtype=float))]
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {given!r}; give a list of numbers") from None


def check_samples(num: int, horizon: int) -> None:
    """Raise a ConfigError unless the number of paths is whole, at least 2, and fits into memory."""
    if not is_whole(num) or not 2 <= num <= _MAX_DRAWN // horizon:
        most = _MAX_DRAWN // horizon
        raise ConfigError(f"{num} paths of {horizon} steps cannot be drawn; ask for 2 to {most:,} paths")


def quantile_rows(drawn: Array, levels: dict[str, float], labels: dict[str, Any]) -> pd.DataFrame:
    """Labels, median and quantiles of draws [num, horizon], one row per step."""
    values = np.quantile(drawn, [0.5, *levels.values()], axis=0)
    return pd.DataFrame({**labels, **dict(zip([MODEL, *levels], values, strict=True))})


def sample_rows(drawn: Array, levels: dict[str, float], labels: dict[str, Any]) -> pd.DataFrame:
    """Labels and values of draws [num, horizon], path by path."""
    num, horizon = drawn.shape
    columns = {name: np.tile(value, num) if isinstance(value, pd.Index) else value for name, value in labels.items()}
    return pd.DataFrame({**columns, "sample": np.repeat(np.arange(num), horizon), MODEL: drawn.ravel()})
