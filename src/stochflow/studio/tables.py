"""What an uploaded table holds, as far as a form can be filled in from it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.core.text_table import check_header, check_text_file, readable, text_options
from stochflow.studio.folder import MAX_UPLOAD

_SEQUENCES = ("sequence", "seq", "order", "design", "variant", "dna", "protein")
_SCORES = ("score", "value", "activity", "fitness", "signal", "measurement")
_ALPHABETS = {"dna": "ACGT", "rna": "ACGU", "protein": "ACDEFGHIKLMNPQRSTVWY"}
_SHOWN_ROWS, _READ_ROWS = 3, 20_000


def describe_table(path: Path) -> dict[str, Any]:
    """Columns, number of rows, the first rows, and what alphabet and lengths the sequences have."""
    check_text_file(path, MAX_UPLOAD, f"{MAX_UPLOAD // 2**20} MB")
    columns = check_header(path, [], "")
    with readable(path):
        frame = pd.read_csv(path, nrows=_READ_ROWS, **text_options(path))
        with path.open("rb") as file:
            num_lines = sum(1 for line in file if line.strip())
    sequence = _known(columns, _SEQUENCES) or _text_column(frame)
    score = _known(columns, _SCORES) or _number_column(frame)
    found = {"columns": columns, "rows": num_lines - 1, "sequence": sequence, "score": score}
    found["first"] = frame.head(_SHOWN_ROWS).values.tolist()
    return found | ({} if sequence is None or frame.empty else _letters(frame[sequence].str.strip()))


def _letters(sequences: "pd.Series[str]") -> dict[str, Any]:
    letters = set().union(*map(set, sequences))
    alphabet = next((name for name, known in _ALPHABETS.items() if letters <= set(known)), "".join(sorted(letters)))
    lengths = sequences.str.len()
    return {"alphabet": alphabet[:100], "shortest": int(lengths.min()), "longest": int(lengths.max())}


def _known(columns: Iterable[str], names: tuple[str, ...]) -> str | None:
    """The column that is called by one of some names, the first of them before the second."""
    small = {str(column).strip().lower(): str(column) for column in columns}
    return next((small[name] for name in names if name in small), None)


def _number_column(frame: pd.DataFrame) -> str | None:
    numbers = [name for name in frame if pd.to_numeric(frame[name], errors="coerce").notna().mean() > 0.5]
    return None if not numbers else str(numbers[0])


def _text_column(frame: pd.DataFrame) -> str | None:
    texts = [name for name in frame if len(frame) and frame[name].str.fullmatch(r"[A-Za-z]+").mean() > 0.9]
    return None if not texts else str(texts[0])
