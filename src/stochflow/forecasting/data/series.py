"""One series as arrays, and the array types of the package."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stochflow.forecasting.model.seasonality import Seasonality

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Series:
    """A series of n values with its covariates.

    Attributes:
        uid: the series' `unique_id`.
        y: values, gaps interpolated, [n].
        observed: True where y was measured, False where it was filled in, [n].
        exogenous: Fourier terms of the calendar and features known in advance, scaled, [n + future, F].
        past: features known only up to now, scaled, [n, P].
        positions: time in usual steps from the first value, [n]; not whole numbers when the timestamps are irregular.
        static: category of each categorical static feature, zero for an unknown one, [S].
    """

    uid: str
    y: Array
    observed: Mask
    exogenous: Array
    past: Array
    positions: Array
    static: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.y)

    def is_plain(self, seasonality: Seasonality) -> bool:
        """Whether the time grid is regular and the calendar is the only covariate known in advance."""
        num_terms = seasonality.fourier_terms(np.zeros(1)).shape[1]
        return self.exogenous.shape[1] == num_terms and bool((np.diff(self.positions) == 1).all())
