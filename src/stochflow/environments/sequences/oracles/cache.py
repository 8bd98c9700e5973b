"""Persistent cache of oracle scores: an SQLite table with one row per design, committed before a score is used."""

import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from stochflow.core.errors import DataError
from stochflow.environments.sequences.task import MAX_SCORE

_APPLICATION_ID = 0x53464F43  # tells our files from other databases
_FORMAT = 1
_LOCK_TIMEOUT = 60.0
_CHUNK = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS scores (
    oracle TEXT NOT NULL,
    design TEXT NOT NULL,
    score REAL NOT NULL,
    payer TEXT NOT NULL,
    seal INTEGER,
    PRIMARY KEY (oracle, design)
) WITHOUT ROWID
"""
Result = TypeVar("Result")


class ScoreCache:
    """Scores of one oracle in a file that several runs may share concurrently.

    Args:
        path: SQLite database, created when the first score is stored.
        oracle: name of the function; a file may hold the scores of several.
        payer: id of the run whose oracle calls `put` records.
    """

    def __init__(self, path: Path, oracle: str, payer: str) -> None:
        self.path, self._oracle, self._payer = path, oracle, payer
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._has_checksums = True

    def get(self, designs: Iterable[str]) -> dict[str, float]:
        """Scores of those designs that are in the cache."""
        return {design: score for design, score, _ in self._rows(designs)}

    def paid_by_others(self, designs: Iterable[str]) -> set[str]:
        """Designs whose score another run has paid for."""
        return {design for design, _, payer in self._rows(designs) if payer != self._payer}

    def put(self, scores: Mapping[str, float]) -> None:
        """Store scores durably: after this returns they survive a crash of the process or the machine."""
        rows = [(self._oracle, design, score, self._payer) for design, score in scores.items()]

        def insert(connection: sqlite3.Connection) -> None:
            with connection:
                names, values = "oracle, design, score, payer", "?1, ?2, ?3, ?4"
                if self._has_checksums:
                    names, values = f"{names}, seal", f"{values}, checksum_of(?1, ?2, ?3, ?4)"
                connection.executemany(f"INSERT OR IGNORE INTO scores ({names}) VALUES ({values})", rows)

        self._run(insert)

    def check(self) -> None:
        """Raise a DataError if the file cannot be used, before any oracle call."""
        self._run(lambda _: None)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _rows(self, designs: Iterable[str]) -> list[tuple[str, float, str]]:
        wanted = list(dict.fromkeys(designs))
        if not self.path.exists():
            return []
        chunks = [wanted[start : start + _CHUNK] for start in range(0, len(wanted), _CHUNK)]
        return [row for chunk in chunks for row in self._chunk(chunk)]

    def _chunk(self, designs: Sequence[str]) -> list[tuple[str, float, str]]:
        marks = ",".join("?" * len(designs))
        query = f"SELECT design, score, payer FROM scores WHERE oracle = ? AND design IN ({marks})"
        rows = self._run(lambda connection: connection.execute(query, (self._oracle, *designs)).fetchall())
        if not all(isinstance(score, float) and 0.0 <= score <= MAX_SCORE for _, score, _ in rows):
            raise DataError(f"the oracle cache {self.path} holds a score that is no number; give another file")
        return rows

    def _run(self, action: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = self._open()
                return action(self._connection)
        except (sqlite3.Error, OSError) as error:
            raise DataError(
                f"the oracle cache {self.path} cannot be used ({error}); free the space, allow writing there or "
                "restore it, or give another file with --oracle-cache"
            ) from None

    def _open(self) -> sqlite3.Connection:
        # one connection for all threads, which the lock serialises
        connection = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT, check_same_thread=False)
        try:
            (owner,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if owner != _APPLICATION_ID and tables:
                raise sqlite3.DatabaseError("it is a database of another program")
            if owner != _APPLICATION_ID:
                connection.execute("PRAGMA journal_mode = WAL")
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(_SCHEMA)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.execute("PRAGMA synchronous = FULL")
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raise a DatabaseError for another format, and for rows that do not match their checksum."""
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"it has format {found}, and this version of stochflow reads {_FORMAT}")
        _check_schema(connection)
        self._has_checksums = found == _FORMAT  # files of the first version have neither a format nor checksums
        if self._has_checksums:
            connection.create_function("checksum_of", 4, checksum_of, deterministic=True)
            query = "SELECT design FROM scores WHERE seal IS NOT checksum_of(oracle, design, score, payer) LIMIT 1"
            damaged = connection.execute(query).fetchone()
            if damaged is not None:
                raise sqlite3.DatabaseError(f"it is damaged: the row of {damaged[0]!r} does not fit its checksum")


def checksum_of(oracle: str, design: str, score: float, payer: str) -> int:
    """Checksum of a row."""
    return zlib.crc32(f"{oracle}\n{design}\n{score!r}\n{payer}".encode())


def _check_schema(connection: sqlite3.Connection) -> None:
    """Raise a DatabaseError for views, triggers and other tables, which could make SQLite run without end."""
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    ours = _without_spaces(_SCHEMA.replace("IF NOT EXISTS ", ""))
    # files of the first version have no checksums
    if [_without_spaces(str(sql)) for (sql,) in rows] not in ([ours], [ours.replace("sealINTEGER,", "")]):
        raise sqlite3.DatabaseError("it holds something else than scores")


def _without_spaces(text: str) -> str:
    return "".join(text.split())
