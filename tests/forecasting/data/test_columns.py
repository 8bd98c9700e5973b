"""Columns: one role each, and a sentence for what is missing or there twice."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.encoder import Encoder


def test_a_column_has_one_role() -> None:
    with pytest.raises(ConfigError, match="column 'price' is named twice"):
        Columns(future=("price",), past=("price",))


@pytest.mark.parametrize("name", ["stochflow", "stochflow-lo-80", "cutoff", "sample"])
@pytest.mark.parametrize("role", ["id", "time", "target"])
def test_names_of_the_forecasts_are_taken(role: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"a column named '{name}' would clash with those of the forecasts"):
        Columns(**{role: name})  # type: ignore[arg-type]


def test_columns_that_are_no_names_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="the future columns are None; give their names"):
        Columns(future=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="columns is of type dict; give Columns"):
        Encoder.fit(pd.DataFrame({"ds": [1], "y": [1.0]}), {"id": "store"})  # type: ignore[arg-type]


@pytest.mark.parametrize("table", [None, [], {}, "data.csv", Path("data.csv")])
def test_a_table_is_a_frame(table: Any) -> None:
    good = pd.DataFrame({"ds": range(10), "y": 1.0})
    encoder = Encoder.fit(good)
    for use in (Encoder.fit, encoder.panel):
        with pytest.raises(DataError, match=f"the table is of type {type(table).__name__}; give a pandas DataFrame"):
            use(table)
    if table is not None:
        panel = encoder.panel(good)
        with pytest.raises(DataError, match=r"the future table is of type .*; give a pandas DataFrame"):
            encoder.future(panel.series[0], panel.times["series"], 1, table)


def test_one_name_may_be_given_bare() -> None:
    assert Columns(future="price").future == ("price",)  # type: ignore[arg-type]


def test_an_unknown_column_lists_what_there_is() -> None:
    frame = pd.DataFrame({"ds": [1], "y": [1.0]})
    with pytest.raises(DataError, match="no column 'store'; the columns are: ds, y"):
        Encoder.fit(frame, Columns(id="store"))
    with pytest.raises(DataError, match="no column 'price'; the columns are: ds, y"):
        Encoder.fit(frame, Columns(future=("price",)))


def test_a_repeated_column_is_refused() -> None:
    frame = pd.DataFrame([[1, 2.0, 3.0]], columns=["ds", "y", "y"])
    with pytest.raises(DataError, match="two columns 'y'"):
        Encoder.fit(frame)
