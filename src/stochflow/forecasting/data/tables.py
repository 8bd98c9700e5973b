"""Long tables from files: CSV, plain or packed, and parquet."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pandas as pd

from stochflow.core.errors import DataError
from stochflow.core.extras import extra
from stochflow.core.files import check_columns
from stochflow.core.ram import available
from stochflow.forecasting.data.columns import Columns, require_columns

# what pandas, pyarrow and the unpackers raise for a damaged file
_DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError, OverflowError),
    *(lzma.LZMAError, zlib.error, zipfile.BadZipFile, tarfile.TarError),
)
_MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None", "<NA>", "NaT"]


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
    metadata = extra("pyarrow.parquet", "parquet").read_metadata(path)
    num_values = metadata.num_rows * metadata.num_columns
    if 32 * num_values > available():  # values that repeat take no room in the file
        raise DataError(f"{path}: has {num_values:,} values, which do not fit into memory; split it")
    return pd.read_parquet(path)
