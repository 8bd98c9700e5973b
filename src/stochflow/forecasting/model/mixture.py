"""Mixtures of sampled forecasts: a share of the paths of one forecast replaced by those of another (a linear pool)."""

import numpy as np

from stochflow.forecasting.data.series import Array, Index


def evenly_spaced(num: int, share: float) -> Index:
    """Indices of a `share` of `num` paths. Paths are ordered by ensemble member, so each member loses that share."""
    return np.flatnonzero(np.diff(np.floor(share * np.arange(num + 1))))


def mix_paths(paths: Array, others: Array, share: float) -> Array:
    """Paths [..., P, steps] of which a `share` are replaced by the first of `others` [..., Q, steps]."""
    chosen, result = evenly_spaced(paths.shape[-2], share), paths.copy()
    result[..., chosen, :] = others[..., : len(chosen), :]
    return result


def mix_marginals(paths: Array, values: Array, share: float) -> Array:
    """Paths [P, steps] of which a `share` take the marginals of another forecast, sorted `values` [V, horizon].

    The replaced paths keep their ranks among each other at every step (their empirical copula), and beyond `horizon`
    also their values.
    """
    chosen = evenly_spaced(len(paths), share)
    steps = min(paths.shape[1], values.shape[1])
    if not len(chosen):
        return paths
    levels = (np.arange(len(chosen)) + 0.5) / len(chosen)
    rank = paths[chosen, :steps].argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    result = paths.copy()
    result[chosen, :steps] = np.take_along_axis(np.quantile(values[:, :steps], levels, axis=0), rank, axis=0)
    return result
