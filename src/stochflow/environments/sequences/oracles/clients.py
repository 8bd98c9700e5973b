"""Who asks the function: a process that may hang or die without harm, or this process itself."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any, Protocol

from stochflow.core.errors import ConfigError, OracleError
from stochflow.environments.sequences.oracles import worker
from stochflow.environments.sequences.oracles.worker import Function

Reply = dict[str, Any]

_START_LIMIT = 600.0


class Asker(Protocol):
    """Takes designs to the function, one batch at a time."""

    def start(self) -> None:
        """Refuse a function that cannot be asked at all."""

    def ask(self, designs: list[str]) -> Reply:
        """{"scores": [...]} or {"problem": why not}."""

    def close(self) -> None:
        """End whatever is still at work."""


class Inside:
    """Asks a function in this process: nothing can stop it when it hangs, and when it dies it takes us along."""

    def __init__(self, function: Function, name: str) -> None:
        self._function, self._name = function, name

    def start(self) -> None:
        try:
            worker.checked(self._function, self._name)
        except ValueError as error:
            raise OracleError(f"the oracle cannot be used: {error}") from None

    def ask(self, designs: list[str]) -> Reply:
        return worker.answer(self._function, designs)

    def close(self) -> None:
        pass


class Nobody:
    """Stands where the user has named no function: whoever asks hears how to."""

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy

    def start(self) -> None:
        raise ConfigError(self._remedy)

    def ask(self, designs: list[str]) -> Reply:
        raise ConfigError(self._remedy)

    def close(self) -> None:
        pass


class Process:
    """Asks a function by name in a process of its own, started when needed and started anew after it is gone."""

    def __init__(self, name: str, timeout: float | None) -> None:
        self._name, self._timeout = name, timeout
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [sys.executable, worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        # imports may take their time: the limit of a call is not for them
        reply = self._exchange({"path": [os.getcwd(), *sys.path], "function": self._name}, _START_LIMIT)
        reason = reply.get("refused", reply.get("problem"))
        if reason is not None:
            self.close()
            raise OracleError(f"the oracle '{self._name}' cannot be used: {reason}; correct it or its name")

    def ask(self, designs: list[str]) -> Reply:
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
                with contextlib.suppress(OSError):  # what was still to be written is of no use any more
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
        except (OSError, ValueError):  # it is gone, or somebody closed it while we waited
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
