"""One series, ready to learn from."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stochflow.forecasting.model.seasonality import Rhythm

Array = NDArray[np.float64]


def _no_codes() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Series:
    """n values and what is known beside them.

    Attributes:
        uid: the series' `unique_id`.
        y: values, gaps filled in between their neighbours, [n].
        observed: True where the value was really there, [n].
        outside: waves of the calendar and features known in advance, scaled; may reach beyond n, [n + future, F].
        past: features known only up to now, scaled, [n, P].
        positions: time in usual steps from the first value, [n]; not whole numbers when the timestamps are irregular.
        static: category of each categorical static feature, zero for an unknown one, [S].
    """

    uid: str
    y: Array
    observed: NDArray[np.bool_]
    outside: Array
    past: Array
    positions: Array
    static: NDArray[np.int64] = field(default_factory=_no_codes)

    def __len__(self) -> int:
        return len(self.y)

    def is_plain(self, rhythm: Rhythm) -> bool:
        """Whether the calendar is all that is known in advance, and time goes by whole steps."""
        num_waves = rhythm.wave_values(np.zeros(1)).shape[1]
        return self.outside.shape[1] == num_waves and bool((np.diff(self.positions) == 1).all())
