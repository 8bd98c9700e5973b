"""Run the notebooks of the tutorials and store what they print and draw: python -m scripts.run_notebooks [NAME ...]."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
_SECONDS = 300


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook after a run from top to bottom in a folder that has the examples."""
    (folder / "examples").symlink_to(ROOT / "examples")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=_SECONDS, resources=where, coalesce_streams=True)
    # sockets in the folder and not on the network
    client.km = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    return notebook


def main() -> None:
    for path in NOTEBOOKS:
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            with TemporaryDirectory() as folder:
                nbformat.write(executed(path, Path(folder)), path)


if __name__ == "__main__":
    main()
