"""The commands of the campaign tutorial run as they stand, on fewer measurements, and say what the page shows."""

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from scripts.build_measured_example import measured
from stochflow.cli import app as cli

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorials/campaign.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|text|python)\n(.*?)```", TUTORIAL, flags=re.DOTALL)
NUM_ROWS = 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example, whose table has its first rows."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples/campaign", tmp_path / "examples/campaign")
    table = tmp_path / "examples/campaign/measured.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[: NUM_ROWS + 1]))
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What a command prints; stochflow and Python in this process, all else in a shell."""

    def call(command: str) -> str:
        program, *arguments = command.split()
        if program == "python":
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
            return ""
        if program != "stochflow":
            return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
        monkeypatch.setattr(sys, "argv", command.split())
        capsys.readouterr()
        with pytest.raises(SystemExit, match="0"):
            cli.main()
        return capsys.readouterr().out

    return call


def words(text: str) -> list[str]:
    """Text without what depends on the measurements: numbers, designs, and the frames of tables."""
    text = re.sub(r"[┌┐└┘├┤┬┴│─]", " ", text)
    text = re.sub(r"\b[ACGT]{8}\b", "DESIGN", text)
    return re.sub(r"-?\d[\d,.]*\d|-?\d", "0", text).split()


def sessions() -> Iterator[tuple[list[str], str]]:
    """Commands and what they are said to print."""
    for (kind, text), (next_kind, output) in pairwise(BLOCKS):
        if kind == "sh":
            assert next_kind == "text"
            yield text.splitlines(), output


def test_every_command_prints_what_the_tutorial_shows(folder: Path, run: Callable[[str], str]) -> None:
    for commands, output in sessions():
        assert words("".join(map(run, commands))) == words(output), commands
    plate, results = pd.read_csv("plate.csv"), pd.read_csv("results.csv")
    assert len(plate) == len(results) == 96
    assert results["failed"].eq("yes").sum() == 2
    assert not set(pd.read_csv("plate2.csv")["order"]) & set(plate["order"])
    assert Path("lab/pax4/report.html").stat().st_size > 1_000_000
    (python,) = (text for kind, text in BLOCKS if kind == "python")
    exec(python, names := {})
    assert names["campaign"].status().num_pending == 96


def test_the_measurements_are_those_of_the_shipped_table() -> None:
    assert (ROOT / "examples/campaign/measured.csv").read_text(encoding="utf-8") == measured()
