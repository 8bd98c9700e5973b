"""What a table of measurements says of designs that are not in it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pandas as pd
from torch import Tensor


class Evidence(ABC):
    """Measurements that stand behind predicted scores, and how far they can be trusted.

    Attributes:
        tokens: measured sequences, int64, [num_measured, L].
        facts: figures of the prediction for a summary, by key.
        held_out: one row per measured sequence that was predicted from the others.
    """

    tokens: Tensor

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]: ...

    @property
    @abstractmethod
    def held_out(self) -> pd.DataFrame: ...

    @abstractmethod
    def own_scale(self, scores: Tensor) -> Tensor:
        """Scores of a run as they would have been measured; any shape → the same."""

    @abstractmethod
    def remarks(self, sequences: Sequence[str]) -> pd.DataFrame:
        """What is known of designs: predicted score with its interval, and the nearest measurement; one row each."""
