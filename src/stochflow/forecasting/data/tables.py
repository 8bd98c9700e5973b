"""Long tables, one row per series and time: read, checked and split into series."""

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import check_columns
from stochflow.core.ram import available
from stochflow.forecasting.data.series import Array

Column: TypeAlias = "pd.Series[Any]"

ONLY_SERIES = "series"
# what pandas, pyarrow and the unpackers raise for a damaged file
_DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError, OverflowError),
    *(lzma.LZMAError, zlib.error, zipfile.BadZipFile, tarfile.TarError),
)
MAX_HORIZON = 100_000
# a last time that comes so many usual gaps late, after gaps of which none was so many times the usual, is mistyped
_MANY_GAPS, _LONG_GAP = 1_000, 10
_FEW_TIMES = 8
_MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None", "<NA>", "NaT"]


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a long table.

    Attributes:
        id: which series a row belongs to; a table without `unique_id` is one series.
        time: dates (ISO 8601) or integers.
        target: what is forecast.
        future: features that are known in advance.
        past: features that are known only up to now.
        static: features with one value per series.
    """

    id: str = "unique_id"
    time: str = "ds"
    target: str = "y"
    future: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for role in ("future", "past", "static"):
            names = getattr(self, role)
            if not isinstance(names, Iterable):
                raise ConfigError(f"the {role} columns are {names!s:.40}; give their names")
            object.__setattr__(self, role, (names,) if isinstance(names, str) else tuple(names))
        names = [self.id, self.time, self.target, *self.features]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"column '{twice}' is named twice; give every column one role")
        # forecasts stand beside these in one table
        for name in map(str, (self.id, self.time, self.target)):
            if name in ("stochflow", "cutoff", "sample") or name.startswith("stochflow-"):
                raise ConfigError(f"a column named '{name}' would clash with those of the forecasts; rename it")

    @property
    def features(self) -> tuple[str, ...]:
        """All columns beside id, time and target."""
        return (*self.future, *self.past, *self.static)


@dataclass(frozen=True)
class Rows:
    """One series as it was given, in the order of time: times [n], y [n] with NaN for gaps, one column per feature."""

    uid: str
    times: pd.Index
    y: Array
    features: pd.DataFrame


def read_frame(path: Path | str, columns: Columns | None = None, with_target: bool = True) -> pd.DataFrame:
    """Long table of a .csv (plain, .gz, .xz, .bz2, .zip) or .parquet file; `with_target=False`: of the future."""
    path, columns = Path(path), columns or Columns()
    try:
        _check_size(path)
        suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
        if suffixes[-1:] == [".parquet"]:
            frame = _read_parquet(path)
        elif ".csv" in suffixes:
            frame = _read_csv(path, columns)
        else:
            raise DataError(f"{path}: unknown kind of file; give .csv, .csv.gz, .csv.xz or .parquet")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path") from None
    except ImportError as error:  # a kind of packing that needs another package
        raise DataError(f"{path}: cannot be unpacked ({_first_line(error)}); unpack it or pack it as .csv.gz") from None
    except _DAMAGED as error:
        raise DataError(
            f"{path}: cannot be read ({_first_line(error)}); check that the file is whole and of its kind"
        ) from None
    if frame.empty:
        raise DataError(f"{path}: the table has no rows; give at least one series")
    try:
        require_columns(frame, columns, with_target)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return frame


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")


def _check_size(path: Path) -> None:
    """Raise a DataError for what is no file, and for a file that would not fit."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is not a file; check the path")
    size, most = path.stat().st_size, _most_bytes()
    if size > most:
        raise DataError(f"{path}: has {size / 2**20:,.0f} MB, and {most / 2**20:,.0f} can be read here; split it")


def _most_bytes() -> int:
    """Of a table as text: in memory it takes several times that."""
    return available() // 4


