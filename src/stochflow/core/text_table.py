"""Tables of text from CSV and TSV files that people made: checked, and read without guessing what a cell means."""

import contextlib
import csv
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import check_columns

_MOST_LETTERS = 40
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def check_text_file(path: Path, most_bytes: int, limits: str) -> None:
    """Refuse what is no file, larger than `most_bytes`, or not text.

    Args:
        limits: what a table may have at most, for the error message.
    """
    try:
        if not path.is_file():
            kind = "is not a file" if path.exists() else "does not exist"
            raise DataError(f"the table {path} {kind}; check the path")
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(4096)
    except (OSError, ValueError) as error:
        raise DataError(f"the table {path} cannot be read ({getattr(error, 'strerror', error)}); check it") from None
    if size > most_bytes:
        raise DataError(
            f"{path} has {size / 2**20:,.0f} MB, and a table may have {limits}; keep the columns and rows that matter"
        )
    if b"\0" in start:
        raise DataError(f"{path} is not a text file; save the table as CSV in UTF-8")


def check_header(path: Path, names: Sequence[str], remedy: str) -> list[str]:
    """Names of all columns; refuse a table without one of those in `names`, or with several of that name.

    Args:
        remedy: how a user names other columns.
    """
    if len(set(names)) < len(names):
        raise ConfigError(f"the columns {', '.join(names)} of {path} must differ; name each of them once")
    with readable(path):
        check_columns(path, separator(path))
        header = pd.read_csv(path, nrows=0, **text_options(path)).columns.tolist()
        check_separator(path, header, separator(path))
        missing = [name for name in names if name not in header]
        if missing:
            raise DataError(f"{path} has no column '{missing[0]}', only {shown(header)}; {remedy}")
        # the header as written: pandas renames duplicate columns
        written = pd.read_csv(path, nrows=1, **text_options(path) | {"header": None}).iloc[0].tolist()
    twice = [name for name in names if written.count(name) > 1]
    if twice:
        raise DataError(f"{path} has several columns '{plain(twice[0])}'; rename all but one of them")
    return header


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """What pandas raises while it reads a table becomes a DataError of one sentence."""
    try:
        with warnings.catch_warnings():
            # a decimal comma splits a number into two fields, which pandas would only warn of
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save the table as CSV in UTF-8") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty; give a table with a header and rows") from None
    except (ValueError, OSError, csv.Error, pd.errors.ParserWarning) as error:  # pandas raises ValueErrors
        raise DataError(f"{path} cannot be read as a table ({_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Why pandas cannot read a table, and the remedy, with the bracket between them closed."""
    text = " ".join(str(error).split())
    ragged = re.search(r"in line (\d+), saw", text)
    if ragged or isinstance(error, pd.errors.ParserWarning):
        line = f"line {ragged[1]}" if ragged else "a line"
        return (
            f"{line} has more cells than the header); write numbers with a decimal point, and put text that has "
            "commas into quotes"
        )
    if "EOF inside string" in text:
        return "a quotation mark is never closed); close or remove it"
    return f"{text}); save it as CSV with a header"


def check_separator(name: object, header: Sequence[object], expected: str) -> None:
    """Refuse a header that is one column because something else separates it.

    Args:
        name: of the table, for the error message.
        header: names of columns as they were read.
        expected: what separates columns.
    """
    others = {separator: word for separator, word in _SEPARATORS.items() if separator != expected}
    found = next((separator for separator in others if len(header) == 1 and separator in str(header[0])), None)
    if found is not None:
        remedy = " and name it .csv" if expected == "\t" else ", or name it .tsv" if found == "\t" else ""
        raise DataError(
            f"{name} separates its columns by {others[found]}; save it with {_SEPARATORS[expected]} between columns "
            f"and points in decimals{remedy}"
        )


def number_fault(text: str) -> str:
    """What is wrong with a cell that should be a number of a reasonable size, and how to write it.

    >>> number_fault("1,5"), number_fault("1e400"), number_fault("high")
    ('which has a decimal comma; write 1.5', 'which is too large; correct it', 'which is no number; correct it')
    """
    if re.fullmatch(r"[+-]?\d+,\d+", text):
        return f"which has a decimal comma; write {text.replace(',', '.')}"
    with contextlib.suppress(ValueError):
        large = "_" not in text and not math.isnan(float(text)) and any(letter.isdigit() for letter in text)
        return f"which is {'too large' if large else 'no number'}; correct it"
    return "which is no number; correct it"


def text_options(path: Path) -> dict[str, Any]:
    """Options of `pandas.read_csv` for cells as text; a line with more fields than the header is an error.

    Files are never decompressed, so that their size on disk bounds what is read.
    """
    return {
        "sep": separator(path),
        "header": 0,
        "index_col": False,
        "dtype": str,
        "keep_default_na": False,
        "encoding": "utf-8-sig",
        "compression": None,
    }


def separator(path: Path) -> str:
    """A tab for `.tsv` and `.tab`, otherwise a comma."""
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def shown(names: Sequence[object], most: int = 8) -> str:
    """The first names, made printable, for an error message."""
    listed = ", ".join(plain(name) for name in names[:most])
    return listed if len(names) <= most else f"{listed}, …"


def plain(value: object) -> str:
    """A value as short printable text."""
    text = "".join(letter if letter.isprintable() else "�" for letter in str(value))
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
