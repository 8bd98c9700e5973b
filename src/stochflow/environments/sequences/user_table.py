"""User tables: sequences and scores from a CSV or TSV file, validated when they are read."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stochflow.core.arrays import Array
from stochflow.core.errors import DataError
from stochflow.core.text_table import check_header, check_text_file, number_fault, plain, readable, shown, text_options
from stochflow.environments.sequences.alphabets import ALPHABETS, named_alphabet
from stochflow.environments.sequences.lookup_task import MeasuredTask, Measurements
from stochflow.environments.sequences.task import Alphabet

MAX_BYTES = 256 * 2**20
MAX_ROWS = 2_000_000
MAX_LENGTH = 1000
SEQUENCE, SCORE, VARIANCE = "sequence", "score", "variance"


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns that are read."""

    sequence: str = SEQUENCE
    scores: tuple[str, ...] = (SCORE,)
    variance: str | None = None

    @property
    def names(self) -> list[str]:
        return [self.sequence, *self.scores, *([] if self.variance is None else [self.variance])]


@dataclass(frozen=True)
class Table:
    """A validated table, in the order of its rows.

    Attributes:
        sequences: distinct; of one length unless the table was read with `variable`.
        scores: replicates, finite, [num, num_replicates].
        variances: not negative, [num]; None without such a column.
        letters: the alphabet.
    """

    sequences: tuple[str, ...]
    scores: Array
    variances: Array | None
    letters: str

    @cached_property
    def columns(self) -> TableColumns:
        """Names of the columns in `text`."""
        num = self.scores.shape[1]
        scores = (SCORE,) if num == 1 else tuple(f"{SCORE}_{number}" for number in range(1, num + 1))
        return TableColumns(SEQUENCE, scores, None if self.variances is None else VARIANCE)

    @cached_property
    def text(self) -> str:
        """The table as CSV, reduced to the columns that were read; floats are written exactly."""
        frame = pd.DataFrame({SEQUENCE: self.sequences})
        for name, values in zip(self.columns.scores, self.scores.T, strict=True):
            frame[name] = values
        if self.variances is not None:
            frame[VARIANCE] = self.variances
        return frame.to_csv(index=False)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """Shortest and longest length of a sequence."""
        lengths = [len(sequence) for sequence in self.sequences]
        return min(lengths), max(lengths)

    def measurements(self, alphabet: Alphabet) -> Measurements:
        """Rows as tokens of an alphabet, with their scores as they are."""
        variances = None if self.variances is None else torch.from_numpy(self.variances)
        return Measurements(alphabet.encode(self.sequences), torch.from_numpy(self.scores), variances)

    def task(
        self, name: str, scale: str, source: str, alphabet: Alphabet | None = None, gap_score: float = 0.0
    ) -> MeasuredTask:
        """The task of this table where it is the whole world.

        Args:
            scale: "none" for the scores as they are, "unit" for scores scaled to [0, 1].
            alphabet: encoding of sequences as tokens; by default one token per letter, which needs equal lengths.
            gap_score: score of every sequence that is not in the table.
        """
        alphabet = Alphabet(self.letters) if alphabet is None else alphabet
        measured = self.measurements(alphabet)
        self._check_scale(name, scale)
        if scale == "unit":
            measured = measured.scaled_to_unit()
        return MeasuredTask(name, alphabet, measured, f"{len(self.sequences):,} scores of your own", source, gap_score)

    def _check_scale(self, name: str, scale: str) -> None:
        means = self.scores.mean(axis=1)
        if scale == "unit" and not means.min() < means.max():
            raise DataError(
                f"all scores of {name} are alike, so they cannot be scaled to [0, 1]; leave out table.scale"
            )
        if scale == "none" and self.scores.min() < 0:
            row = int(self.scores.min(axis=1).argmin())
            raise DataError(
                f"{name} has negative scores ({self.scores[row].min():g} for {self.sequences[row]}), and rewards "
                "cannot be negative; shift or exponentiate them, or scale them to [0, 1] with --set table.scale=unit"
            )
        if scale == "none" and not means.max() > 0:
            raise DataError(f"no score of {name} is above 0, so there is nothing to prefer; check the score column")


