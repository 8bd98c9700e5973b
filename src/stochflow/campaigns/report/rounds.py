"""What came of every round: its orders, the sequences that were measured, and how good the predictions were."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest, t

from stochflow.campaigns.goals import SCORE
from stochflow.campaigns.history import History
from stochflow.campaigns.settings import CampaignSettings
from stochflow.surrogates.base import unfitted

LEVEL = 0.95  # of the intervals of what was measured
_MIN_LOGO, _LOGO_SHARE = 10, 0.25  # designs of a logo: the best quarter, ten at least


@dataclass(frozen=True)
class Round:
    """An ask with what became of it, or what was measured without having been ordered here.

    Attributes:
        number: of the ask; 0 for what was not ordered here.
        orders: its rows of `History.orders`.
        outcomes: its rows of `outcomes_of`.
        checked: its rows of `checked_predictions`.
    """

    number: int
    orders: pd.DataFrame
    outcomes: pd.DataFrame
    checked: pd.DataFrame

    @property
    def title(self) -> str:
        return f"round {self.number}" if self.number else round_name(0)

    def count(self, state: str) -> int:
        """Orders that are pending, measured or failed."""
        return int((self.orders["state"] == state).sum())

    @property
    def best(self) -> "pd.Series[float] | None":
        """The outcome nearest to the goal; None where none keeps the thresholds."""
        known = self.outcomes[np.isfinite(self.outcomes["worth"])]
        return known.loc[known["worth"].idxmax()] if len(known) else None

    def top(self, length: int) -> list[str]:
        """The best quarter of the sequences of this length, ten at least, and all that tie with the last of them.

        Those that break a threshold are left out.
        """
        rows = self.outcomes[np.isfinite(self.outcomes["worth"])]
        rows = rows[rows["measured"].str.len() == length]
        worth = rows.groupby("measured", sort=False)["worth"].max()
        num = max(_MIN_LOGO, math.ceil(_LOGO_SHARE * len(worth)))
        last = worth.nlargest(num).min()
        return list(worth.index[worth >= last])


def round_name(number: int) -> str:
    """The number of a round; words for what was not ordered here."""
    return str(number) if number else "not ordered"


def rounds_of(history: History, settings: CampaignSettings) -> list[Round]:
    """What was not ordered here, if anything, and every ask."""
    outcomes = outcomes_of(history, settings)
    checked = checked_predictions(history.orders, outcomes)
    numbers = [0] * bool((outcomes["round"] == 0).any()) + [int(number) for number in history.asks["ask"]]
    return [
        Round(
            number,
            history.orders[history.orders["ask"] == number],
            outcomes[outcomes["round"] == number],
            checked[checked["ask"] == number],
        )
        for number in numbers
    ]


def outcomes_of(history: History, settings: CampaignSettings) -> pd.DataFrame:
    """One row per design and sequence that came of it, wells joined.

    Columns: design, measured (the sequence that came), score, wells, round (0 for what was not ordered here), variance
    of the sequence's mean score (NaN where unknown), the properties, and worth (see `Goal.worth`).
    """
    values = history.designs.dropna(subset=["value"])
    groups = values[values["property"] == SCORE].groupby(["design", "measured"], sort=False)["value"]
    rows = pd.DataFrame({"score": groups.mean().astype(float), "wells": groups.size().astype(int)})
    for name in settings.goal.properties:
        rows[name] = values[values["property"] == name].groupby(["design", "measured"])["value"].mean()
    rows = rows.reset_index()
    asks = dict(zip(history.orders["design"], history.orders["ask"], strict=True))
    rows["round"] = [int(asks.get(design, 0)) for design in rows["design"]]
    rows["variance"] = rows["measured"].map(_variances(history, settings)).astype(float)
    properties = {name: _tensor(rows[name]) for name in settings.goal.properties}
    rows["worth"] = settings.goal.worth(_tensor(rows["score"]), properties).numpy()
    return rows


def checked_predictions(orders: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Orders with the score of what was made as written, and whether it is `inside` the predicted interval.

    Where a well was sequenced and something else had come, the prediction was not put to the test. Neither was one from
    before the first measurement, when everything is predicted to be 0 ± 1.
    """
    exact = outcomes[outcomes["design"] == outcomes["measured"]].set_index("design")["score"]
    rows = orders.assign(score=orders["design"].map(exact).astype(float))
    low, high = (float(bound) for bound in unfitted(1).interval())
    unfounded = (rows["predicted"] == 0.0) & (rows["low"] == low) & (rows["high"] == high)
    rows = rows[rows["score"].notna() & rows["predicted"].notna() & ~unfounded]
    return rows.assign(inside=(rows["low"] <= rows["score"]) & (rows["score"] <= rows["high"]))


def mean_reach(values: "pd.Series[float]") -> float:
    """Half the 95 % interval of a mean by Student's t; NaN for fewer than two values.

    >>> round(mean_reach(pd.Series([1.0, 2.0, 3.0])), 3)  # 4.303 · 1 / √3
    2.484
    """
    num = len(values)
    if num < 2:
        return math.nan
    return float(t.ppf((1 + LEVEL) / 2, num - 1) * values.std() / math.sqrt(num))


def share_interval(num_inside: int, num: int) -> tuple[float, float]:
    """95 % interval of a share after Wilson.

    >>> [round(bound, 3) for bound in share_interval(8, 10)]
    [0.49, 0.943]
    """
    found = binomtest(num_inside, num).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def rank_correlation(rows: pd.DataFrame) -> float:
    """Spearman's correlation of predicted and measured scores; NaN for fewer than three, or constant ones."""
    ranks = rows[["predicted", "score"]].rank()
    if len(ranks) < 3 or (ranks.nunique() < 2).any():
        return math.nan
    return float(np.corrcoef(ranks["predicted"], ranks["score"])[0, 1])


def _variances(history: History, settings: CampaignSettings) -> dict[str, float]:
    """Variance of the mean score of every sequence; empty where nothing is known about them."""
    evidence = history.evidence()
    if evidence.variances is None:
        return {}
    return dict(zip(settings.space.alphabet.decode(evidence.tokens), evidence.variances.tolist(), strict=True))


def _tensor(values: "pd.Series[float]") -> torch.Tensor:
    return torch.from_numpy(values.to_numpy(dtype=np.float64, copy=True))
