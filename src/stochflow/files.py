"""Files that are either whole or absent."""

import contextlib
import csv
import errno
import io
import os
import tempfile
from pathlib import Path

MAX_COLUMNS = 5000


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file in one step: temporary file beside it, fsync, rename, fsync of the folder.

    A link keeps pointing at the file that is replaced; a pipe or device is written to as it is.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def read_limited(path: Path, most: int) -> bytes:
    """The whole of a file, or an OSError if it has more than `most` bytes; a file without an end included."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most / 2**20:,.0f} MB", str(path))
    return data


def check_columns(source: Path | bytes, separator: str = ",") -> None:
    """Raise a ValueError for a table with so many columns that reading its header takes minutes."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
        try:
            first = next(csv.reader(lines, delimiter=separator), [])
        except csv.Error as error:
            raise ValueError(str(error)) from None
    if len(first) > MAX_COLUMNS:
        raise ValueError(f"it has {len(first):,} columns, and {MAX_COLUMNS:,} are the most there may be")


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
