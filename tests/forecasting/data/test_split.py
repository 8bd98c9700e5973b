"""Long tables split into series: ids and targets."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import DataError
from stochflow.forecasting.data.encoder import Encoder


@pytest.mark.parametrize("missing", [None, np.nan, "", " "])
def test_a_row_without_an_id_is_named_by_its_number(missing: object) -> None:
    frame = pd.DataFrame({"unique_id": ["a", missing], "ds": [1, 1], "y": [1.0, 2.0]})
    with pytest.raises(DataError, match="1 rows have no unique_id, the first is row 2; name their series"):
        Encoder.fit(frame)


def test_a_target_that_is_no_number_names_value_and_series() -> None:
    frame = pd.DataFrame({"unique_id": ["a", "b", "b"], "ds": [1, 1, 2], "y": ["1.5", "n/k", "?"]})
    with pytest.raises(DataError, match="series 'b': 'n/k' in y at 1 is no number; correct it or leave it empty"):
        Encoder.fit(frame[frame["unique_id"] == "b"])


@pytest.mark.parametrize("value", ["n/k", [1, 2], 1j, 10**400])
def test_a_target_that_is_no_number_leaves_the_other_series_alone(value: Any) -> None:
    frame = pd.DataFrame({"unique_id": np.repeat(["a", "b"], 10), "ds": [*range(10)] * 2, "y": 1.0}).astype(
        {"y": object}
    )
    frame.at[13, "y"] = value
    panel = Encoder.fit(frame).panel(frame)
    assert [series.uid for series in panel.series] == ["a"]
    assert panel.problems["b"].startswith(f"series 'b': '{str(value)[:40]}' in y at 3 is no number; correct it")


@pytest.mark.parametrize("y", [np.arange(10) * 1j, pd.to_timedelta(np.arange(10), unit="D")])
def test_a_target_of_complex_numbers_or_spans_is_refused(y: object) -> None:
    with pytest.raises(DataError, match=r"no series can be used; series 'series': '.*' in y at 0 is no number"):
        Encoder.fit(pd.DataFrame({"ds": range(10), "y": y}))


def test_numbers_written_as_text_are_numbers() -> None:
    frame = pd.DataFrame({"ds": range(20), "y": [f"{number}.5" for number in range(19)] + [None]})
    (series,) = Encoder.fit(frame).panel(frame).series
    assert (series.y[:2].tolist(), series.observed[-1]) == ([0.5, 1.5], False)
