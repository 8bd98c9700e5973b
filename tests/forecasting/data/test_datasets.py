"""The series that ship: known values, calendars, gaps, and refusal of files that are not the published ones."""

import lzma
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pandas as pd
import pytest

from stochflow.core.errors import DataError
from stochflow.environments.sequences import packed
from stochflow.forecasting.data.datasets import GROUPS, SERIES, load_group, load_series

FOLDER = resources.files("stochflow.forecasting") / "data"
# number of rows, first day, first value, last day, last value: read off the sources
KNOWN = {
    "airline": (144, "1949-01-01", 112, "1960-12-01", 432),
    "co2": (526, "1958-03-01", 316.1, "2001-12-01", 371.02),
    "elnino": (732, "1950-01-01", 23.11, "2010-12-01", 22.07),
    "sunspots": (309, "1700-01-01", 5, "2008-01-01", 2.9),
    "unemployment": (203, "1959-01-01", 5.8, "2009-07-01", 9.6),
    "seattle_temp_max": (1461, "2012-01-01", 12.8, "2015-12-31", 5.6),
    "ausbeer": (218, "1956-01-01", 284, "2010-04-01", 374),
    "a10": (204, "1991-07-01", 3.526591, "2008-06-01", 19.43174),
    "lynx": (114, "1821-01-01", 269, "1934-01-01", 3396),
    "gasoline": (1355, "1991-02-02", 6.621, "2017-01-14", 8.039),
    "goog": (1000, "2013-02-25", 392.830017, "2016-12-23", 813.669983),
    "elecdaily": (365, "2014-01-01", 174.896295326, "2014-12-31", 186.370181072),
    "auscafe": (426, "1982-04-01", 0.3424, "2017-09-01", 3.7297),
    "canadian_gas": (542, "1960-01-01", 1.4306, "2005-02-01", 16.9441),
    "dutch_sales": (425, "1960-05-01", 14, "1995-09-01", 115),
    "measles": (239, "1701-01-01", 4, "1939-01-01", 2),
    "woolyrnq": (119, "1965-01-01", 6172, "1994-07-01", 6396),
    "hyndsight": (365, "2014-04-30", 1157, "2015-04-29", 2028),
    "peyton_manning": (2905, "2007-12-10", 9.590761, "2016-01-20", 8.891374),
    "electricity": (26304, "2012-01-01 00:00", 1300.576, "2014-12-31 23:00", 1439.396),
    "wind": (8220, "2019-08-01 00:00", 19.1103, "2020-07-08 11:00", 10.3),
}


@pytest.fixture(scope="module")
def series() -> dict[str, pd.DataFrame]:
    """Every series under its name, read once."""
    groups = [load_group(group) for group in GROUPS]
    return {str(name): rows for group in groups for name, rows in group.groupby("unique_id", sort=False)}


@pytest.mark.parametrize("name", KNOWN)
def test_a_series_starts_and_ends_as_published(series: dict[str, pd.DataFrame], name: str) -> None:
    rows = series[name]
    (start, first), (end, last) = rows[["ds", "y"]].iloc[[0, -1]].itertuples(index=False)
    assert (len(rows), start, first, end, last) == (
        KNOWN[name][0],
        *(pd.Timestamp(KNOWN[name][1]), KNOWN[name][2]),
        *(pd.Timestamp(KNOWN[name][3]), KNOWN[name][4]),
    )


def test_the_files_hold_what_the_registry_lists_in_its_order(series: dict[str, pd.DataFrame]) -> None:
    assert list(series) == list(SERIES)
    for group in GROUPS:
        names = [info.name for info in SERIES.values() if info.group == group]
        assert load_group(group)["unique_id"].unique().tolist() == names


def test_the_groups_have_the_agreed_sizes() -> None:
    groups = [info.group for info in SERIES.values()]
    assert {group: groups.count(group) for group in GROUPS} == {
        "seven": 7,
        "development": 10,
        "unseen": 18,
        "hourly": 4,
    }


def test_no_two_series_are_the_same_numbers(series: dict[str, pd.DataFrame]) -> None:
    # one series in two groups would let a choice made on one leak into the other
    assert len({tuple(rows["y"].dropna().head(50)) for rows in series.values()}) == len(SERIES)


@pytest.mark.parametrize("name", sorted(set(SERIES) - {"peyton_manning"}))
def test_a_regular_series_has_every_period_of_its_frequency_once(series: dict[str, pd.DataFrame], name: str) -> None:
    days = series[name]["ds"]
    expected = pd.date_range(days.iloc[0], periods=len(days), freq=SERIES[name].freq)
    assert days.tolist() == expected.tolist()


