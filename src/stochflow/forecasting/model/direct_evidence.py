"""Whether direct networks help a series: its linear ensemble with and without them on held-out windows.

Direct networks forecast within the range of differences that they have seen. On smooth series with a trend that changes
they can be far worse than the linear ensemble, and only held-out values tell.
"""

import numpy as np
import torch

from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.series import Array, Index, Series
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.model.linear_models import fit_linear_models
from stochflow.forecasting.model.mixture import mix_marginals
from stochflow.forecasting.model.paths import path_starts, sample_paths
from stochflow.forecasting.model.seasonality import Seasonality

# origins to compare at
_MAX_ORIGINS = 16
# relative reduction of the held-out CRPS below which direct networks are not used
MIN_GAIN = 0.0


def held_out_origins(first: int, num: int, horizon: int) -> list[int]:
    """Origins from `first` on, the targets of the last of which end with the `num` values.

    Training has seen some of the first targets, as windows overlap: what speaks against direct networks is plain.
    """
    return sorted({int(place) for place in np.linspace(first, num - horizon, _MAX_ORIGINS)})


def direct_gain(
    series: Series, seasonality: Seasonality, config: ForecastConfig, origins: list[int], direct: Array
) -> float:
    """Relative reduction of the ensemble's CRPS by a share of direct forecasts [origins, values, horizon], sorted."""
    horizon, num = direct.shape[-1], config.validation_paths
    models = fit_linear_models([series], seasonality, config, [origins[0]])
    generator = torch.Generator().manual_seed(config.seed)
    start = path_starts(series, models.ensembles[0], origins, horizon, num)
    paths = sample_paths(start, models, None, generator).view(len(origins), num, horizon).numpy()
    mixed = np.stack([mix_marginals(*pair, config.direct_share) for pair in zip(paths, direct, strict=True)])
    ahead: Index = np.array(origins)[:, None] + np.arange(horizon)
    truth = torch.as_tensor(np.where(series.observed[ahead], series.y[ahead], np.nan))
    without, with_direct = (float(fair_crps(torch.as_tensor(each), truth).nanmean()) for each in (paths, mixed))
    return 1 - with_direct / max(without, 1e-300)
