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
        known: first column and the one after the last of `exogenous` that is a feature known in advance, as of a slice.
        used_past: columns of `past` that the linear ensemble uses, [U].
        static: category of each categorical static feature, zero for an unknown one, [S].
    """

    uid: str
    y: Array
    observed: Mask
    exogenous: Array
    past: Array
    positions: Array
    static: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    known: tuple[int, int] = (0, 0)
    used_past: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def known_features(self) -> Array:
        """Features known in advance, [n + future, columns]."""
        return self.exogenous[:, slice(*self.known)]

    @property
    def calendar(self) -> Array:
        """Exogenous columns but the features known in advance, [n + future, columns]."""
        return np.delete(self.exogenous, slice(*self.known), axis=1)

    def __len__(self) -> int:
        return len(self.y)

    def is_plain(self, seasonality: Seasonality) -> bool:
        """Whether the time grid is regular and the calendar is the only covariate that linear models use."""
        num_terms = seasonality.fourier_terms(np.zeros(1)).shape[1]
        bare = self.exogenous.shape[1] == num_terms and not len(self.used_past)
        return bare and bool((np.diff(self.positions) == 1).all())
