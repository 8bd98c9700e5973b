"""The page of fans: the right numbers, ids that cannot do harm, and nothing that is loaded from elsewhere."""

import importlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting import plotting as module
from stochflow.forecasting.plotting import BANDS, MAX_SERIES, fan_page, fan_traces

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
NASTY = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>&\"'"


class Reader(HTMLParser):
    """Tags with their attributes, the text of scripts by id, and the text a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.text = ""
        self.options: list[str] = []
        self.inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "option":
            self.options.append("")
        if tag == "script":
            self.scripts.append((dict(attrs).get("id"), ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            name, text = self.scripts[-1]
            self.scripts[-1] = (name, text + data)
        elif self.inside == "option":
            self.options[-1] += data
        else:
            self.text += data


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Four megabytes of plotly.js say nothing about this page; one test keeps them."""
    if "whole_plotly" not in request.node.name and "without_plotly" not in request.node.name:
        monkeypatch.setattr(module, "plotly_js", lambda what: "window.Plotly = {};")


def history(uid: str = "a", num: int = 100) -> pd.DataFrame:
    days = pd.date_range("2020-01-01", periods=num)
    return pd.DataFrame({"unique_id": uid, "ds": days, "y": np.arange(num) + 0.5})


def forecast(uid: str = "a", levels: tuple[float, ...] = LEVELS, steps: int = 3) -> pd.DataFrame:
    """Quantile q of step h is 100 h + q."""
    rows = pd.DataFrame({"unique_id": uid, "ds": pd.date_range("2020-04-10", periods=steps)})
    for level in levels:
        rows[level] = 100.0 * np.arange(1, steps + 1) + level
    return rows


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def fans(reader: Reader) -> list[dict[str, Any]]:
    (text,) = [data for name, data in reader.scripts if name == "data"]
    found: list[dict[str, Any]] = json.loads(text)
    return found


