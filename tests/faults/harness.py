"""Commands in forked children that can be killed, and the comparison of what they leave behind."""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import stochflow
from tests.faults import server

SOURCE = str(Path(stochflow.__file__).parents[1])
KILLED = (-9, server.CUT)
_CLOCKS = {"seconds", "cpu_seconds", "crc32"}  # the checksum is of a line with its seconds


NAMED = ["--oracle", "lab:paid"]  # code runs only where it is named, on a resume too


@dataclass(frozen=True)
class Life:
    """How a command ended: its exit code, what it printed, how long it took, how many operations on files it needed."""

    code: int
    text: str
    seconds: float
    count: int | None

    @property
    def killed(self) -> bool:
        return self.code in KILLED

    def refused(self) -> str:
        """The one sentence of a command that could not go on."""
        assert self.code == 2, self
        assert "Traceback" not in self.text, self.text
        last = self.text.strip().splitlines()[-1]
        assert last.startswith("Error: "), self.text
        assert ";" in last, last  # what is wrong, and what to do
        return last


class Machine:
    """Runs commands one after the other, and counts the kills."""

    def __init__(self) -> None:
        self.begin(Path())
        command = [sys.executable, server.__file__]
        environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the machine did not start"

    def begin(self, folder: Path) -> None:
        """Work in another folder, and count from zero."""
        self.folder, self.kills = folder, Counter[str]()

    def __call__(
        self,
        *argv: object,
        kill_after: float | None = None,
        cut_at: int | None = None,
        power: int | None = None,
        failure: int | None = None,
        file_size: int | None = None,
        folder: Path | None = None,
        kind: str = "training",
    ) -> Life:
        """One command; killed after some seconds or at its n-th operation on files of a folder, if so asked."""
        reply = self._ask(
            argv=list(map(str, argv)),
            cwd=str(self.folder),
            path=[str(self.folder)],
            log=str(self.folder / ".log"),
            kill_after=kill_after,
            at=cut_at,
            power=power,
            failure=failure,
            file_size=file_size,
            folder=None if folder is None else str(folder),
        )
        assert reply.pop("alone"), f"something outlived its parent: {argv}"
        life = Life(reply["code"], reply["text"], reply["seconds"], reply["count"])
        assert "Traceback" not in life.text, life.text
        if life.killed:
            self.kills[kind] += 1
        else:
            assert life.code >= 0, life
        return life

    def shell(self, *command: object) -> bool:
        """Whether a command succeeded, as the machine sees its disks."""
        return bool(self._ask(shell=list(map(str, command)))["code"] == 0)

    @contextlib.contextmanager
    def isolated(self) -> Iterator[bool]:
        """A mount namespace of its own until it is left, for small disks; whether that is allowed here."""
        allowed = bool(self._ask(isolate=True)["isolated"])
        yield allowed
        if allowed:
            assert self._ask(leave=True)["left"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.communicate(timeout=30)

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the machine itself is gone"
        return dict(json.loads(line))


def contents(run: Path) -> dict[str, Any]:
    """All that a run leaves behind, without what the clock says."""
    newest = max((run / "checkpoint").glob("*.safetensors"))
    state = load_file(newest)
    state["counters"][2] = 0.0
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return {
        "state": state,
        "metrics": [{name: value for name, value in record.items() if name not in _CLOCKS} for record in records],
        "summary": {name: value for name, value in summary.items() if name not in _CLOCKS},
        "samples": (run / "samples.csv").read_text(encoding="utf-8"),
        "config": (run / "config.yaml").read_text(encoding="utf-8"),
        "files": sorted(str(path.relative_to(run)) for path in run.rglob("*") if "sqlite-" not in path.name),
    }


def assert_same_run(found: Path, expected: Path) -> None:
    left, right = contents(found), contents(expected)
    assert left["state"].keys() == right["state"].keys()
    for name, tensor in right["state"].items():
        assert torch.equal(left["state"][name], tensor), name
    for part in ("metrics", "summary", "samples", "config", "files"):
        assert left[part] == right[part], part


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for locks and temporary ones."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and not path.name.endswith(".part")
    }