def test_absent_days_stay_absent(series: dict[str, pd.DataFrame]) -> None:
    rows = series["peyton_manning"]
    every_day = pd.date_range("2007-12-10", "2016-01-20")
    assert rows["ds"].is_monotonic_increasing
    assert len(every_day.difference(pd.DatetimeIndex(rows["ds"]))) == 59
    assert rows["y"].notna().all()


def test_the_hours_that_summer_time_skips_are_missing(series: dict[str, pd.DataFrame]) -> None:
    rows = series["electricity"]
    missing = rows.loc[rows["y"].isna(), "ds"].dt.strftime("%Y-%m-%d %H:%M")
    assert missing.tolist() == ["2012-03-25 01:00", "2013-03-31 01:00", "2014-03-30 01:00"]
    assert rows["y"].min() > 900


def test_measles_misses_the_years_nobody_counted(series: dict[str, pd.DataFrame]) -> None:
    rows = series["measles"]
    assert rows.loc[rows["y"].isna(), "ds"].dt.year.tolist() == [*range(1832, 1841), *range(1882, 1911)]


def test_nothing_else_is_missing(series: dict[str, pd.DataFrame]) -> None:
    assert {name for name, rows in series.items() if rows["y"].isna().any()} == {"electricity", "measles"}


def test_missing_months_of_co2_lie_on_a_line(series: dict[str, pd.DataFrame]) -> None:
    values = series["co2"].set_index("ds")["y"]
    assert values["1958-06-01"] == pytest.approx((values["1958-05-01"] + values["1958-07-01"]) / 2, abs=1e-3)
    steps = values.loc["1964-01-01":"1964-05-01"].diff().dropna()
    assert steps.max() - steps.min() < 2e-3


def test_daily_and_hourly_series_are_forecast_further() -> None:
    assert {SERIES[name].horizon for name in ("seattle_temp_max", "seattle_precipitation", "goog", "solar")} == {24}
    assert {SERIES[name].horizon for name in ("airline", "sunspots", "unemployment", "gasoline")} == {12}


@pytest.mark.parametrize("name", ["sunspots", "electricity"])
def test_one_series_is_its_part_of_the_group(series: dict[str, pd.DataFrame], name: str) -> None:
    rows = load_series(name)
    pd.testing.assert_frame_equal(rows, series[name].reset_index(drop=True))
    assert rows.columns.tolist() == ["unique_id", "ds", "y"]
    assert (rows["ds"].dtype, rows["y"].dtype) == ("datetime64[ns]", "float64")


def test_an_unknown_series_is_answered_with_the_closest_and_all_names() -> None:
    with pytest.raises(DataError, match=r"unknown series 'Sunspot'; did you mean 'sunspots'\? .*airline, .*sf_traffic"):
        load_series("Sunspot")


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    with pytest.raises(DataError, match=r"unknown series 'xyzzy'; choose one of: airline, "):
        load_series("xyzzy")


def test_an_unknown_group_is_answered_with_the_groups() -> None:
    with pytest.raises(DataError, match=r"'dev'.*choose one of: seven, development, unseen, hourly$"):
        load_group("dev")


def test_the_files_are_small_enough_to_ship() -> None:
    assert sum(len((FOLDER / f"{group}.csv.xz").read_bytes()) for group in GROUPS) < 300_000


def put_file(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "seven.csv.xz").write_bytes(content)
    monkeypatch.setattr(packed.resources, "files", lambda package: folder)


def flip_one_bit(packed: bytes) -> bytes:
    return packed[:1000] + bytes([packed[1000] ^ 1]) + packed[1001:]


def other_numbers(packed: bytes) -> bytes:
    """A well-formed file with one passenger more."""
    return lzma.compress(lzma.decompress(packed).replace(b"1949-01-01,112", b"1949-01-01,113"))


@pytest.mark.parametrize("damage", [flip_one_bit, other_numbers, lambda packed: packed[:-1], lambda packed: b""])
def test_a_damaged_file_is_a_data_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    put_file(tmp_path, monkeypatch, damage((FOLDER / "seven.csv.xz").read_bytes()))
    with pytest.raises(DataError, match=r"seven\.csv\.xz is damaged .*rebuild"):
        load_series("airline")


def test_a_missing_file_is_a_data_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_file(tmp_path, monkeypatch, b"")
    with pytest.raises(DataError, match=r"hourly\.csv\.xz cannot be read .* reinstall"):
        load_group("hourly")
