"""Tables of results as laboratories write them: read as text, checked line by line."""

import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from stochflow.campaigns.goals import SCORE
from stochflow.core.errors import DataError
from stochflow.core.files import check_columns, read_limited
from stochflow.core.text_table import check_separator, number_fault, plain, readable, shown, text_options

MAX_BYTES = 64 * 2**20
MAX_VALUE = 1e300
_TEXTS = ("id", "sequence", "observed", "replicate", "plate", "well")
_COLUMNS = (*_TEXTS, "variance", "failed", "control")
_YES, _NO = ("1", "true", "yes", "y", "x"), ("", "0", "false", "no", "n")


@dataclass(frozen=True)
class Result:
    """One line of a table.

    Attributes:
        line: its number in the file.
        id, sequence: which design was ordered; empty where the table does not say.
        observed: what was sequenced; empty where unknown.
        values: what was measured by property; the score is missing where a well failed or is still to come.
        variance: of the score; None where unknown.
        replicate: its name; empty where the table does not say.
        failed: the table says so; an empty score does not.
    """

    line: int
    id: str
    sequence: str
    observed: str
    values: dict[str, float]
    variance: float | None
    replicate: str
    plate: str
    well: str
    failed: bool
    control: bool


@dataclass(frozen=True)
class ResultTable:
    """A table of results.

    Attributes:
        name: of the file.
        content: its bytes.
        results: its lines.
        ignored: columns that were not read.
    """

    name: str
    content: bytes = field(repr=False)
    results: list[Result] = field(repr=False)
    ignored: list[str]


def read_results(source: pd.DataFrame | Path | str, properties: Sequence[str]) -> ResultTable:
    """Read a file or a DataFrame of results; a DataError says what is wrong with it, and where.

    >>> table = read_results(pd.DataFrame({"sequence": ["ACGT", "ACGA"], "score": [-0.5, None]}), [])
    >>> [(result.sequence, result.values) for result in table.results]
    [('ACGT', {'score': -0.5}), ('ACGA', {})]

    Args:
        properties: columns of values beside the score.
    """
    path, content = _content(source)
    cells = _cells(path, content)
    names = [*_COLUMNS, SCORE, *properties]
    if "sequence" not in cells and "order" in cells:  # a plate as it was asked for
        cells = cells.rename(columns={"order": "sequence"})
    if not {"id", "sequence"} & set(cells):
        raise DataError(f"{path} has neither a column 'sequence' nor 'id', only {shown(list(cells))}; name one so")
    if not {SCORE, "failed", "observed", *properties} & set(cells):
        raise DataError(f"{path} has no column '{SCORE}', only {shown(list(cells))}; name the measured values so")
    rows = cells.reindex(columns=names, fill_value="").itertuples(index=False)
    results = [
        _result(path, line, dict(zip(names, map(str, row), strict=True)), [SCORE, *properties])
        for line, row in enumerate(rows, start=2)
    ]
    return ResultTable(path.name, content, results, [str(name) for name in cells if name not in names])


def _content(source: pd.DataFrame | Path | str) -> tuple[Path, bytes]:
    """A name and the bytes of a table."""
    if isinstance(source, pd.DataFrame):
        return Path("the DataFrame"), source.to_csv(index=False).encode()
    if not isinstance(source, str | Path):
        raise DataError(
            f"results are a table, and {type(source).__name__} is none; give a DataFrame or the path of a CSV"
        )
    path = Path(source)
    try:
        return path, read_limited(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the table {path} cannot be read ({getattr(error, 'strerror', error)}); check the path"
        ) from None


def _cells(path: Path, content: bytes) -> pd.DataFrame:
    """Cells as text without spaces around them; names of columns in small letters."""
    if b"\0" in content:
        raise DataError(f"{path} is not a text file; save the table as CSV in UTF-8")
    with readable(path):
        options = text_options(path)
        check_columns(content, options["sep"])
        header = pd.read_csv(io.BytesIO(content), nrows=1, **options | {"header": None}).iloc[0]
        check_separator(path, list(header), options["sep"])
        frame = pd.read_csv(io.BytesIO(content), **options)
    names = [str(name).strip().lower() for name in header]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has several columns '{plain(twice[0])}'; rename all but one of them")
    if frame.empty:
        raise DataError(f"{path} has no row below its header; give one row per well")
    return frame.set_axis(names, axis=1).apply(lambda column: column.str.strip())


def _result(path: Path, line: int, row: dict[str, str], properties: Sequence[str]) -> Result:
    def place(name: str) -> str:
        return f"{path} has '{plain(row[name])}' in the column '{name}' in line {line}"

    def number(name: str) -> float | None:
        value = _number(row[name]) if row[name] else None
        if value is not None and not abs(value) <= MAX_VALUE:
            raise DataError(f"{place(name)}, {number_fault(row[name])}, or leave it empty for a failed well")
        return value

    def flag(name: str) -> bool:
        if row[name].lower() not in (*_YES, *_NO):
            raise DataError(f"{place(name)}; write yes or no")
        return row[name].lower() in _YES

    failed, control, variance = flag("failed"), flag("control"), number("variance")
    values = {name: value for name in properties if (value := number(name)) is not None}
    if failed and values:
        raise DataError(f"{place(next(iter(values)))} and says that the well failed; leave one of the two out")
    if variance is not None and variance < 0:
        raise DataError(f"{place('variance')}; a variance is not negative, correct it")
    id_, sequence, observed, replicate, plate, well = (row[name] for name in _TEXTS)
    return Result(line, id_, sequence, observed, values, variance, replicate, plate, well, failed, control)


def _number(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
