"""One series, ready to learn from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
    """

    uid: str
    y: Array
    observed: NDArray[np.bool_]
    outside: Array
    past: Array
    positions: Array

    def __len__(self) -> int:
        return len(self.y)
