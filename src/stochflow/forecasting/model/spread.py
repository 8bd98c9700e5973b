"""Hedge and spread of a fitted forecaster, judged on origins that its anchors have not seen, series by series."""

import numpy as np
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.calibration import Verdict, asked_share, asked_stretch
from stochflow.forecasting.model.fit import Trained, World, context_windows, fit_world, hold_out, thoughts
from stochflow.forecasting.model.paths import evenly, mixed, sample_paths, starts
from stochflow.forecasting.model.seasonality import Rhythm

# the spread is judged by so many of the latest horizons at most: what was wild or calm long ago may be so no more
_RECENT_HORIZONS = 30


def verdicts(
    trained: Trained, panel: list[Series], rhythm: Rhythm, horizon: int, config: ForecastConfig
) -> dict[str, Verdict]:
    """What should be done with the paths of each series, by id, where there are origins to judge by.

    The origins are the latest whose futures are known, and the anchors of this judgement end before them.
    """
    ends, origins = hold_out(panel, horizon, config.calibration_origins, _RECENT_HORIZONS)
    if not any(origins):
        return {}
    return judged(trained, panel, fit_world(panel, rhythm, config, ends), origins, horizon, config)


def judged(
    trained: Trained,
    panel: list[Series],
    world: World,
    origins: list[list[int]],
    horizon: int,
    config: ForecastConfig,
) -> dict[str, Verdict]:
    """Those verdicts, for a world that ends before the origins and a network that guides as many paths as ever."""
    network, num, found = trained.network, config.validation_paths, {}
    reads = network is not None and network.context is not None
    windows = context_windows(panel, world, config.context_length) if reads else None
    for index, (series, anchors, places) in enumerate(zip(panel, world.anchors, origins, strict=True)):
        if not places:
            continue
        contexts, when = None, torch.tensor(places)
        if network is not None:
            contexts = thoughts(network, panel, windows, torch.full_like(when, index), when)
        start = starts(series, anchors, places, horizon, num)
        generator = torch.Generator().manual_seed(config.seed)
        paths = sample_paths(start, world.rhythm, network, world.kernel, world.bins, generator, contexts, trained.trust)
        drawn, share = paths.view(len(places), num, horizon).numpy(), 0.0
        ahead = np.array(places)[:, None] + np.arange(horizon)
        truth = np.where(series.observed[ahead], series.y[ahead], np.nan)
        if (ridge := world.ridges[index]) is not None:
            most = len(evenly(num, config.ridge_share))
            others = ridge.paths(series.y, np.array(places), horizon, most, generator)
            share = asked_share(drawn, others, truth, config.ridge_share)
            drawn = mixed(drawn, others, share)
        # origins closer than a horizon share values
        evidence = (places[-1] - places[0]) / horizon + 1
        found[series.uid] = Verdict(share, asked_stretch(drawn, truth, anchors.floor, evidence))
    return found
