"""What has happened in a campaign, as its file tells it: orders and their state, results, evidence."""

import sqlite3

import pandas as pd

from stochflow.campaigns.evidence import Evidence, join_replicates
from stochflow.campaigns.goals import SCORE
from stochflow.campaigns.settings import CampaignSettings
from stochflow.campaigns.store import LIVE_RESULTS, frame_of

_KEY = ["place_1", "place_2", "replicate", "property"]
_NUMBERS = ["value", "variance"]


class History:
    """The facts of a campaign at one moment.

    Attributes:
        orders: one row per ordered design: id, ask, design, plate, well, prediction, `state` (pending, measured or
            failed) and `score`, the mean of its wells.
        results: live results, one row per value, latest version of each; `measured` is the observed sequence or the
            design.
    """

    def __init__(self, connection: sqlite3.Connection, settings: CampaignSettings) -> None:
        self._settings = settings
        self.asks = frame_of(connection, "SELECT * FROM asks ORDER BY ask")
        self.tells = frame_of(
            connection, "SELECT tells.*, undos.at AS undone FROM tells LEFT JOIN undos USING (tell) ORDER BY tell"
        )
        self.results = _latest(frame_of(connection, LIVE_RESULTS))
        orders = frame_of(connection, "SELECT * FROM orders ORDER BY ask, rowid")
        self.orders = _with_state(orders, self.results)

    @property
    def designs(self) -> pd.DataFrame:
        """Results that are no controls."""
        return self.results[self.results["control"] == 0]

    @property
    def pending(self) -> pd.DataFrame:
        """Orders without a result."""
        return self.orders[self.orders["state"] == "pending"]

    @property
    def taken(self) -> list[str]:
        """Designs that are not proposed again: all that were ordered or measured, in the order of their coming."""
        measured = self.designs["measured"]
        whole = measured[measured.str.len() == self._settings.length]
        return list(dict.fromkeys([*self.orders["design"], *self.designs["design"], *whole]))

    def evidence(self) -> Evidence:
        """What is known of scores; observed sequences of another length are no designs and left out."""
        values = self.designs.dropna(subset=["value"])
        settings = self._settings
        return join_replicates(values, settings.space.alphabet, settings.length, settings.goal.properties)


def _latest(results: pd.DataFrame) -> pd.DataFrame:
    """The last version of every result, in the order of their first telling."""
    in_well = results["plate"].notna() & results["well"].notna()
    place = {
        "place_1": results["plate"].where(in_well, ""),
        "place_2": results["well"].where(in_well, results["design"]),
    }
    rows = results.assign(**place).astype(dict.fromkeys(_NUMBERS, float))
    first = rows.drop_duplicates(_KEY).reset_index().set_index(_KEY)["index"]
    rows = rows.drop_duplicates(_KEY, keep="last")
    rows = rows.iloc[first.loc[pd.MultiIndex.from_frame(rows[_KEY])].argsort().to_numpy()]
    return rows.assign(measured=rows["observed"].fillna(rows["design"])).drop(columns=_KEY[:2]).reset_index(drop=True)


def _with_state(orders: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Orders with what became of them; results without an id count for the design."""
    of_score = results[(results["property"] == SCORE) & (results["control"] == 0)]
    scores = of_score.dropna(subset=["value"]).groupby("design")["value"].mean()
    state = pd.Series("pending", index=orders.index, dtype=object)
    state[orders["design"].isin(results["design"])] = "failed"
    state[orders["design"].isin(results.dropna(subset=["value"])["design"])] = "measured"
    numbers = dict.fromkeys(["predicted", "low", "high", "expected", "probability"], float)
    return orders.assign(state=state, score=orders["design"].map(scores).astype(float)).astype(numbers)
