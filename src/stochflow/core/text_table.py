"""Tables of text from CSV and TSV files that people made: checked, and read without guessing what a cell means."""

import contextlib
import csv
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import check_columns

_MOST_LETTERS = 40


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
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a table ({reason}); save it as CSV with a header") from None


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
