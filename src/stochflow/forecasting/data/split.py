"""Long tables split into series: ids, times and targets parsed and checked."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.core.errors import DataError
from stochflow.forecasting.data.columns import Columns, require_columns
from stochflow.forecasting.data.series import Array

Column: TypeAlias = "pd.Series[Any]"

# id of the series of a table without ids
ONLY_SERIES = "series"
# a last gap of so many median gaps, where no other is longer than so many, is a mistyped time
_MANY_GAPS, _LONG_GAP = 1_000, 10
_FEW_TIMES = 8


@dataclass(frozen=True)
class RawSeries:
    """One series before encoding, sorted by time: times [n], y [n] with NaN for gaps, one column per feature."""

    uid: str
    times: pd.Index
    y: Array
    features: pd.DataFrame


def split(frame: pd.DataFrame, columns: Columns, with_target: bool = True) -> tuple[list[RawSeries], dict[str, str]]:
    """Series in the order they appear, and one sentence for each whose times or target cannot be used."""
    require_columns(frame, columns, with_target)
    if frame.empty:
        raise DataError("the table has no rows; give at least one series")
    ids = series_ids(frame, columns)
    times = parse_times(frame[columns.time], ids)
    y, bad = to_numbers(frame[columns.target]) if with_target else (np.full(len(frame), np.nan), np.zeros(len(frame)))
    features = frame[[name for name in columns.features if name in frame.columns]]
    several = columns.id in frame.columns
    groups: list[RawSeries] = []
    problems: dict[str, str] = {}
    places: dict[str, Any] = ids.groupby(ids, sort=False).indices  # type: ignore[assignment]  # stubs
    for uid in ids.unique():
        index = places[uid]
        try:
            order = _in_time_order(uid, frame[columns.time].iloc[index], times[index], several)
            if with_target:
                _check_target(uid, frame[columns.target].iloc[index[order]], bad[index[order]], times[index[order]])
                _check_last_gap(uid, times[index[order]])
        except DataError as error:
            problems[uid] = str(error)
            continue
        groups.append(RawSeries(uid, times[index[order]], y[index[order]], features.iloc[index[order]]))
    return groups, problems


def series_ids(frame: pd.DataFrame, columns: Columns) -> Column:
    """The name of each row's series as text, indexed by row number."""
    if columns.id not in frame.columns:
        return pd.Series([ONLY_SERIES] * len(frame), dtype=object)
    ids = frame[columns.id].reset_index(drop=True)
    names = ids.astype(object).map(str)
    missing = np.flatnonzero(ids.isna() | (names.str.strip() == ""))
    if len(missing):
        raise DataError(
            f"{len(missing)} rows have no {columns.id}, the first is row {missing[0] + 1}; "
            "name their series or drop the rows"
        )
    return names


def parse_times(column: Column, ids: Column) -> pd.Index:
    """Dates, or whole or other numbers, [n]; NaT or NaN where a value is none. 20240131 and 202401 are dates."""
    if isinstance(column.dtype, pd.PeriodDtype):
        column = pd.Series(pd.PeriodIndex(column).to_timestamp(), name=column.name)
    _check_range(column)
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if not np.isfinite(numbers).all() or (numbers != np.round(numbers)).any():
            return pd.Index(np.where(np.isfinite(numbers), numbers, np.nan))
        # as they are: beyond 2**53 not every integer is a float
        whole = pd.Index(column.to_numpy(dtype=np.int64))
        for fewest, most, form in ((10_000_000, 99_999_999, "%Y%m%d"), (150_001, 299_912, "%Y%m")):
            if not whole.empty and whole.min() >= fewest and whole.max() <= most:
                dates = pd.to_datetime(whole.astype(str), format=form, errors="coerce")
                return whole if dates.isna().any() else dates.as_unit("us")
        return whole
    try:
        times = pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", errors="coerce"))
    except (ValueError, TypeError):  # mixed time zones
        raise DataError(f"{column.name} mixes time zones; write all dates in one zone") from None
    if times.isna().all():
        value, uid = column.iloc[0], ids.iloc[0]
        raise DataError(_no_date(uid, str(column.name), value))
    return times.as_unit("us")  # nanoseconds reach no further than 292 years


