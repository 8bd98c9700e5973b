"""Probabilistic forecasts of time series: series in, calibrated distributions out."""

from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.datasets import SERIES, load_group, load_series
from stochflow.forecasting.forecaster import StochflowForecaster

__all__ = ["SERIES", "Columns", "StochflowForecaster", "load_group", "load_series"]
