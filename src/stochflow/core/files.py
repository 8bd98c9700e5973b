"""Atomic writes, and reads of bounded size."""

import contextlib
import csv
import errno
import fcntl
import io
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stochflow.core.errors import ConfigError

_SUFFIX = ".part"
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.part", re.DOTALL)
MAX_COLUMNS = 5000


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file in one step: temporary file beside it, fsync, rename, fsync of the folder.

    The target of a symbolic link is replaced, not the link; a pipe or device is written to directly. Temporary files
    of killed writers of the same file are deleted.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    remove_leftovers(path.parent, path.name)
    descriptor, temporary = _temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)  # while it is open: its lock marks it as in use
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Delete temporary files whose writer has ended.

    Args:
        name: only temporary files of this file.
    """
    with contextlib.suppress(OSError):  # best effort
        for entry in list(os.scandir(folder)):
            found = _TEMPORARY.fullmatch(entry.name)
            if found and name in (None, found["name"]) and entry.is_file(follow_symlinks=False):
                with _abandoned(entry.path) as abandoned:
                    if abandoned:
                        os.unlink(entry.path)


def sync_file(path: Path) -> None:
    """Flush a file to disk, so that appended data survives a power loss."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def read_limited(path: Path, most: int) -> bytes:
    """Content of a file; an OSError if it has more than `most` bytes, as devices and pipes may."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most / 2**20:,.0f} MB", str(path))
    return data


def check_columns(source: Path | bytes, separator: str = ",") -> None:
    """Raise a ValueError for a table with more than MAX_COLUMNS columns, whose header would take minutes to parse."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
        try:
            first = next(csv.reader(lines, delimiter=separator), [])
        except csv.Error as error:
            raise ValueError(str(error)) from None
    if len(first) > MAX_COLUMNS:
        raise ValueError(f"it has {len(first):,} columns, and {MAX_COLUMNS:,} are the most there may be")


def is_locked(path: Path) -> bool:
    """True while some process holds the lock of this file, which may be on a read-only disk; False without the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    finally:
        os.close(descriptor)
    return False


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that renames in it survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path) -> tuple[int, str]:
    """A new temporary file beside the path, open, and locked while it is open."""
    while True:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX)
        with contextlib.suppress(OSError):  # no locks on this file system: `remove_leftovers` then deletes nothing
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)  # deleted as abandoned between its creation and its lock


@contextlib.contextmanager
def _abandoned(path: str) -> Iterator[bool]:
    """Whether no process holds the lock of a file; it is held within the context."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError | ValueError) -> ConfigError:
    """What to say when a folder cannot be written to."""
    return ConfigError(f"cannot write to {path} ({getattr(error, 'strerror', error)}); choose another --out")
