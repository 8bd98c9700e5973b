"""Hostile files and command lines: no traceback, no hang, little memory, no code run, nothing read outside."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.judge import MEMORY
from tests.fuzz.kinds import KINDS

# how many of each there are among 10,000; cheap ones are many
SHARES = {
    **{"config": 2000, "matrix": 1200, "table": 1600, "sequences": 1200, "series": 1050, "specification": 700},
    **{"pairs": 500, "channel": 500},
    **{"forecaster": 500, "arguments": 450, "checkpoint": 120, "cache": 50, "run_directory": 90, "report": 40},
}
# those of a group share a process, and what it prepares
GROUPS = [
    (
        "config",
        "arguments",
        "matrix",
        "pairs",
        "channel",
        "table",
        "sequences",
        "series",
        "specification",
        "forecaster",
    ),
    ("checkpoint", "cache", "run_directory", "report"),
]
# more than fit into `make test`: STOCHFLOW_FUZZ=10000 takes all of these shares
INPUTS = int(os.environ.get("STOCHFLOW_FUZZ", "1500"))


@pytest.mark.parametrize("group", GROUPS, ids=["files", "runs"])
def test_hostile_inputs_end_well(group: tuple[str, ...], record_property: Callable[[str, Any], None]) -> None:
    words = [word for kind in group for word in (kind, "0", str(-(-SHARES[kind] * INPUTS // sum(SHARES.values()))))]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.worker", *words],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    for kind in found["kinds"]:
        record_property("fuzzed", {name: kind[name] for name in ("kind", "inputs", "refused", "bad")})
    assert not [problem for kind in found["kinds"] for problem in kind["problems"]]
    assert found["peak"] < MEMORY


def test_every_kind_has_its_share() -> None:
    assert sorted(kind for group in GROUPS for kind in group) == sorted(SHARES) == sorted(KINDS)
    assert sum(SHARES.values()) == 10_000
