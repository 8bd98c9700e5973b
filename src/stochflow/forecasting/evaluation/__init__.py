"""How good a forecast is: CRPS, scores on rolling origins, and the baselines it is compared with.

Everything here needs the extra `forecast`, but for `crps`.
"""
