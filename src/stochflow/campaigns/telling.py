"""Recording of results: which order each line belongs to, what is known already, and what contradicts it."""

import hashlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stochflow.campaigns.goals import SCORE
from stochflow.campaigns.results import Result, ResultTable
from stochflow.campaigns.store import LIVE_RESULTS, insert, signature
from stochflow.core.errors import DataError
from stochflow.core.text_table import plain
from stochflow.core.words import counted
from stochflow.environments.sequences.task import Alphabet

_MOST_NAMED = 12
Key = tuple[str, str, str, str]  # plate and well or nothing and the design, replicate, property


@dataclass(frozen=True)
class Told:
    """What became of a table of results.

    Attributes:
        tell: its number; None where nothing was new.
        num_new, num_known: values that were recorded, and those that were there already.
        num_failed, num_controls: wells among the new ones without a score, and controls.
        num_outside: new values of designs that were never ordered.
        ignored: columns that were not read.
    """

    tell: int | None = None
    num_new: int = 0
    num_known: int = 0
    num_failed: int = 0
    num_controls: int = 0
    num_outside: int = 0
    ignored: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.tell is None:
            return "Nothing new: all of this was told before."
        parts = {
            "known before": self.num_known,
            "failed": self.num_failed,
            "of controls": self.num_controls,
            "of designs that were not ordered here": self.num_outside,
        }
        more = "".join(f", {number} {what}" for what, number in parts.items() if number)
        return f"Tell {self.tell}: {counted(self.num_new, 'new value')}{more}."


class Order(NamedTuple):
    """Where an ordered design is."""

    id: str
    design: str
    plate: str
    well: str


class Fact(NamedTuple):
    """A row of the table `results`, without the number of its tell."""

    line: int
    id: str | None
    design: str
    observed: str | None
    measure: str
    value: float | None
    variance: float | None
    replicate: str
    plate: str | None
    well: str | None
    control: int

    @property
    def key(self) -> Key:
        """What is measured once: a replicate of a property in a well, or of a design where no well is known."""
        place = (self.plate, self.well) if self.plate and self.well else ("", self.design)
        return (*place, self.replicate, self.measure)

    @property
    def name(self) -> str:
        """The well, or the design where none is known."""
        return f"{self.plate} {self.well}" if self.plate and self.well else plain(self.design)


def record(connection: sqlite3.Connection, table: ResultTable, alphabet: Alphabet, length: int) -> Told:
    """Add a table to a campaign, within a transaction; a table that was told before changes nothing."""
    sha256 = hashlib.sha256(table.content).hexdigest()
    query = "SELECT 1 FROM tells WHERE sha256 = ? AND tell NOT IN (SELECT tell FROM undos)"
    if connection.execute(query, (sha256,)).fetchone():
        return Told(num_known=len(table.results))
    told = list(Reader(connection, table, alphabet, length).facts())
    new = _new_facts(connection, table, told)
    if not new:
        return Told(num_known=len(told), ignored=table.ignored)
    (tell,) = connection.execute("SELECT count(*) + 1 FROM tells").fetchone()
    insert(connection, "tells", [(tell, table.name, sha256, *signature())])
    insert(connection, "results", [(tell, *fact) for fact in new])
    return Told(
        tell,
        len(new),
        len(told) - len(new),
        sum(fact.value is None for fact in new),
        sum(fact.control for fact in new),
        sum(fact.id is None and not fact.control for fact in new),
        table.ignored,
    )


def undo(connection: sqlite3.Connection) -> tuple[int, str]:
    """Take the last tell back, within a transaction; its number and the name of its file."""
    query = "SELECT tell, file FROM tells WHERE tell NOT IN (SELECT tell FROM undos) ORDER BY tell DESC LIMIT 1"
    found = connection.execute(query).fetchone()
    if found is None:
        raise DataError("nothing was told, so there is nothing to take back; tell results first")
    insert(connection, "undos", [(found[0], *signature())])
    return int(found[0]), str(found[1])


