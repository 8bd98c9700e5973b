"""Reader of sequence files: FASTA, CSV, TSV, or one sequence per line."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.core.files import check_columns, read_limited
from stochflow.core.text_table import check_separator, plain, separator, shown
from stochflow.environments.sequences.task import Task

MAX_BYTES = 64 * 2**20
_TABLES = (".csv", ".tsv", ".tab")


def read_sequences(path: Path, preferred: Sequence[str] = ("sequence",)) -> list[str]:
    """Sequences of a file in upper case; see `read_written`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "known.fasta"
    ...     _ = path.write_text(">first\\nacgt\\n>second\\nGGTA\\n")
    ...     read_sequences(path)
    ['ACGT', 'GGTA']
    """
    return [sequence.upper() for sequence in read_written(path, preferred=preferred)]


def read_written(path: Path, column: str | None = None, preferred: Sequence[str] = ("sequence",)) -> list[str]:
    """Sequences of a file as they are written; of a CSV or TSV a column, by default a preferred one, else the first."""
    try:
        text = read_limited(path, MAX_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); check the path") from None
    if path.suffix.lower() in _TABLES:
        found = _column_of(path, text, column, preferred)
    elif column is not None:
        raise DataError(f"{path} is no .csv or .tsv table, so it has no column '{plain(column)}'; leave that out")
    elif text.lstrip().startswith(">"):
        entries = re.split(r"^>.*$", text, flags=re.MULTILINE)[1:]
        found = ["".join(entry.split()) for entry in entries]
    else:
        found = text.split()
    sequences = ["".join(sequence.split()) for sequence in found]
    if not all(sequences) or not sequences:
        raise DataError(f"{path} holds no sequences or an empty one; give one sequence per line, FASTA or CSV")
    return sequences


def encode_for(task: Task, sequences: Sequence[str], source: str) -> Tensor:
    """Sequences as tokens of the task, [num_sequences, L]; an error names their `source`."""
    try:
        tokens = task.alphabet.encode(sequences)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    if task.padding is None and tokens.shape[1] != task.length:
        raise DataError(
            f"{source} holds sequences of length {tokens.shape[1]}, but {task.name} has length {task.length}; give "
            "sequences of that length"
        )
    return tokens


def _column_of(path: Path, text: str, column: str | None, preferred: Sequence[str]) -> list[str]:
    """Entries of a column of a table that are not empty."""
    try:
        check_columns(text.encode(), separator(path))
        frame = pd.read_csv(io.StringIO(text), sep=separator(path), dtype=str)
        check_separator(path, list(frame.columns), separator(path))
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty; give a table with a header and rows") from None
    except ValueError as error:
        kind = "CSV" if separator(path) == "," else "TSV"
        raise DataError(f"{path} is not a {kind} table ({' '.join(str(error).split())}); correct it") from None
    if column is None:
        column = next((name for name in preferred if name in frame.columns), frame.columns[0])
    if column not in frame.columns:
        raise DataError(f"{path} has no column '{plain(column)}', only {shown(list(frame.columns))}; name one of these")
    return [str(entry).strip() for entry in frame[column].dropna()]