def _unpacked(path: Path) -> Path | bytes:
    """A plain file as it is, a packed one as its content, which may be a thousand times as large."""
    openers: dict[str, Callable[[Path], Any]] = {
        ".gz": gzip.GzipFile,
        ".bz2": bz2.BZ2File,
        ".xz": lzma.LZMAFile,
        ".zip": _open_zip,
    }
    if path.suffix.lower() == ".csv":
        return path
    if path.suffix.lower() not in openers:
        raise DataError(f"{path}: cannot be unpacked; unpack it or pack it as .csv.gz")
    most = _most_bytes()
    with openers[path.suffix.lower()](path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DataError(f"{path}: has more than {most / 2**20:,.0f} MB when unpacked; split it")
    return data


def _open_zip(path: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(path)
    names = archive.namelist()
    if len(names) != 1:
        raise DataError(f"{path}: holds {len(names)} files; pack one table alone")
    return archive.open(names[0])


def _read_csv(path: Path, columns: Columns) -> pd.DataFrame:
    unpacked = _unpacked(path)
    check_columns(unpacked)

    def table(**options: Any) -> pd.DataFrame:
        return pd.read_csv(io.BytesIO(unpacked) if isinstance(unpacked, bytes) else unpacked, **options)

    header = table(nrows=1, header=None, dtype=str, keep_default_na=False).iloc[0].tolist()
    _check_header(path, header, columns)
    # an id is a name: 007 keeps its zeros and NA is no missing value
    missing = {name: _MISSING for name in table(nrows=0).columns if name != columns.id}
    kinds = {columns.id: str, columns.target: str}
    frame = table(dtype=kinds, na_values=missing, keep_default_na=False, low_memory=False)
    if len(frame) and not isinstance(frame.index, pd.RangeIndex):  # pandas would take the first column as row names
        raise DataError(
            f"{path}: rows have more fields than the header's {len(header)}; "
            "name every column or drop the commas at the end of the rows"
        )
    # Python reads the very decimal that was written, the parser of pandas not always; text is refused later, by name
    with contextlib.suppress(ValueError, KeyError):
        frame[columns.target] = frame[columns.target].astype("float64")
    return frame


def _check_header(path: Path, header: list[str], columns: Columns) -> None:
    """Raise a DataError for another separator, and for repeated names, which pandas would number."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            raise DataError(
                f"{path}: the file seems to be separated by {name}; write it with commas instead, and points in numbers"
            )
    for name in (columns.id, columns.time, columns.target, *columns.features):
        if header.count(name) > 1:
            raise DataError(f"{path}: there are two columns '{name}'; keep one of them")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        metadata = importlib.import_module("pyarrow.parquet").read_metadata(path)
    except ImportError:
        raise ConfigError(f"{path}: reading parquet needs pyarrow; run pip install 'stochflow[parquet]'") from None
    num_values = metadata.num_rows * metadata.num_columns
    if 32 * num_values > available():  # values that repeat take no room in the file
        raise DataError(f"{path}: has {num_values:,} values, which do not fit into memory; split it")
    return pd.read_parquet(path)


def require_table(table: object, what: str = "the table") -> None:
    """Raise a DataError unless the table is a DataFrame."""
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"{what} is of type {type(table).__name__}; give a pandas DataFrame")


def require_columns(frame: pd.DataFrame, columns: Columns, with_target: bool = True) -> None:
    """Raise a DataError that lists what there is, unless every column is there once."""
    require_table(frame)
    needed = [columns.time, *columns.future]
    needed += [columns.target, *columns.past, *columns.static] if with_target else []
    needed += [columns.id] if columns.id != Columns().id else []
    there = ", ".join(map(str, frame.columns)) or "none"
    for name in needed:
        if name not in frame.columns:
            raise DataError(f"there is no column '{name}'; the columns are: {there}")
    for name in (columns.id, *needed):
        if (frame.columns == name).sum() > 1:
            raise DataError(f"there are two columns '{name}'; keep one of them")


def split(frame: pd.DataFrame, columns: Columns, with_target: bool = True) -> tuple[list[Rows], dict[str, str]]:
    """Series in the order they appear, and one sentence for each whose times or target cannot be used."""
    require_columns(frame, columns, with_target)
    if frame.empty:
        raise DataError("the table has no rows; give at least one series")
    ids = series_ids(frame, columns)
    times = parse_times(frame[columns.time], ids)
    y, bad = to_numbers(frame[columns.target]) if with_target else (np.full(len(frame), np.nan), np.zeros(len(frame)))
    features = frame[[name for name in columns.features if name in frame.columns]]
    several = columns.id in frame.columns
    groups: list[Rows] = []
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
        groups.append(Rows(uid, times[index[order]], y[index[order]], features.iloc[index[order]]))
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
    """Raise a DataError for a last time that lies far beyond what the others let expect."""
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
    """A timestamp as people write it: no midnight, no fractions of nothing."""
    return re.sub(r" 00:00:00$", "", str(time))


def names_list(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def check_horizon(horizon: int) -> None:
    """Raise a ConfigError unless the horizon is a whole number of steps from one to MAX_HORIZON."""
    whole = isinstance(horizon, int | np.integer) and not isinstance(horizon, bool)
    if not whole or not 1 <= horizon <= MAX_HORIZON:
        raise ConfigError(
            f"horizon is {horizon!s:.40}; give the number of steps to forecast, 1 or more and at most {MAX_HORIZON}"
        )
