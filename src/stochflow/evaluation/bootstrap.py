"""Bootstrap confidence interval of a median over few runs."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import bootstrap

LEVEL = 0.95
MIN_VALUES = 3  # fewer have no interval worth the name
_RESAMPLES = 9999


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Percentile bootstrap interval of the median, the same on every call; lowest and highest of fewer than three.

    The percentile method, because the median of few values has no smooth distribution that BCa could correct.
    """
    if len(values) < MIN_VALUES:
        return min(values), max(values)
    found = bootstrap(
        (np.asarray(values, dtype=float),),
        np.median,
        n_resamples=_RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=0,
    ).confidence_interval
    return float(found.low), float(found.high)
