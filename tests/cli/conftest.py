"""The command line in this process, for all tests of it."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from stochflow.cli import app as cli


class Result(NamedTuple):
    code: int
    out: str
    err: str


Stochflow = Callable[..., Result]


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Stochflow:
    """`stochflow …` in this process, with an empty directory to run in."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what the command line replaces
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["stochflow", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return Result(caught.value.code, out, err)

    return call