def _check_range(column: Column) -> None:
    """Raise a DataError for times that are complex or integers beyond 64 bits."""
    if pd.api.types.is_complex_dtype(column.dtype):
        raise DataError(f"{column.name} holds complex numbers; give dates or integers")
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in ("integer", "floating", "mixed-integer-float"):
        known = column.dropna()
        large = known[(known >= 2**63) | (known < -(2**63))]
        large = large[~large.isin([np.inf, -np.inf])]
        if len(large):
            raise DataError(f"{large.iloc[0]} in {column.name} is beyond 64 bits; give dates or smaller integers")


def _no_date(uid: str, name: str, value: object) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):  # type: ignore[call-overload]  # of any kind
        return f"series '{uid}': a row has no {name}; give its time or drop the row"
    return f"series '{uid}': '{value}' in {name} is no date; write dates as 2024-01-31 or 2024-01-31 23:00, or integers"


def _in_time_order(uid: str, given: Column, times: pd.Index, several: bool) -> NDArray[Any]:
    """Order of the rows by time, [n]; raises a DataError for a missing, unreadable or repeated time."""
    if times.hasnans:
        raise DataError(_no_date(uid, str(given.name), given.iloc[int(np.argmax(times.isna()))]))
    order = np.argsort(times.to_numpy(), kind="stable")
    repeated = times[times.duplicated()]
    if len(repeated):
        remedy = "" if several else " or, if these are several series, name them in a column unique_id"
        raise DataError(
            f"series '{uid}': {show_time(repeated[0])} appears more than once in {given.name}; "
            f"keep one row per timestamp{remedy}"
        )
    return order


def _check_target(uid: str, column: Column, bad: NDArray[Any], times: pd.Index) -> None:
    """Raise a DataError for the first value, in the order of time, that is no number."""
    if bad.any():
        first = int(np.argmax(bad))
        raise DataError(
            f"series '{uid}': '{column.iloc[first]!s:.40}' in {column.name} at {show_time(times[first])} is no number; "
            "correct it or leave it empty if it is missing"
        )


def _check_last_gap(uid: str, times: pd.Index) -> None:
    """Raise a DataError for a last time that is implausibly late."""
    if len(times) < _FEW_TIMES:
        return
    ticks = times.asi8 if isinstance(times, pd.DatetimeIndex) else times.to_numpy()
    gaps = np.diff(ticks).astype(np.float64)
    usual = float(np.median(gaps[:-1]))
    if gaps[-1] > _MANY_GAPS * usual and gaps[:-1].max() <= _LONG_GAP * usual:
        raise DataError(
            f"series '{uid}': the last time, {show_time(times[-1])}, comes {gaps[-1] / usual:.0f} usual gaps after "
            f"{show_time(times[-2])}; correct it or drop the row"
        )


def to_numbers(column: Column) -> tuple[Array, NDArray[Any]]:
    """Values as float64 with NaN for what is missing, [n], and True where a value is there but no number, [n]."""
    types = pd.api.types
    if types.is_datetime64_any_dtype(column.dtype) or types.is_timedelta64_dtype(column.dtype):
        values = pd.Series(np.nan, index=column.index)
    else:
        try:
            values = pd.to_numeric(column, errors="coerce")
        except (TypeError, ValueError, OverflowError):  # lists and the like
            values = column.map(_number)
        if types.is_complex_dtype(values.dtype):
            values = column.map(_number).astype(np.float64)
    numbers: Array = np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return numbers, np.isnan(numbers) & ~column.isna().to_numpy(dtype=bool)


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        return np.nan


def show_time(time: object) -> str:
    """A timestamp without a time of day of midnight."""
    return re.sub(r" 00:00:00$", "", str(time))


def names_list(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
