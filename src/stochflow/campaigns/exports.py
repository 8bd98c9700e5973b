"""An ask on paper: plate maps, FASTA, and order sheets in the columns of oligo vendors."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from stochflow.campaigns.plates import Plate
from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.core.files import write_atomically

Layout = Literal["plate", "map", "fasta", "idt", "twist"]
Sheets = dict[str, pd.DataFrame]  # by the name of the plate
_ORDERED = ("idt", "twist")


def write_export(rows: pd.DataFrame, plate: Plate, layout: str, out: Path, letters: str) -> None:
    """Write an ask to a file.

    Args:
        rows: what `Campaign.ask` returned.
        plate: format of its plates.
        layout: `plate` for one row per well, `map` for a grid of orders, `fasta`, or a vendor's order sheet.
        out: ends with .csv or .xlsx, which has one sheet per plate; a FASTA may be called anything.
        letters: of the alphabet; vendors make DNA.
    """
    if layout not in get_args(Layout):
        raise ConfigError(f"unknown layout '{layout}'; choose one of: {', '.join(get_args(Layout))}")
    if layout in _ORDERED and set(letters) != set("ACGT"):
        raise ConfigError(f"order sheets of {layout} are for DNA, and the alphabet is {letters}; choose another layout")
    if layout == "fasta":
        write_atomically(out, fasta(rows))
    else:
        _write_table(_sheets(rows, plate, layout), layout, out)


def fasta(rows: pd.DataFrame) -> str:
    """Orders as FASTA, named by their ids with plate and well behind.

    >>> print(fasta(pd.DataFrame({"id": ["a1_001"], "order": ["ACGT"], "plate": ["p1"], "well": ["A1"]})), end="")
    >a1_001 p1 A1
    ACGT
    """
    records = zip(rows["id"], rows["plate"], rows["well"], rows["order"], strict=True)
    return "".join(f">{name} {plate} {well}\n{order}\n" for name, plate, well, order in records)


def _sheets(rows: pd.DataFrame, plate: Plate, layout: str) -> Sheets:
    build: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
        "plate": lambda part: part,
        "map": lambda part: _grid(part, plate),
        "idt": lambda part: _renamed(part, {"well": "Well Position", "id": "Name", "order": "Sequence"}),
        "twist": lambda part: _renamed(part, {"id": "name", "order": "sequence"}),
    }
    return {str(name): build[layout](part) for name, part in rows.groupby("plate", sort=False)}


def _renamed(rows: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    return rows[list(names)].rename(columns=names)


def _grid(rows: pd.DataFrame, plate: Plate) -> pd.DataFrame:
    """Orders where they lie; the first column has the name of the plate as its heading and the letters of the rows."""
    orders = dict(zip(rows["well"], rows["order"], strict=True))
    columns = range(1, plate.num_columns + 1)
    cells = [[row, *(orders.get(f"{row}{column}", "") for column in columns)] for row in plate.rows]
    return pd.DataFrame(cells, columns=[rows["plate"].iloc[0], *map(str, columns)])


def _write_table(sheets: Sheets, layout: str, out: Path) -> None:
    if out.suffix == ".xlsx":
        write_atomically(out, _workbook(sheets))
    elif out.suffix != ".csv":
        raise ConfigError(f"--out {out} must end with .csv or .xlsx; choose another name")
    elif layout == "map":
        write_atomically(out, "\n".join(sheet.to_csv(index=False) for sheet in sheets.values()))
    elif layout == "idt" and len(sheets) > 1:
        raise ConfigError(f"a CSV for {layout} has one plate and this ask has {len(sheets)}; give a name with .xlsx")
    else:
        write_atomically(out, pd.concat(list(sheets.values())).to_csv(index=False))


def _workbook(sheets: Sheets) -> bytes:
    """An Excel file with one sheet per plate."""
    book = extra("openpyxl", "excel").Workbook()
    book.remove(book.active)
    for name, sheet in sheets.items():
        page = book.create_sheet(name)
        page.append(list(sheet.columns))
        for row in sheet.astype(object).itertuples(index=False):
            page.append(list(row))
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()
