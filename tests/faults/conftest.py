"""A machine to break, and the count of what was done to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Machine

LAB = '''
"""Scores by the share of A; every call is written down, and some fail when a file asks for it."""
import os, zlib
from pathlib import Path

HERE = Path(__file__).parent

def paid(designs):
    chance = float((HERE / "chance").read_text()) if (HERE / "chance").exists() else 0.0
    calls = os.open(HERE / "calls.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(calls, "".join(f"{design}\\n" for design in designs).encode())
    number = os.fstat(calls).st_size
    os.close(calls)
    # whether a call fails depends on how many there were, not on what is asked
    if zlib.crc32(str(number).encode()) % 1000 < 1000 * chance:
        raise OSError("the robot is busy")
    return [(1 + design.count("A")) / (1 + len(design)) for design in designs]
'''


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Machine]:
    """One process for all tests: it has everything imported."""
    started = Machine()
    yield started
    started.close()


@pytest.fixture
def machine(preloaded: Machine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Runs commands in the folder of the test and lets them be killed; its kills are counted for the terminal."""
    (tmp_path / "lab.py").write_text(LAB)
    preloaded.begin(tmp_path)
    yield preloaded
    for kind, number in preloaded.kills.items():
        request.node.user_properties.append(("kills", (kind, number)))
