"""Clients of a score function: in a worker process, which may hang or die without harm, or in this process."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from stochflow.core.errors import ConfigError, OracleError
from stochflow.environments.sequences.oracles import worker
from stochflow.environments.sequences.oracles.worker import Function

Reply = dict[str, Any]

START_LIMIT = 600.0  # seconds


class OracleClient(ABC):
    """Calls the score function, one batch of designs at a time."""

    def connect(self) -> None:  # noqa: B027  # most clients need nothing
        """Connect to what the calls need, in the thread that asks for scores; calls may come from others."""

    @abstractmethod
    def start(self) -> None:
        """Raise an error if the function cannot be called at all."""

    @abstractmethod
    def score(self, designs: list[str]) -> Reply:
        """{"scores": [...]}, or {"problem": reason}."""

    def close(self) -> None:  # noqa: B027  # most clients have none
        """Stop the worker, if there is one."""


class InProcessClient(OracleClient):
    """Calls a function in this process; there is no time limit, and a crash of the function ends the run."""

    def __init__(self, function: Function, name: str) -> None:
        self._function, self._name = function, name

    def start(self) -> None:
        try:
            worker.checked(self._function, self._name)
        except ValueError as error:
            raise OracleError(f"the oracle cannot be used: {error}") from None

    def score(self, designs: list[str]) -> Reply:
        return worker.answer(self._function, designs)


class RefusingClient(OracleClient):
    """Stands in for a function that the user has not named; every call raises the remedy."""

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy

    def start(self) -> None:
        raise ConfigError(self._remedy)

    def score(self, designs: list[str]) -> Reply:
        raise ConfigError(self._remedy)


class WorkerClient(OracleClient):
    """Calls a function by name in a worker process, started when it is needed and restarted after it died.

    Args:
        timeout: seconds that a call may take.
        folder: where the process works and modules are searched first, if there is such a folder; by default the
            current one.
        path: further folders of modules, before those of this process.
    """

    def __init__(self, name: str, timeout: float | None, folder: str | None = None, path: Sequence[str] = ()) -> None:
        self._name, self._timeout = name, timeout
        self._folder, self._path = folder, path
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        folder = self._folder if self._folder is not None and os.path.isdir(self._folder) else os.getcwd()
        self._process = subprocess.Popen(
            [sys.executable, worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=folder,
        )
        # the time limit of a call does not apply to imports
        reply = self._exchange({"path": [folder, *self._path, *sys.path], "function": self._name}, START_LIMIT)
        reason = reply.get("refused", reply.get("problem"))
        if reason is not None:
            self.close()
            raise OracleError(f"the oracle '{self._name}' cannot be used: {reason}; correct it or its name")

    def score(self, designs: list[str]) -> Reply:
        self.start()
        return self._exchange(designs, self._timeout)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # unwritten data is of no use
                    stream.close()

    def _exchange(self, message: object, timeout: float | None) -> Reply:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout, give_up) if timeout is not None else None
        if timer is not None:
            timer.start()
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):  # the worker died, or was closed by another thread
            line = ""
        finally:
            if timer is not None:
                timer.cancel()
        if line.endswith("\n"):
            reply: Reply = json.loads(line)
            return reply
        code = process.wait()
        self.close()
        if late.is_set():
            return {"problem": f"it gave no answer within {timeout:g} s"}
        return {"problem": f"its process ended with exit code {code}"}
