"""A module of score functions, good and bad, that other processes can import."""

from pathlib import Path

import pytest

LAB = '''
"""Scores by the share of A; every call is written down."""
import os, time
from pathlib import Path

HERE = Path(__file__).parent
number = 3

def good(designs):
    with open(HERE / "calls.txt", "a") as file:
        file.write("".join(f"{len(designs)} {design}\\n" for design in designs))
    return [design.count("A") / len(design) for design in designs]

def spoiled(designs, how):
    scores = good(designs)
    return [how if design.startswith("CC") else score for design, score in zip(designs, scores)]

def nan(designs): return spoiled(designs, float("nan"))
def infinite(designs): return spoiled(designs, float("inf"))
def negative(designs): return spoiled(designs, -1.0)
def text(designs): return spoiled(designs, "0.5")
def nothing(designs): return None
def a_text(designs): return "0.5"
def too_few(designs): return good(designs)[1:]
def a_table(designs): return [[score, score] for score in good(designs)]

def raises(designs):
    if any(design.startswith("CC") for design in designs):
        raise KeyError("plate\\n7")
    return good(designs)

def dies(designs):
    if any(design.startswith("CC") for design in designs):
        os._exit(9)
    return good(designs)

def hangs(designs):
    if any(design.startswith("CC") for design in designs):
        time.sleep(60)
    return good(designs)

def flaky(designs):
    """Fails until a file is there, which the first failure writes."""
    if not (HERE / "tried").exists():
        (HERE / "tried").touch()
        raise OSError("the robot is busy")
    return good(designs)

def talks(designs):
    print("{\\"scores\\": [7]}")
    try:
        input()
    except EOFError:
        pass
    return good(designs)

def meets(designs):
    """Goes on when four calls are under way at the same time."""
    (HERE / f"here-{designs[0]}").touch()
    while len(list(HERE.glob("here-*"))) < 4:
        time.sleep(0.01)
    return good(designs)

def fragile(designs):
    """When two calls are under way, one of them ends the process that started its worker, once."""
    scores = good(designs)
    (HERE / f"here-{os.getpid()}").touch()
    while len(list(HERE.glob("here-*"))) < 2:
        time.sleep(0.01)
    try:
        (HERE / "killed").touch(exist_ok=False)
    except FileExistsError:
        return scores
    os.kill(os.getppid(), 9)
    time.sleep(60)

def arrays(designs):
    import numpy
    return numpy.array(good(designs), dtype="float32")

def changes(designs):
    scores = good(designs)
    designs.clear()
    return scores

async def coroutine(designs): return good(designs)

class Group:
    @staticmethod
    def member(designs): return good(designs)
'''


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the module `lab`, on the path; `calls.txt` there lists every design that was asked for."""
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "lab.py").write_text(LAB)
    (folder / "exits.py").write_text("import sys; sys.exit('not today')")
    (folder / "fails.py").write_text("import a_package_that_is_not_there")
    monkeypatch.syspath_prepend(folder)
    return folder


def asked(lab: Path) -> list[str]:
    """Designs in the order in which they were asked for."""
    path = lab / "calls.txt"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []
