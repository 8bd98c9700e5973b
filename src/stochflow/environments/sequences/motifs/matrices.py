"""Motif matrices: the shipped ones of JASPAR, and a user's own from files of MEME, JASPAR or CSV."""

import csv
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from stochflow.core.arrays import Floats
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import read_limited
from stochflow.environments.sequences.packed import read_verified

LETTERS = "ACGT"
_MAX_BYTES = 2**20
_MAX_COLUMNS = 64
_SUM_TOLERANCE = 0.02  # rows are rounded when they are written
_MEME_WIDTH = re.compile(r"\bw\s*=\s*(\d+)")


@dataclass(frozen=True)
class Motif:
    """A motif of a transcription factor.

    Attributes:
        name: of the factor.
        probabilities: of A, C, G and T in each column, [columns, 4].
    """

    name: str
    probabilities: Floats

    def __len__(self) -> int:
        return len(self.probabilities)


@cache
def shipped_motifs() -> dict[str, Motif]:
    """The 24 matrices of vertebrate factors from JASPAR 2024 that the package holds, by name.

    >>> motifs = shipped_motifs()
    >>> len(motifs), len(motifs["CTCF"])
    (24, 15)
    """
    text = read_verified("motifs.jaspar", "build_motifs.py").decode("ascii")
    return {motif.name: motif for motif in _jaspar(text.splitlines())}


