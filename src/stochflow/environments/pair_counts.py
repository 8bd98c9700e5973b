"""Letter counts of pairs of strings, what was intended and what was observed, from a table of any length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from stochflow.core.arrays import Ints
from stochflow.core.errors import DataError
from stochflow.core.text_table import check_header, check_text_file, plain, readable, shown, text_options
from stochflow.environments.alignment import EDITS, UNSEEN, Strings, Tokens, align
from stochflow.environments.reads import AssignedReads
from stochflow.environments.sequences.task import Alphabet

COUNT = "count"
MAX_BYTES = 4 * 2**30
MAX_LENGTH = 1000
MAX_PAIRS = 10**12  # with MAX_LENGTH letters each, sums in float64 are exact
HELD_OUT_EVERY = 5
_CHUNK_ROWS = 10_000
_MOST_DIGITS = 12
_WHOLE_NUMBER = rf"0*[0-9]{{1,{_MOST_DIGITS}}}(\.0*)?"  # pandas writes whole numbers as 3.0 beside missing ones
_NUM_CODES = 0x110000  # of Unicode

Codes: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.uint32]


@dataclass(frozen=True)
class PairColumns:
    """Names of the columns that are read.

    Attributes:
        count: how often a pair was seen; None for the column `count`, or where there is none, for once.
    """

    intended: str = "intended"
    observed: str = "observed"
    count: str | None = None

    @property
    def names(self) -> list[str]:
        return [self.intended, self.observed, *([] if self.count is None else [self.count])]

    def found_in(self, header: Sequence[object]) -> "PairColumns":
        """The same with the column `count` where none is named and there is one."""
        unnamed = self.count is None and COUNT in header and COUNT not in self.names
        return replace(self, count=COUNT) if unnamed else self


@dataclass
class Counts:
    """How often each letter was observed for each intended one, in groups of letters.

    Attributes:
        total: int64, [groups, K, K]; rows are intended letters, columns observed ones.
        held_out: the part of `total` that is kept for comparing models: every fifth pair.
    """

    total: Ints
    held_out: Ints

    def add(self, cells: Ints, weights: Ints, held: Ints, num_groups: int) -> None:
        """Add letters with their weights; `cells` are flat indices into [groups, K, K]."""
        self.total = _added(self.total, cells, weights, num_groups)
        self.held_out = _added(self.held_out, cells, held, num_groups)


@dataclass
class PairCounts:
    """What was counted in pairs of strings.

    Attributes:
        by_position: groups are positions of the intended string.
        by_context: groups are the intended letters before, and the last is of letters without one, [K + 1, K, K].
        edits: deletions, duplications and other insertions, int64, [3].
        num_letters: intended letters of all pairs, each of which could have been deleted or duplicated.
        lengths: lengths of the intended strings.
        num_pairs: pairs that were counted.
        num_unaligned: pairs with too many edits, which were not.
        num_ambiguous: reads that are as near to two orders, which were not.
    """

    by_position: Counts
    by_context: Counts
    edits: Ints
    num_letters: int = 0
    lengths: set[int] = field(default_factory=set)
    num_pairs: int = 0
    num_unaligned: int = 0
    num_ambiguous: int = 0


@dataclass(frozen=True)
class _Rows:
    """Rows of a table as text, with what an error message calls the table and its rows.

    Attributes:
        masked: letters, outside the alphabet, that say nothing.
    """

    frame: pd.DataFrame
    columns: PairColumns
    name: str
    word: str
    first: int
    masked: str = ""

    def place(self, row: int) -> str:
        return f"{self.word} {self.first + row}"


def count_pairs(
    source: pd.DataFrame | str | Path | AssignedReads, columns: PairColumns, alphabet: Alphabet
) -> PairCounts:
    """Count the letters of a table of pairs, or of reads, in chunks; a DataError says what is wrong with them.

    >>> pairs = pd.DataFrame({"intended": ["ACA", "ACA"], "observed": ["ACA", "CCA"]})
    >>> count_pairs(pairs, PairColumns(), Alphabet("AC")).by_position.total.sum(axis=0)
    array([[3, 1],
           [0, 2]])
    """
    size = len(alphabet)
    nothing = np.zeros((0, size, size), dtype=np.int64)
    counts = PairCounts(Counts(nothing, nothing), Counts(nothing, nothing), np.zeros(len(EDITS), dtype=np.int64))
    lookup = _lookup(alphabet.letters)
    num_rows = 0
    for rows in _rows(source, columns):
        num_rows += len(rows.frame)
        _add(counts, rows, alphabet, lookup)
    name = "the frame" if isinstance(source, pd.DataFrame) else str(source)
    if isinstance(source, AssignedReads):
        counts.num_unaligned, counts.num_ambiguous = counts.num_unaligned + source.num_far, source.num_ambiguous
    elif not num_rows:
        raise DataError(f"{name} has no row below its header; give one pair of strings per row")
    if not counts.num_pairs and counts.num_unaligned + counts.num_ambiguous:
        raise _nothing_aligned(counts, source, name)
    if not counts.num_pairs:
        raise DataError(f"all counts of {name} are 0; give pairs that were seen")
    return counts


def _nothing_aligned(counts: PairCounts, source: object, name: str) -> DataError:
    """The error where every pair has too many edits."""
    if isinstance(source, AssignedReads):
        return DataError(
            f"none of the {counts.num_unaligned + counts.num_ambiguous:,} reads of {name} is near to a single order; "
            "give the orders that were read, and trim the reads to their ends and direction"
        )
    return DataError(
        f"the strings of {_all(counts.num_unaligned)} of {name} differ in more than a third of their letters "
        "(of equal length, in more than two thirds); "
        "give what was intended and observed of the same molecule, trimmed to the same ends"
    )


def _all(num: int) -> str:
    return "the only pair" if num == 1 else f"all {num:,} pairs"


def _rows(source: pd.DataFrame | str | Path | AssignedReads, columns: PairColumns) -> "Iterator[_Rows]":
    """Pairs as text, some at a time."""
    if isinstance(source, AssignedReads):
        for frame in source.frames():
            yield _Rows(frame, PairColumns(), str(source), "read", 1, masked="N")
    elif isinstance(source, pd.DataFrame):
        yield from _frame_chunks(source, columns)
    else:
        yield from _chunks(Path(source), columns)


def _chunks(path: Path, columns: PairColumns) -> Iterator[_Rows]:
    """Rows of a file, some at a time."""
    check_text_file(path, MAX_BYTES, f"{MAX_BYTES // 2**20:,} MB")
    remedy = "name yours with --intended, --observed and --count"
    columns = columns.found_in(check_header(path, columns.names, remedy))
    check_header(path, columns.names, remedy)
    with readable(path):
        reader = pd.read_csv(path, chunksize=_CHUNK_ROWS, **text_options(path))
    first = 2  # the first line is the header
    with reader:
        while True:
            with readable(path):  # never around a yield: it changes the filters of warnings
                chunk = next(reader, None)
            if chunk is None:
                return
            yield _Rows(chunk[columns.names], columns, str(path), "line", first)
            first += len(chunk)


def _frame_chunks(frame: pd.DataFrame, columns: PairColumns) -> Iterator[_Rows]:
    """Rows of a data frame, some at a time and as text; what is missing becomes empty text."""
    missing = [name for name in columns.names if name not in frame.columns]
    if missing:
        raise DataError(f"the frame has no column '{missing[0]}', only {shown(list(frame.columns))}; name yours")
    columns = columns.found_in(list(frame.columns))
    if frame[columns.names].columns.has_duplicates:
        raise DataError(f"the columns {', '.join(columns.names)} of the frame must differ; name each of them once")
    for first in range(0, len(frame), _CHUNK_ROWS):
        chunk = frame[columns.names].iloc[first : first + _CHUNK_ROWS]
        yield _Rows(chunk.astype(str).mask(chunk.isna(), ""), columns, "the frame", "row", first)


def _add(counts: PairCounts, rows: _Rows, alphabet: Alphabet, lookup: Tokens) -> None:
    """Add the letters of some rows to the counts."""
    columns = rows.columns
    intended = _read_strings(rows, columns.intended, alphabet, lookup)
    observed = _read_strings(rows, columns.observed, alphabet, lookup)
    weights = np.ones(len(rows.frame), dtype=np.int64) if columns.count is None else _read_counts(rows, columns.count)
    aligned = align(intended, observed)
    counts.num_unaligned += int(weights[~aligned.kept].sum())
    kept = aligned.kept & (weights > 0)
    weights, lengths = weights[kept], intended.lengths[kept]
    # pairs are numbered by multiplicity: one row with a count is split like as many rows
    ends = counts.num_pairs + np.cumsum(weights)
    held = ends // HELD_OUT_EVERY - (ends - weights) // HELD_OUT_EVERY
    counts.num_pairs += int(weights.sum())
    if max(counts.num_pairs, counts.num_unaligned) > MAX_PAIRS:
        raise DataError(f"the counts of {rows.name} add up to more than {MAX_PAIRS:,} pairs; divide them by 1,000")
    counts.lengths.update(np.unique(lengths).tolist())
    counts.num_letters += int(weights @ lengths)
    counts.edits = counts.edits + weights @ aligned.edits[kept]
    letters = _Letters(intended.of(kept), aligned.observed.of(kept), lengths, len(alphabet))
    longest = max(len(counts.by_position.total), int(lengths.max(initial=0)))
    spread = np.repeat(weights, lengths)[letters.seen], np.repeat(held, lengths)[letters.seen]
    counts.by_position.add(letters.cells(letters.positions), *spread, longest)
    counts.by_context.add(letters.cells(letters.contexts), *spread, len(alphabet) + 1)


class _Letters:
    """Letters of pairs with what stood around them: what is counted, and where."""

    def __init__(self, intended: Tokens, observed: Tokens, lengths: Ints, size: int) -> None:
        self.size, self.seen = size, observed != UNSEEN
        self.pairs: Ints = intended.astype(np.int64) * size + observed
        self.positions: Ints = np.arange(len(intended)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        before = np.concatenate([intended[:1], intended[:-1]])
        self.contexts: Ints = np.where(self.positions == 0, size, before).astype(np.int64)

    def cells(self, groups: Ints) -> Ints:
        """Flat index into [groups, K, K] of every letter that was seen."""
        found: Ints = (groups * self.size**2 + self.pairs)[self.seen]
        return found


def _added(table: Ints, cells: Ints, weights: Ints, num_groups: int) -> Ints:
    """A table [groups, K, K] with letters of some weight added, and with `num_groups` groups."""
    size, some = table.shape[-1], weights > 0
    if not some.all():
        cells, weights = cells[some], weights[some]
    given = None if (weights == 1).all() else weights  # without weights numpy is several times faster
    sums = np.bincount(cells, given, minlength=num_groups * size * size)  # whole numbers below 2^53: exact
    found: Ints = sums.astype(np.int64).reshape(num_groups, size, size)
    found[: len(table)] += table
    return found


def _read_strings(rows: _Rows, name: str, alphabet: Alphabet, lookup: Tokens) -> Strings:
    """A column of strings as tokens; a DataError for an empty string, one that is too long, and unknown letters."""
    strings = rows.frame[name].str.strip()
    lengths: Ints = np.asarray(strings.str.len(), dtype=np.int64)
    if not lengths.all():
        where = rows.place(int((lengths == 0).argmax()))
        raise DataError(f"{rows.name} has no value in the column '{name}' in {where}; fill it in or remove the row")
    if lengths.max(initial=0) > MAX_LENGTH:
        raise DataError(
            f"{rows.name} has a string of {lengths.max():,} letters in {rows.place(int(lengths.argmax()))}; "
            f"{MAX_LENGTH:,} is the most there may be"
        )
    codes = _codes("".join(strings.to_numpy(dtype=object)))
    tokens = lookup[codes]
    unknown = (tokens < 0) & ~np.isin(codes, [ord(letter) for letter in rows.masked])
    if unknown.any():
        row = int(np.searchsorted(np.cumsum(lengths), int(unknown.argmax()), side="right"))
        odd = [chr(code) for code in np.unique(codes[unknown])]
        raise DataError(
            f"{rows.name} uses letters outside the alphabet {alphabet.letters} in the column '{name}' ({shown(odd)}, "
            f"first in {rows.place(row)}); correct or remove the row, or give another --alphabet"
        )
    return Strings(tokens, lengths)


def _codes(text: str) -> Codes:
    """Unicode codes of a text; a byte each where that is enough."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _read_counts(rows: _Rows, name: str) -> Ints:
    """A column of counts, int64, [num]."""
    texts = rows.frame[name].str.strip()
    good = texts.str.fullmatch(_WHOLE_NUMBER).to_numpy(dtype=bool)
    if not good.all():
        row = int((~good).argmax())
        raise DataError(
            f"{rows.name} has the count '{plain(texts.iloc[row])}' in {rows.place(row)}; counts in the column "
            f"'{name}' are whole numbers from 0 to {10**_MOST_DIGITS - 1:,}"
        )
    return np.asarray(texts.str.partition(".")[0].astype(np.int64))


def _lookup(letters: str) -> Tokens:
    """Tokens by Unicode code, −1 for what is no letter; either case of a letter, unless both are letters."""
    tokens = np.full(_NUM_CODES, -1, dtype=np.int16)
    for token, letter in enumerate(letters):
        for form in {letter.lower(), letter.upper()} - set(letters):
            if len(form) == 1:
                tokens[ord(form)] = token
        tokens[ord(letter)] = token
    return tokens