def read_user_table(path: Path, columns: TableColumns, alphabet: str, variable: bool = False) -> Table:
    """Read and validate a table; a DataError says what is wrong with it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "scores.csv"
    ...     _ = path.write_text("seq,score\\nACGT,0.81\\nACGA,0.12\\n")
    ...     table = read_user_table(path, TableColumns(sequence="seq"), alphabet="auto")
    >>> table.letters, table.sequences
    ('ACGT', ('ACGT', 'ACGA'))

    Args:
        alphabet: `dna`, `rna`, `protein`, the letters themselves, or `auto` for the first of the three that fits.
        variable: allow sequences of different lengths.
    """
    frame = _read(path, columns)
    sequences = [text.strip() for text in frame[columns.sequence]]
    letters = _letters(alphabet, sequences, path)
    _check_lengths(sequences, path, variable)
    _check_sequences(sequences, letters, path)
    scores = np.stack([_numbers(frame, name, path) for name in columns.scores], axis=1)
    variances = None
    if columns.variance is not None:
        variances = _numbers(frame, columns.variance, path)
        if variances.min() < 0:
            raise DataError(f"{path} has a negative variance in the column '{columns.variance}'; correct it")
    return Table(tuple(sequences), scores, variances, letters)


def _read(path: Path, columns: TableColumns) -> pd.DataFrame:
    """The columns that are read, as text; a DataError for fewer than two rows or too many."""
    check_text_file(path, MAX_BYTES, f"{MAX_BYTES // 2**20} MB and {MAX_ROWS:,} rows")
    check_header(path, columns.names, "name yours with --sequence-column and --score-column")
    with readable(path):
        frame = pd.read_csv(path, nrows=MAX_ROWS + 1, **text_options(path))[columns.names]
    if len(frame) > MAX_ROWS:
        raise DataError(f"{path} has more than {MAX_ROWS:,} rows; keep those that matter most")
    if len(frame) < 2:
        found = "no row" if frame.empty else "one row only"
        raise DataError(f"{path} has {found} below its header; a sampler needs two sequences to choose from at least")
    return frame


def _letters(alphabet: str, sequences: Sequence[str], path: Path) -> str:
    """Letters of the given alphabet; for `auto` of the first named alphabet that has all letters of the table."""
    if alphabet != "auto":
        return named_alphabet(alphabet).letters
    used = set("".join(sequences))
    for letters in ALPHABETS.values():
        if used <= set(letters):
            return letters
    odd = sorted(used - set(ALPHABETS["protein"]))
    raise DataError(
        f"{path} uses letters of no known alphabet ({shown(odd)}); correct them or give all letters with --alphabet"
    )


def _check_lengths(sequences: Sequence[str], path: Path, variable: bool) -> None:
    lengths = sorted({len(sequence) for sequence in sequences})
    if lengths[0] == 0:
        row = 2 + [len(sequence) for sequence in sequences].index(0)
        raise DataError(f"{path} has no sequence in line {row}; fill it in or remove the line")
    if len(lengths) > 1 and not variable:
        raise DataError(
            f"{path} has sequences of {lengths[0]} to {lengths[-1]} letters, and designs have one length unless you "
            "ask for more; give --variable-length, or keep the sequences of one length"
        )
    if lengths[-1] > MAX_LENGTH:
        raise DataError(f"{path} has sequences of {lengths[-1]:,} letters; {MAX_LENGTH:,} is the most there may be")


def _check_sequences(sequences: Sequence[str], letters: str, path: Path) -> None:
    unknown = sorted(set("".join(sequences)) - set(letters))
    if unknown:
        row = next(number for number, sequence in enumerate(sequences, start=2) if set(sequence) - set(letters))
        raise DataError(
            f"{path} uses letters outside the alphabet {letters} ({shown(unknown)}, first in line {row}); "
            "correct them or give another --alphabet"
        )
    repeated = pd.Series(sequences).duplicated()
    if repeated.any():
        first = sequences[int(repeated.argmax())]
        raise DataError(
            f"{path} lists {int(repeated.sum()):,} sequences again, the first of them {plain(first)}; "
            "keep one line each and put repeated measurements into columns of their own (--score-column a,b)"
        )


def _numbers(frame: pd.DataFrame, name: str, path: Path) -> Array:
    """A column as finite float64, [num]."""
    numbers = np.array([_number(text) for text in frame[name]])
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{path} has {int(bad.sum()):,} entries in the column '{name}' that are no finite number, the first "
            f"'{plain(frame[name].iloc[row])}' in line {row + 2}, {number_fault(frame[name].iloc[row].strip())} or "
            "remove the line"
        )
    return numbers


def _number(text: str) -> float:
    """The nearest float64, or NaN; pandas' own parser rounds, so that written floats would not be read back exactly."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
