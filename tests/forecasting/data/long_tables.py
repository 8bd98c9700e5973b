"""Small long tables that the tests of this folder share."""

import numpy as np
import pandas as pd

from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.encoder import Encoder, Panel

RICH = Columns(future=("price", "event"), past=("rain",), static=("size", "region"))


def daily(uid: str = "a", num: int = 30, start: str = "2020-01-01") -> pd.DataFrame:
    days = pd.date_range(start, periods=num)
    return pd.DataFrame({"unique_id": uid, "ds": days, "y": np.arange(num, dtype=float)})


def rich(num: int = 30) -> pd.DataFrame:
    """Two series with every kind of feature."""
    parts = [daily("a", num), daily("b", num)]
    for part, size, region in zip(parts, (1.0, 3.0), ("north", "south"), strict=True):
        part["price"] = np.arange(num, dtype=float)
        part["event"] = ["none", "sale", "fair"] * (num // 3)
        part["rain"] = np.arange(num)[::-1]
        part["size"], part["region"] = size, region
    return pd.concat(parts, ignore_index=True)


def encode(frame: pd.DataFrame, columns: Columns | None = None, freq: str | None = None) -> Panel:
    return Encoder.fit(frame, columns, freq).panel(frame)


def irregular(num: int = 30) -> pd.DataFrame:
    """Hours 0, 1, 3, 4, 6, 7, …: gaps of one and two, then one of thirty minutes."""
    hours = np.cumsum([0.0, *([1.0, 2.0] * num)])[: num - 1]
    hours = np.append(hours, hours[-1] + 0.5)
    return pd.DataFrame({"ds": pd.Timestamp("2020-01-01") + pd.to_timedelta(hours, unit="h"), "y": np.arange(num)})


DAYS = list(daily()["ds"])
TEXT_DAYS = [str(day.date()) for day in DAYS]