def read_motifs(path: Path) -> list[Motif]:
    """The matrices of a file; its content says whether that is MEME, JASPAR or CSV. A DataError says what is wrong.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.txt"
    ...     _ = path.write_text(">MY1 mine\\nA [ 9 0 1 ]\\nC [ 0 9 1 ]\\nG [ 1 1 8 ]\\nT [ 0 0 0 ]\\n")
    ...     (motif,) = read_motifs(path)
    >>> motif.name, motif.probabilities[0].tolist()
    ('mine', [0.9, 0.0, 0.1, 0.0])
    """
    try:
        text = read_limited(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text; give motif matrices in the format of MEME, JASPAR or CSV") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    if not lines:
        raise DataError(f"{path} is empty; give motif matrices in the format of MEME, JASPAR or CSV")
    try:
        motifs = list(_format_of(lines[0])(lines))
        if not motifs:
            raise ValueError("it has no matrix")
        _check_names(motifs)
    except (ValueError, csv.Error) as error:
        raise DataError(
            f"{path} has no motif matrices that can be used ({error}); give rows of probabilities or counts of A, C, "
            "G and T in the format of MEME, JASPAR or CSV"
        ) from None
    return motifs


def motifs_of(names: Sequence[str], matrices: Sequence[Sequence[Sequence[float]]]) -> list[Motif]:
    """The motifs of settings; a ConfigError says what is wrong with them."""
    try:
        motifs = [motif_of(name, columns, counts=False) for name, columns in zip(names, matrices, strict=True)]
        _check_names(motifs)
        return motifs
    except ValueError as error:
        raise ConfigError(f"motifs.matrices cannot be used ({error}); give rows of probabilities") from None


def motif_of(name: str, columns: Sequence[Sequence[float]], counts: bool) -> Motif:
    """A validated motif; a ValueError says what is wrong with it.

    Args:
        columns: entries of A, C, G and T, one row per column of the motif.
        counts: scale each column to sum to one, which it must do already if this is False.
    """
    if not 1 <= len(columns) <= _MAX_COLUMNS:
        raise ValueError(f"'{name}' has {len(columns)} columns, and 1 to {_MAX_COLUMNS} are possible")
    if any(len(column) != len(LETTERS) for column in columns):
        raise ValueError(f"'{name}' has a column without an entry for each of A, C, G and T")
    matrix = np.array(columns, dtype=np.float64)
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise ValueError(f"'{name}' has entries that are negative or not finite, as no probability is")
    with np.errstate(over="ignore"):
        sums = matrix.sum(axis=1)
    wrong = ~((sums > 0) & np.isfinite(sums)) if counts else np.abs(sums - 1.0) > _SUM_TOLERANCE
    if wrong.any():
        column = int(wrong.argmax())
        raise ValueError(f"column {column + 1} of '{name}' sums to {sums[column]:g}, not to 1")
    return Motif(name, matrix / sums[:, None])


def _format_of(first: str) -> Callable[[Sequence[str]], Iterator[Motif]]:
    """What reads a file with this first line."""
    if first.upper().startswith("MEME"):
        return _meme
    return _jaspar if first.startswith(">") else _csv


def _jaspar(lines: Sequence[str]) -> Iterator[Motif]:
    """`>ID name`, then one row of counts per letter, `A [ 1 2 3 ]`, or four rows of numbers in the order ACGT."""
    starts = [number for number, line in enumerate(lines) if line.startswith(">")]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        name = (lines[start][1:].split() or ["motif"])[-1]
        rows: dict[str, list[float]] = {}
        for line in lines[start + 1 : end]:
            labelled = line[0].isalpha()
            letter = line[0].upper() if labelled else LETTERS[len(rows) % len(LETTERS)]
            if letter in rows or letter not in LETTERS:
                raise ValueError(f"'{name}' has a row '{letter}' that is not one each of A, C, G and T")
            rows[letter] = _numbers((line[1:] if labelled else line).strip().strip("[]"), name)
        if len(rows) != len(LETTERS) or len({len(row) for row in rows.values()}) != 1:
            raise ValueError(f"'{name}' needs four rows of one length, for A, C, G and T")
        yield motif_of(name, list(zip(*(rows[letter] for letter in LETTERS), strict=True)), counts=True)


def _meme(lines: Sequence[str]) -> Iterator[Motif]:
    """Matrices of letter probabilities in the minimal MEME format, each after the line `MOTIF ID [name]`."""
    name, following = "motif", iter(lines)
    for line in following:
        if line.startswith("ALPHABET") and line.partition("=")[2].strip().strip("'\"") not in ("", LETTERS):
            raise ValueError(f"its alphabet is {line.partition('=')[2].strip()}, not {LETTERS}")
        if line.startswith("MOTIF"):
            name = (line.split()[1:] or [name])[-1]
        if line.startswith("letter-probability matrix"):
            width = _MEME_WIDTH.search(line)
            if width is None:
                raise ValueError(f"'{name}' does not say how many columns it has, as in w= 8")
            rows = itertools.islice(following, int(width[1]))
            yield motif_of(name, [_numbers(row, name) for row in rows], counts=False)


def _csv(lines: Sequence[str]) -> Iterator[Motif]:
    """A header with A, C, G, T and, for several matrices, `motif`; then one row per column of a motif."""
    separator = next((mark for mark in "\t;" if mark in lines[0]), ",")
    header, *rows = csv.reader(lines, delimiter=separator)
    places = {heading.strip().upper(): place for place, heading in enumerate(header)}
    if not set(LETTERS) <= set(places):
        raise ValueError("its first line names no columns A, C, G and T")
    others = sorted(heading for heading in places if len(heading) == 1 and heading not in LETTERS)
    if others:
        raise ValueError(f"it has a column '{others[0]}', which is no letter of {LETTERS}")
    if any(len(row) != len(header) for row in rows):
        raise ValueError("a row has more or fewer entries than the first line")
    grouped: dict[str, list[list[float]]] = {}
    for row in rows:
        name = row[places["MOTIF"]].strip() if "MOTIF" in places else "motif"
        entries = ",".join(row[places[letter]] for letter in LETTERS)
        grouped.setdefault(name, []).append(_numbers(entries, name))
    for name, columns in grouped.items():
        certain = all(abs(sum(column) - 1.0) <= _SUM_TOLERANCE for column in columns)
        whole = all(entry == int(entry) for column in columns for entry in column if math.isfinite(entry))
        yield motif_of(name, columns, counts=whole and not certain)


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(entry) for entry in text.replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"'{name}' has entries that are no numbers: {text[:40].strip()}") from None


def _check_names(motifs: Sequence[Motif]) -> None:
    names = [motif.name for motif in motifs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"it has two motifs '{twice}'")
