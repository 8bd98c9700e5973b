"""The forecaster's parts: seasonality, the linear ensemble, the network of residuals, paths, calibration.

`fit` trains them, `paths` samples a forecast outcome by outcome.
"""
