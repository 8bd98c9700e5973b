"""Probabilistic forecasts of time series: series in, calibrated distributions out."""

from stochflow.forecasting.datasets import SERIES, load_group, load_series
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.frame import Columns

__all__ = ["SERIES", "Columns", "StochflowForecaster", "load_group", "load_series"]
