"""The page of fans: the right numbers, ids that cannot do harm, and nothing that is loaded from elsewhere."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import ConfigError
from stochflow.forecasting import plotting as module
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.plotting import BANDS, MAX_SERIES, fan_figure, fan_page
from stochflow.reports.html.figure import Figure
from stochflow.reports.html.template import PAGE

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
        monkeypatch.setattr(module, "plotly_js", lambda: "window.Plotly = {};")


def history(uid: str = "a", num: int = 100) -> pd.DataFrame:
    days = pd.date_range("2020-01-01", periods=num)
    return pd.DataFrame({"unique_id": uid, "ds": days, "y": np.arange(num) + 0.5})


def forecast(uid: str = "a", steps: int = 3) -> pd.DataFrame:
    """The median of step h is 100 h, and the band of p per cent reaches p/100 to both sides."""
    rows = pd.DataFrame({"unique_id": uid, "ds": pd.date_range("2020-04-10", periods=steps)})
    rows["stochflow"] = 100.0 * np.arange(1, steps + 1)
    for share in BANDS:
        rows[f"stochflow-lo-{share}"] = rows["stochflow"] - share / 100
        rows[f"stochflow-hi-{share}"] = rows["stochflow"] + share / 100
    return rows


def write(
    path: Path, past: pd.DataFrame | None = None, ahead: pd.DataFrame | None = None, title: str = "t", command: str = ""
) -> "Reader":
    """The page of a history and a forecast, written and read again."""
    past, ahead = history() if past is None else past, forecast() if ahead is None else ahead
    fan_page(past, ahead, Columns(), path / "page.html", title, command)
    return read(path / "page.html")


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def fans(reader: Reader) -> list[dict[str, Any]]:
    (text,) = [data for name, data in reader.scripts if name == "data"]
    found: list[dict[str, Any]] = json.loads(text)
    return found


def by_name(figure: Figure) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure.traces}


def test_the_figure_holds_the_numbers_of_history_and_forecast() -> None:
    figure = fan_figure("a", history(), forecast(), Columns())
    traces = by_name(figure)
    assert figure.title == "a"
    assert traces["history"]["y"] == (np.arange(40, 100) + 0.5).tolist()
    assert traces["history"]["x"][-1] == "2020-04-09T00:00:00"
    assert traces["median"]["x"] == [f"2020-04-{day:02d}T00:00:00" for day in (9, 10, 11, 12)]
    assert traces["median"]["y"] == [99.5, 100, 200, 300]
    assert traces["80 %"]["y"] == [99.5, 100.8, 200.8, 300.8, 299.2, 199.2, 99.2, 99.5]
    assert traces["median"]["customdata"][1] == (99.05, 100.95, 99.2, 100.8, 99.5, 100.5)
    assert list(traces) == ["95 %", "80 %", "50 %", "history", "median"]


def test_every_colour_is_one_of_the_style_in_light_and_dark() -> None:
    for name, trace in by_name(fan_figure("a", history(), forecast(), Columns())).items():
        colour = trace["line"]["color"]
        assert PAGE.count(f"{colour}: #") == 2, name
        assert trace.get("fillcolor", colour) == colour


def test_columns_may_have_other_names() -> None:
    names = {"unique_id": "shop", "ds": "day", "y": "sales"}
    other = fan_figure("a", history().rename(columns=names), forecast().rename(columns=names), Columns(*names.values()))
    assert other == fan_figure("a", history(), forecast(), Columns())


def test_a_long_forecast_has_a_history_five_times_as_long() -> None:
    traces = by_name(fan_figure("a", history(num=300), forecast(steps=40), Columns()))
    assert len(traces["history"]["x"]) == 200


def test_numbers_as_times_stay_numbers() -> None:
    past, ahead = history().assign(ds=range(100)), forecast().assign(ds=[100, 101, 102])
    assert by_name(fan_figure("a", past, ahead, Columns()))["median"]["x"] == [99, 100, 101, 102]


def test_a_page_has_the_figure_of_each_series_and_shows_the_first(tmp_path: Path) -> None:
    reader = write(tmp_path, pd.concat([history("a"), history("b")]), pd.concat([forecast("b"), forecast("a")]))
    assert reader.options == ["b", "a"]
    assert len(fans(reader)) == 2
    parts = [attributes for _, attributes in reader.tags if "data-part" in attributes]
    assert [("hidden" in part, part["data-choice"]) for part in parts] == [(False, "0"), (True, "1")]


def test_ids_titles_and_commands_are_text_and_never_tags(tmp_path: Path) -> None:
    past, ahead = (pd.concat([table(NASTY), table("plain")]) for table in (history, forecast))
    reader = write(tmp_path, past, ahead, NASTY, command=f"stochflow forecast {NASTY}")
    assert reader.options == [NASTY, "plain"]
    assert [tag for tag, _ in reader.tags].count("script") == 3
    assert "img" not in {tag for tag, _ in reader.tags}
    assert f"stochflow forecast {NASTY}" in reader.text


def test_a_single_series_has_a_heading_and_no_selector_that_is_seen(tmp_path: Path) -> None:
    reader = write(tmp_path, history("a<b"), forecast("a<b"))
    assert [attributes for tag, attributes in reader.tags if tag == "label"] == [{"hidden": None}]
    assert "a<b" in reader.text


def test_the_page_loads_nothing_and_forbids_it(tmp_path: Path) -> None:
    reader = write(tmp_path)
    assert not [attributes for _, attributes in reader.tags if {"src", "href", "srcset", "action"} & set(attributes)]
    assert {"link", "iframe", "object", "embed", "base"}.isdisjoint(tag for tag, _ in reader.tags)
    policy = [attributes["content"] for _, attributes in reader.tags if "http-equiv" in attributes]
    assert str(policy[0]).startswith("default-src 'none'; ")
    assert not re.findall(r"https?://", (tmp_path / "page.html").read_text(encoding="utf-8"))


def test_the_page_with_the_whole_plotly_is_well_formed(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    reader = write(tmp_path)
    assert not [attributes for tag, attributes in reader.tags if tag == "script" and "src" in attributes]
    assert len(fans(reader)) == 1
    assert (tmp_path / "page.html").stat().st_size > 1_000_000


def test_more_series_than_fit_are_counted_on_the_page(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(MAX_SERIES + 23)]
    reader = write(tmp_path, pd.concat(map(history, names)), pd.concat(map(forecast, names)))
    assert len(fans(reader)) == len(reader.options) == MAX_SERIES
    assert f"{MAX_SERIES} of {MAX_SERIES + 23} series are drawn" in reader.text


def test_the_foot_names_command_and_versions(tmp_path: Path) -> None:
    text = write(tmp_path, command="stochflow forecast a.csv").text
    assert "stochflow forecast a.csv" in text
    assert re.search(r"python 3\.\d+\.\d+, .*stochflow \d.*torch \d.*pandas \d", text)


def test_the_style_knows_dark_and_narrow_screens(tmp_path: Path) -> None:
    write(tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "@media (prefers-color-scheme: dark)" in page
    assert 'content="width=device-width, initial-scale=1"' in page


def test_a_page_without_plotly_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match=r"plotly is not installed; run `pip install 'stochflow\[report\]'`$"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write to .*page\.html \(No such file or directory\)"):
        write(tmp_path / "nowhere")
