"""Forecasting: series in, calibrated distributions out."""