def by_role(traces: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {trace["meta"]: trace for trace in traces}


def test_the_figure_holds_the_numbers_of_history_and_forecast(tmp_path: Path) -> None:
    fan_page(history(), forecast(), tmp_path / "page.html", "Two weeks")
    (fan,) = fans(read(tmp_path / "page.html"))
    traces = by_role(fan["traces"])
    assert fan["id"] == "a"
    assert traces["history"]["y"] == (np.arange(40, 100) + 0.5).tolist()
    assert traces["history"]["x"][-1] == "2020-04-09T00:00:00"
    assert traces["median"]["x"] == [f"2020-04-{day:02d}T00:00:00" for day in (9, 10, 11, 12)]
    assert traces["median"]["y"] == [99.5, 100.5, 200.5, 300.5]
    assert traces["band80"]["y"] == [99.5, 100.9, 200.9, 300.9, 300.1, 200.1, 100.1, 99.5]
    assert traces["median"]["customdata"][1] == [100.025, 100.975, 100.1, 100.9, 100.25, 100.75]
    assert [trace["meta"] for trace in fan["traces"]] == [f"band{band}" for band in BANDS] + ["history", "median"]


def test_levels_may_be_text_and_tables_may_come_by_id(tmp_path: Path) -> None:
    rows = forecast().drop(columns="unique_id").rename(columns={level: str(level) for level in LEVELS})
    fan_page(history(), {"a": rows.assign(mean=0.0)}, tmp_path / "dict.html", "t")
    fan_page(history(), forecast(), tmp_path / "frame.html", "t")
    assert fans(read(tmp_path / "dict.html")) == fans(read(tmp_path / "frame.html"))


def test_levels_in_between_are_interpolated_and_wider_bands_left_out() -> None:
    traces = by_role(fan_traces("a", None, forecast(levels=(0.1, 0.9))))
    assert set(traces) == {"band80", "band50", "history", "median"}
    np.testing.assert_allclose(traces["median"]["y"], [100.5, 200.5, 300.5])
    np.testing.assert_allclose(traces["band50"]["y"][:3], [100.75, 200.75, 300.75])


def test_rows_in_any_order_are_drawn_in_the_order_of_time(tmp_path: Path) -> None:
    past, ahead = (table.sample(frac=1, random_state=0) for table in (history(), forecast()))
    fan_page(past, ahead, tmp_path / "mixed.html", "t")
    fan_page(history(), forecast(), tmp_path / "sorted.html", "t")
    assert fans(read(tmp_path / "mixed.html")) == fans(read(tmp_path / "sorted.html"))


def test_missing_values_leave_a_hole_and_the_fan_starts_at_the_last_value() -> None:
    rows = history()
    rows.loc[[50, 99], "y"] = np.nan
    traces = by_role(fan_traces("a", rows, forecast()))
    assert traces["history"]["y"][10] is None
    assert (traces["median"]["x"][0], traces["median"]["y"][0]) == ("2020-04-08T00:00:00", 98.5)


def test_numbers_as_times_stay_numbers() -> None:
    traces = by_role(fan_traces("a", history().assign(ds=range(100)), forecast().assign(ds=[100, 101, 102])))
    assert traces["median"]["x"] == [99, 100, 101, 102]


def test_ids_titles_and_commands_are_text_and_never_tags(tmp_path: Path) -> None:
    tables = {NASTY: forecast(NASTY), "plain": forecast("plain")}
    fan_page(history(NASTY), tables, tmp_path / "page.html", NASTY, command=f"stochflow forecast {NASTY}")
    reader = read(tmp_path / "page.html")
    assert reader.options == [NASTY, "plain"]
    assert [tag for tag, _ in reader.tags].count("script") == 3
    assert "img" not in {tag for tag, _ in reader.tags}
    assert fans(reader)[0]["id"] == NASTY
    assert f"stochflow forecast {NASTY}" in reader.text


def test_a_single_series_has_a_heading_and_no_selector(tmp_path: Path) -> None:
    fan_page(history("a<b"), forecast("a<b"), tmp_path / "page.html", "t")
    reader = read(tmp_path / "page.html")
    assert "select" not in {tag for tag, _ in reader.tags}
    assert "a<b" in reader.text


def test_the_page_loads_nothing_and_forbids_it(tmp_path: Path) -> None:
    fan_page(history(), forecast(), tmp_path / "page.html", "t")
    reader = read(tmp_path / "page.html")
    assert not [attributes for _, attributes in reader.tags if {"src", "href", "srcset", "action"} & set(attributes)]
    assert {"link", "iframe", "object", "embed", "base"}.isdisjoint(tag for tag, _ in reader.tags)
    policy = [attributes["content"] for _, attributes in reader.tags if "http-equiv" in attributes]
    assert str(policy[0]).startswith("default-src 'none'; ")
    assert not re.findall(r"https?://", (tmp_path / "page.html").read_text(encoding="utf-8"))


def test_the_page_with_the_whole_plotly_is_well_formed(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    fan_page(history(), forecast(), tmp_path / "page.html", "t")
    reader = read(tmp_path / "page.html")
    assert not [attributes for tag, attributes in reader.tags if tag == "script" and "src" in attributes]
    assert fans(reader)[0]["id"] == "a"
    assert (tmp_path / "page.html").stat().st_size > 1_000_000


def test_more_series_than_fit_are_counted_on_the_page(tmp_path: Path) -> None:
    tables = {f"s{number}": forecast(f"s{number}") for number in range(MAX_SERIES + 23)}
    fan_page(history(), tables, tmp_path / "page.html", "t")
    reader = read(tmp_path / "page.html")
    assert len(fans(reader)) == len(reader.options) == MAX_SERIES
    assert f"{MAX_SERIES} of {MAX_SERIES + 23} series are drawn" in reader.text


def test_the_foot_names_command_and_versions(tmp_path: Path) -> None:
    fan_page(history(), forecast(), tmp_path / "page.html", "t", command="stochflow forecast a.csv")
    text = read(tmp_path / "page.html").text
    assert "stochflow forecast a.csv" in text
    assert re.search(r"Python 3\.\d+\.\d+, stochflow \d.*torch \d.*pandas \d", text)


def test_the_style_knows_dark_and_narrow_screens(tmp_path: Path) -> None:
    fan_page(history(), forecast(), tmp_path / "page.html", "t")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "@media (prefers-color-scheme: dark)" in page
    assert 'content="width=device-width, initial-scale=1"' in page


def test_a_page_without_plotly_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ConfigError, match=r"needs plotly; run pip install 'stochflow\[report\]'$"):
        fan_page(history(), forecast(), tmp_path / "page.html", "t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "there are no forecasts to draw"),
        ({"a": forecast(levels=())}, "series 'a': the forecast has no median; give quantiles in columns such as 0.1"),
        ({"a": forecast(levels=(0.6, 0.9))}, "series 'a': the forecast has no median"),
        ({"a": forecast().replace(100.5, np.nan)}, "series 'a': the forecast has a quantile that is no finite number"),
        (
            {"a": forecast().drop(columns="ds")},
            "the forecast of series 'a' has no column 'ds'; the columns are: unique_id",
        ),
        (forecast().drop(columns="unique_id"), "the table of forecasts has no column 'unique_id'"),
    ],
)
def test_forecasts_that_cannot_be_drawn_are_one_sentence(tmp_path: Path, tables: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fan_page(history(), tables, tmp_path / "page.html", "t")


def test_a_history_that_cannot_be_drawn_is_one_sentence(tmp_path: Path) -> None:
    twice = history().assign(sales=1.0).rename(columns={"sales": "y"})
    with pytest.raises(DataError, match="the table of the history has two columns 'y'; keep one of them"):
        fan_page(twice, forecast(), tmp_path / "page.html", "t")
    with pytest.raises(DataError, match="the table of the history is of type list; give a pandas DataFrame"):
        fan_page([], forecast(), tmp_path / "page.html", "t")  # type: ignore[arg-type]


def test_numbers_written_as_text_are_drawn(tmp_path: Path) -> None:
    fan_page(history().astype({"y": str}), forecast(), tmp_path / "page.html", "t")
    text = fans(read(tmp_path / "page.html"))
    fan_page(history(), forecast(), tmp_path / "page.html", "t")
    assert text == fans(read(tmp_path / "page.html"))


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"page\.html: cannot be written \(No such file or directory\)"):
        fan_page(history(), forecast(), tmp_path / "nowhere" / "page.html", "t")
