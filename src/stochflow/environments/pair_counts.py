"""Letter counts of pairs of strings, what was intended and what was observed, from a table of any length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from stochflow.core.arrays import Bools, Ints
from stochflow.core.errors import DataError
from stochflow.core.text_table import check_header, check_text_file, plain, readable, shown, text_options
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

Tokens: TypeAlias = npt.NDArray[np.int16]
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
class PairCounts:
    """How often each letter was observed for each intended one, by position.

    Attributes:
        total: int64, [longest, K, K]; rows are intended letters, columns observed ones.
        held_out: the part of `total` that is kept for comparing models: every fifth pair.
        lengths: lengths of the pairs in `total`.
        num_pairs: pairs in `total`.
        num_unequal: pairs of two lengths, which are not in `total`.
    """

    total: Ints
    held_out: Ints
    lengths: set[int] = field(default_factory=set)
    num_pairs: int = 0
    num_unequal: int = 0


@dataclass(frozen=True)
class _Rows:
    """Rows of a table as text, with what an error message calls the table and its rows."""

    frame: pd.DataFrame
    columns: PairColumns
    name: str
    word: str
    first: int

    def place(self, row: int) -> str:
        return f"{self.word} {self.first + row}"


def count_pairs(source: pd.DataFrame | str | Path, columns: PairColumns, alphabet: Alphabet) -> PairCounts:
    """Count the letters of a table of pairs, in chunks; a DataError says what is wrong with the table.

    >>> pairs = pd.DataFrame({"intended": ["ACA", "ACA"], "observed": ["ACA", "CCA"]})
    >>> count_pairs(pairs, PairColumns(), Alphabet("AC")).total.sum(axis=0)
    array([[3, 1],
           [0, 2]])
    """
    size = len(alphabet)
    nothing = np.zeros((0, size, size), dtype=np.int64)
    counts = PairCounts(nothing, nothing)
    lookup = _lookup(alphabet.letters)
    num_rows = 0
    for rows in _frame_chunks(source, columns) if isinstance(source, pd.DataFrame) else _chunks(Path(source), columns):
        num_rows += len(rows.frame)
        _add(counts, rows, alphabet, lookup)
    name = "the frame" if isinstance(source, pd.DataFrame) else str(source)
    if not num_rows:
        raise DataError(f"{name} has no row below its header; give one pair of strings per row")
    if not counts.num_pairs and counts.num_unequal:
        raise DataError(
            f"all {counts.num_unequal:,} pairs of {name} differ in length, and a channel of substitutions is fitted "
            "to pairs of equal length; align the reads, and keep those without insertions and deletions"
        )
    if not counts.num_pairs:
        raise DataError(f"all counts of {name} are 0; give pairs that were seen")
    return counts


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
    equal = intended.lengths == observed.lengths
    counts.num_unequal += int(weights[~equal].sum())
    kept = equal & (weights > 0)
    weights, lengths = weights[kept], intended.lengths[kept]
    # pairs are numbered by multiplicity: one row with a count is split like as many rows
    ends = counts.num_pairs + np.cumsum(weights)
    held = ends // HELD_OUT_EVERY - (ends - weights) // HELD_OUT_EVERY
    counts.num_pairs += int(weights.sum())
    if max(counts.num_pairs, counts.num_unequal) > MAX_PAIRS:
        raise DataError(f"the counts of {rows.name} add up to more than {MAX_PAIRS:,} pairs; divide them by 1,000")
    counts.lengths.update(np.unique(lengths).tolist())
    cells = _cells(intended.of(kept), observed.of(kept), lengths, len(alphabet))
    longest = max(len(counts.total), int(lengths.max(initial=0)))
    counts.total = _added(counts.total, cells, lengths, weights, longest)
    counts.held_out = _added(counts.held_out, cells, lengths, held, longest)


def _cells(intended: Tokens, observed: Tokens, lengths: Ints, size: int) -> Ints:
    """Where the letters of pairs are counted: flat index into [positions, K, K]."""
    positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    cells: Ints = (positions * size + intended) * size + observed
    return cells


def _added(table: Ints, cells: Ints, lengths: Ints, weights: Ints, longest: int) -> Ints:
    """A table [positions, K, K] with pairs of some weight added, and with `longest` positions."""
    size, some = table.shape[-1], weights > 0
    cells, weights = cells if some.all() else cells[np.repeat(some, lengths)], np.repeat(weights[some], lengths[some])
    given = None if (weights == 1).all() else weights  # without weights numpy is several times faster
    sums = np.bincount(cells, given, minlength=longest * size * size)  # whole numbers below 2^53: exact
    found: Ints = sums.astype(np.int64).reshape(longest, size, size)
    found[: len(table)] += table
    return found


@dataclass(frozen=True)
class _Strings:
    """Strings as one row of tokens, [sum of lengths], with their lengths, [num]."""

    tokens: Tokens
    lengths: Ints

    def of(self, kept: Bools) -> Tokens:
        """Tokens of some of the strings."""
        return self.tokens if kept.all() else self.tokens[np.repeat(kept, self.lengths)]


def _read_strings(rows: _Rows, name: str, alphabet: Alphabet, lookup: Tokens) -> _Strings:
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
    if len(tokens) and tokens.min() < 0:
        unknown = tokens < 0
        row = int(np.searchsorted(np.cumsum(lengths), int(unknown.argmax()), side="right"))
        odd = [chr(code) for code in np.unique(codes[unknown])]
        raise DataError(
            f"{rows.name} uses letters outside the alphabet {alphabet.letters} in the column '{name}' ({shown(odd)}, "
            f"first in {rows.place(row)}); correct or remove the row, or give another --alphabet"
        )
    return _Strings(tokens, lengths)


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
