"""What has been measured, with replicates joined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stochflow.campaigns.goals import SCORE
from stochflow.core.arrays import Array
from stochflow.environments.sequences.task import Alphabet


@dataclass(frozen=True)
class Evidence:
    """What is known: one row per sequence that was measured, oldest first, its replicates joined.

    Attributes:
        tokens: what was measured, int64, [num, L]: the observed sequence where it is known, otherwise the order.
        scores: means of replicates, float64, [num]; of any sign.
        variances: of these means, float64, [num]; None where there is nothing to estimate them from.
        properties: means of further properties by name, float64, [num] each; NaN where one was not measured.
    """

    tokens: Tensor
    scores: Tensor
    variances: Tensor | None = None
    properties: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scores)


def join_replicates(values: pd.DataFrame, alphabet: Alphabet, length: int, properties: Sequence[str]) -> Evidence:
    """Evidence of single measurements.

    Args:
        values: `measured` (a sequence), `property`, `value` and `variance` (NaN where unknown), oldest first.
        properties: names of the properties beside the score.
    """
    of_score = values[(values["property"] == SCORE) & (values["measured"].str.len() == length)]
    if of_score.empty:
        return Evidence(
            torch.empty(0, length, dtype=torch.int64), _tensor([]), None, {n: _tensor([]) for n in properties}
        )
    means = of_score.groupby("measured", sort=False)["value"].mean()
    others = {
        name: values[values["property"] == name].groupby("measured")["value"].mean().reindex(means.index)
        for name in properties
    }
    variances = _variances(of_score)
    return Evidence(
        alphabet.encode(list(means.index)),
        _tensor(means),
        None if variances is None else _tensor(variances),
        {name: _tensor(mean) for name, mean in others.items()},
    )


def _variances(rows: pd.DataFrame) -> Array | None:
    """Variance of each mean of replicates: as told, otherwise by the scatter of replicates; None without both.

    The scatter is pooled over all sequences, Σ (x − mean)² / Σ (replicates − 1), for two or three replicates of one
    sequence say little about its own.
    """
    groups = rows.groupby("measured", sort=False)
    freedom = len(rows) - groups.ngroups
    errors = rows["value"] - groups["value"].transform("mean")
    usual = float((errors**2).sum() / freedom) if freedom else float(rows["variance"].median())
    if np.isnan(usual):
        return None
    each = rows["variance"].fillna(usual).groupby(rows["measured"], sort=False)
    found: Array = (each.sum() / each.size() ** 2).to_numpy()
    return found


def _tensor(values: "Sequence[float] | Array | pd.Series[float]") -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))
