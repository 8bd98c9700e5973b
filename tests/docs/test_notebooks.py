"""The notebooks of the tutorials run from top to bottom, and say what is stored in them."""

import re
from pathlib import Path

import nbformat
import pytest

from scripts.run_notebooks import NOTEBOOKS, executed
from tests.docs.pages import name_of


def printed(notebook: nbformat.NotebookNode) -> list[tuple[str, list[str]]]:
    """Kinds of all outputs with their words; numbers and designs depend on the machine."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = "" if "image/png" in data else output.get("text", data.get("text/plain", ""))
            text = re.sub(r"\b[ACGT]{8}\b|[-+]?[\d,.]*\d[\d.]*%?|\bNaN\b|\.\.\.", " ", text)
            found.append((output.output_type, text.split()))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_and_prints_what_is_stored(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    assert all(cell.execution_count for cell in stored.cells if cell.cell_type == "code"), "run scripts.run_notebooks"
    assert not [output for _, words in printed(stored) for output in words if "Error" in output]
    assert printed(executed(path, tmp_path)) == printed(stored)


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4
