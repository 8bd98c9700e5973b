"""Jobs: what takes long, each in a process of its own that outlives a reload of a page and the studio itself."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from stochflow import ConfigError
from stochflow.core.files import is_locked, write_atomically
from stochflow.studio.folder import Folder

JOB, RESULT, LOG, LOCK, PID = "job.json", "result.json", "log.txt", "lock", "pid"
Kind = Literal["train", "ask"]
_MAX_JOBS = 200
_MAX_LOG = 4000


@dataclass(frozen=True)
class Job:
    """A job and what became of it.

    Attributes:
        target: the run or campaign that it works on, relative to the folder.
        state: `running`, `done`, `failed` with an `error`, or `killed`: it ended without a word.
    """

    id: str
    kind: str
    target: str
    begun: str
    state: Literal["running", "done", "failed", "killed"]
    error: str = ""
    log: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Jobs:
    """The jobs of a folder.

    A job's process holds the lock of its directory from before it is started to its end, however it ends: so anybody
    can tell what is running, also after the studio was started again.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder, self._root = folder, folder.hidden / "jobs"
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, kind: Kind, target: Path, arguments: Mapping[str, Any]) -> str:
        """Start a job; refuses a second one for the same target. Returns its id.

        Args:
            arguments: of the public function that it calls, as JSON.
        """
        name = self._folder.relative(target)
        if any(job.state == "running" for job in self.about(name)):
            raise ConfigError(f"a job is at work on '{name}' already; wait for it, or stop it")
        begun = datetime.now(timezone.utc).isoformat(timespec="seconds")
        key = f"{begun[:19].replace(':', '')}-{token_hex(4)}"
        path = self._root / key
        path.mkdir(parents=True)
        job = {"kind": kind, "target": name, "begun": begun}
        write_atomically(path / JOB, json.dumps(job))
        # what is to be done comes on standard input: nobody can change it in a file on the way
        todo = json.dumps({"kind": kind, "target": str(target), "arguments": dict(arguments)}).encode()
        with (path / LOG).open("ab") as log, (path / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            child = subprocess.Popen(
                [sys.executable, "-m", "stochflow.studio.worker", str(path)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # a Ctrl-C that ends the studio is not for it
            )
        write_atomically(path / PID, str(child.pid))
        with contextlib.suppress(BrokenPipeError):
            assert child.stdin is not None
            child.stdin.write(todo)
            child.stdin.close()
        self._children.append(child)
        self._forget()
        return key

    def all(self) -> list[Job]:
        """All jobs, the latest first."""
        self._children = [child for child in self._children if child.poll() is None]  # and collects who has ended
        paths = sorted(self._root.glob("*"), reverse=True) if self._root.is_dir() else []
        return [job for path in paths if (job := _read(path)) is not None]

    def about(self, target: str) -> list[Job]:
        """The jobs that worked on a target, the latest first."""
        return [job for job in self.all() if job.target == target]

    def stop(self, target: str) -> None:
        """Ask the job that is at work on a target to end and keep what it has."""
        running = [job for job in self.about(target) if job.state == "running"]
        if not running:
            raise ConfigError(
                f"no job of this studio is at work on '{target}'; what a terminal started is stopped there"
            )
        for job in running:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self._root / job.id / PID).read_text()), signal.SIGINT)

    def _forget(self) -> None:
        for job in self.all()[_MAX_JOBS:]:
            if job.state != "running":
                shutil.rmtree(self._root / job.id, ignore_errors=True)


def _read(path: Path) -> Job | None:
    """A job from its directory; None for what is none."""
    running = is_locked(path / LOCK)
    try:
        job = json.loads((path / JOB).read_text(encoding="utf-8"))
        given = {name: str(job[name]) for name in ("kind", "target", "begun")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    log = _tail(path / LOG)
    if running:
        return Job(path.name, **given, state="running", log=log)
    try:
        error = str(json.loads((path / RESULT).read_text(encoding="utf-8"))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        error = "its process was killed; everything that it had written down is kept"
        return Job(path.name, **given, state="killed", error=error, log=log)
    return Job(path.name, **given, state="failed" if error else "done", error=error, log=log)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_LOG))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
