"""The forecaster's parts: seasonality, linear ensemble, network of residuals, sampled paths, calibration.

`linear_models` fits the closed-form part, `fit` trains the network, `paths` samples a forecast step by step.
"""
