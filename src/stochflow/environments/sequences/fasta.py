"""Reader of sequence files: FASTA, CSV, or one sequence per line."""

import io
import re
from pathlib import Path

import pandas as pd
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.core.files import check_columns, read_limited
from stochflow.environments.sequences.task import Task

MAX_BYTES = 64 * 2**20


def read_sequences(path: Path) -> list[str]:
    """Sequences of a file in upper case; of a CSV its column `sequence`, or its first column.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "known.fasta"
    ...     _ = path.write_text(">first\\nacgt\\n>second\\nGGTA\\n")
    ...     read_sequences(path)
    ['ACGT', 'GGTA']
    """
    try:
        text = read_limited(path, MAX_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); check the path") from None
    if path.suffix == ".csv":
        try:
            check_columns(text.encode())
            frame = pd.read_csv(io.StringIO(text), dtype=str)
        except ValueError as error:
            raise DataError(f"{path} is not a CSV table ({' '.join(str(error).split())}); correct it") from None
        column = "sequence" if "sequence" in frame.columns else frame.columns[0]
        found = frame[column].dropna().str.strip().tolist()
    elif text.lstrip().startswith(">"):
        entries = re.split(r"^>.*$", text, flags=re.MULTILINE)[1:]
        found = ["".join(entry.split()) for entry in entries]
    else:
        found = text.split()
    sequences = ["".join(sequence.split()).upper() for sequence in found]
    if not all(sequences) or not sequences:
        raise DataError(f"{path} holds no sequences or an empty one; give one sequence per line, FASTA or CSV")
    return sequences


def read_tokens(path: Path, task: Task) -> Tensor:
    """Sequences of a file as tokens of the task, [num_sequences, L]."""
    tokens = task.alphabet.encode(read_sequences(path))
    if task.padding is None and tokens.shape[1] != task.length:
        raise DataError(f"{path} holds sequences of length {tokens.shape[1]}, but {task.name} has length {task.length}")
    return tokens
