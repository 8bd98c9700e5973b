"""The file of a campaign: an SQLite database whose tables only grow, written in transactions."""

import contextlib
import getpass
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.core.errors import ConfigError, DataError

FILE = "campaign.sqlite"
FORMAT = 1
_APPLICATION_ID = 0x53464341  # tells our files from other databases
_LOCK_TIMEOUT = 5.0  # seconds to wait for another writer
_BY = "who TEXT NOT NULL, at TEXT NOT NULL"
_TABLES = {
    "settings": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
    "asks": f"ask INTEGER PRIMARY KEY, num INTEGER NOT NULL, seed INTEGER NOT NULL, {_BY}",
    "orders": "id TEXT PRIMARY KEY, ask INTEGER NOT NULL REFERENCES asks, design TEXT NOT NULL, plate TEXT NOT NULL, "
    "well TEXT NOT NULL, predicted REAL, low REAL, high REAL, expected REAL, probability REAL NOT NULL, "
    "why TEXT NOT NULL",
    "tells": f"tell INTEGER PRIMARY KEY, file TEXT NOT NULL, sha256 TEXT NOT NULL, {_BY}",
    "results": "tell INTEGER NOT NULL REFERENCES tells, line INTEGER NOT NULL, id TEXT REFERENCES orders, design TEXT "
    "NOT NULL, observed TEXT, property TEXT NOT NULL, value REAL, variance REAL, replicate TEXT NOT NULL, "
    "plate TEXT, well TEXT, control INTEGER NOT NULL",
    "undos": f"tell INTEGER PRIMARY KEY REFERENCES tells, {_BY}",
}
_SCHEMA = [f"CREATE TABLE {name} ({columns})" for name, columns in _TABLES.items()] + [
    f"CREATE TRIGGER no_{verb.lower()}_of_{name} BEFORE {verb} ON {name} BEGIN SELECT RAISE(ABORT, 'facts stay'); END"
    for name in _TABLES
    for verb in ("UPDATE", "DELETE")
]
LIVE_RESULTS = "SELECT * FROM results WHERE tell NOT IN (SELECT tell FROM undos) ORDER BY tell, line"


class Store:
    """The database of one campaign.

    What a process has committed survives its end and a power loss; what it has not committed never happened.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / FILE

    def create(self, settings: str) -> None:
        """Make the file with its settings; a directory that holds a campaign is refused."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.directory} cannot be made ({error.strerror}); choose another directory") from None
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise ConfigError(f"{self.directory} holds a campaign already; open it, or choose another directory")
            for statement in _SCHEMA:
                connection.execute(statement)
            insert(connection, "settings", [("campaign", settings)])
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view of the file, checked."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The same for one writer at a time; all that it inserts is there when the context ends, or nothing."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def copy_to(self, directory: Path) -> "Store":
        """A campaign of its own with the same history."""
        copy = Store(directory)
        with self.reading() as source, contextlib.closing(sqlite3.connect(copy.path)) as target:
            source.backup(target)
        return copy

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise DataError(
                f"{self.directory} holds no campaign; give a campaign's directory, or make one with "
                "`stochflow campaign create`"
            )
        with self._connected() as connection:
            connection.execute(begin)
            self._check(connection)
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection without implicit transactions; what SQLite raises becomes one sentence."""
        try:
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT, isolation_level=None)
            ) as connection:
                # a rollback journal works on network disks too; EXTRA syncs the folder after a commit
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA trusted_schema = OFF")
                yield connection
        except sqlite3.Error as error:
            raise self._explained(error) from None

    def _explained(self, error: sqlite3.Error) -> DataError:
        if "locked" in str(error):
            return DataError(f"another process is writing to {self.directory}; wait until it has ended and try again")
        if any(sign in str(error) for sign in ("malformed", "not a database")):
            return DataError(
                f"{self.path} is damaged or was not copied whole ({error}); copy it again, or restore it from a copy"
            )
        return DataError(
            f"the campaign file {self.path} cannot be used ({error}); free the space, allow writing there, or restore "
            "the file from a copy"
        )

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse other databases, other formats and damaged files."""
        (owner,), (found,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        names = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner == 0 and names == (0,):
            raise DataError(f"{self.path} is empty; make the campaign again with `stochflow campaign create`")
        if owner != _APPLICATION_ID:
            raise DataError(f"{self.path} is a database of another program; give a campaign's directory")
        if found != FORMAT:
            raise DataError(f"{self.path} has format {found} and this stochflow reads {FORMAT}; update stochflow")
        schema = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        if [sql for (sql,) in schema] != _SCHEMA or connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise DataError(f"{self.path} is damaged; restore it from a copy")


def insert(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Append rows to a table."""
    if rows:
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)


def frame_of(connection: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> pd.DataFrame:
    """What a query finds."""
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description]
    return pd.DataFrame(cursor.fetchall(), columns=names, dtype=object)


def signature() -> tuple[str, str]:
    """Who does it, and when in UTC."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        who = "unknown"
    return who, datetime.now(timezone.utc).isoformat(timespec="seconds")