class Reader:
    """Results of a table as facts about orders and designs of a campaign."""

    def __init__(self, connection: sqlite3.Connection, table: ResultTable, alphabet: Alphabet, length: int) -> None:
        rows = connection.execute("SELECT id, design, plate, well FROM orders ORDER BY ask, rowid")
        self._orders = [Order(*row) for row in rows]
        self._by_id = {order.id: order for order in self._orders}
        self._by_design = {order.design: order for order in self._orders}
        self._table, self._alphabet, self._length = table, alphabet, length
        self._numbers: Counter[tuple[str, str, str]] = Counter()

    def facts(self) -> Iterator[Fact]:
        """One fact for each value, and one without a value for a failed well."""
        for result in self._table.results:
            order = self._order(result)
            design = self._sequence(result, "sequence", order)
            plate, well = self._place(result, order)
            place = (plate, well, "") if plate and well else ("", "", design)
            self._numbers[place] += not result.replicate
            replicate = result.replicate or str(self._numbers[place])
            observed = self._observed(result)
            values: dict[str, float | None] = {**result.values} or {SCORE: None}
            for name, value in values.items():
                variance = result.variance if name == SCORE else None
                where = (replicate, plate or None, well or None, int(result.control))
                yield Fact(result.line, order.id if order else None, design, observed, name, value, variance, *where)

    def _order(self, result: Result) -> Order | None:
        if result.id:
            if result.id not in self._by_id:
                raise self._error(result, f"names the order '{plain(result.id)}', which was never asked for")
            return self._by_id[result.id]
        return None if result.control else self._by_design.get(self._spelled(result.sequence))

    def _sequence(self, result: Result, name: str, order: Order | None) -> str:
        """The design of a line; of a control whatever is written."""
        found = self._spelled(result.sequence)
        if order is not None:
            if found and found != order.design:
                raise self._error(result, f"says {plain(found)} where the order {order.id} is {plain(order.design)}")
            return order.design
        if result.control:
            return result.sequence
        if len(found) != self._length:
            raise self._error(result, f"has a sequence of {len(found)} letters, and designs have {self._length}")
        self._check_letters(result, found)
        return found

    def _place(self, result: Result, order: Order | None) -> tuple[str, str]:
        """Plate and well as told, otherwise as ordered; an id belongs to the well that it was ordered in."""
        if order is None:
            return result.plate, result.well
        same = result.plate in ("", order.plate) and _same_well(result.well, order.well)
        if same or not result.id:
            return (order.plate, order.well) if same else (result.plate, result.well)
        told = " ".join(part for part in (result.plate, result.well) if part)
        raise self._error(
            result,
            f"has {plain(order.id)} in {plain(told)}, and it was ordered in {order.plate} {order.well} (a copy that "
            "was made elsewhere is told by its sequence)",
        )

    def _observed(self, result: Result) -> str | None:
        """The sequence that was found, of any length; None where unknown."""
        found = result.observed if result.control else self._spelled(result.observed)
        if not result.control:
            self._check_letters(result, found)
        return found or None

    def _check_letters(self, result: Result, sequence: str) -> None:
        unknown = sorted(set(sequence) - set(self._alphabet.letters))
        if unknown:
            letters = ", ".join(map(plain, unknown))
            raise self._error(result, f"has letters outside the alphabet {self._alphabet.letters} ({letters})")

    def _spelled(self, sequence: str) -> str:
        """In capital letters, unless the alphabet has small ones."""
        letters = self._alphabet.letters
        return sequence.upper() if letters == letters.upper() else sequence

    def _error(self, result: Result, what: str) -> DataError:
        return DataError(f"{self._table.name} {what}, in line {result.line}; correct or remove it (nothing was taken)")


def _same_well(told: str, ordered: str) -> bool:
    """True where nothing was told, or the same well in another spelling, as in a01 for A1."""
    return not told or re.sub(r"(?<=[A-Z])0+(?=[0-9])", "", told.upper()) == ordered


def _new_facts(connection: sqlite3.Connection, table: ResultTable, told: list[Fact]) -> list[Fact]:
    """Facts that say more than is known; a DataError names the wells whose values were told differently before."""
    known = {fact.key: fact for fact in (Fact(*row[1:]) for row in connection.execute(LIVE_RESULTS))}
    new, contradictions = [], []
    for fact, result in zip(told, _results_of(told, table), strict=True):
        before = known.get(fact.key)
        joined = fact if before is None else _joined(before, fact, result.failed)
        if joined is None:
            contradictions.append(f"{fact.name} ({_shown(fact.value)}, before {_shown(before and before.value)})")
        elif before is None or joined[1:] != before[1:]:
            known[fact.key] = joined
            new.append(joined)
    if contradictions:
        more = ", …" if len(contradictions) > _MOST_NAMED else ""
        raise DataError(
            f"{table.name} tells {counted(len(contradictions), 'value')} again differently: "
            f"{', '.join(contradictions[:_MOST_NAMED])}{more}; correct it, name the replicate in a column, or take the "
            "earlier tell back with undo (nothing was taken)"
        )
    return new


def _results_of(told: list[Fact], table: ResultTable) -> Iterator[Result]:
    """The line of the table behind each fact."""
    lines = {result.line: result for result in table.results}
    return (lines[fact.line] for fact in told)


def _joined(before: Fact, fact: Fact, failed: bool) -> Fact | None:
    """What two facts about the same say together; None if they contradict each other.

    A value may follow an empty cell, and the observed sequence may follow a value. An empty cell takes nothing back.
    """
    kept = before.value if fact.value is None and not failed else fact.value
    other_value = before.value is not None and kept != before.value
    other_sequence = before.observed is not None and fact.observed not in (None, before.observed)
    if other_value or other_sequence or fact.design != before.design or fact.control != before.control:
        return None
    variance = before.variance if fact.variance is None else fact.variance
    return fact._replace(
        value=kept, variance=variance, observed=fact.observed or before.observed, id=fact.id or before.id
    )


def _shown(value: float | None) -> str:
    return "no value" if value is None else f"{value:g}"
