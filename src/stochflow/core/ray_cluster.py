"""Connection to a Ray cluster: started on this machine, or joined where the user says."""

import contextlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra

_KNOCK = 5.0  # seconds
# what a client of HTTP/2, and so of gRPC, says first: its preface and empty settings
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS_FRAME = 4
_MANY_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class RayCluster:
    """A Ray cluster and this process's connection to it.

    Without an address Ray is started on this machine and ended again. A connection that the caller has made himself is
    used, and left open.

    Args:
        num_cpus: tasks at a time where Ray is started on this machine.
        address: of the cluster to join.
    """

    def __init__(self, num_cpus: int, address: str | None) -> None:
        self._num_cpus, self._address = num_cpus, address
        self._joined = False
        self._tasks: dict[Callable[..., Any], Any] = {}

    @property
    def ray(self) -> ModuleType:
        """The package; a ConfigError names the extra that installs it."""
        return extra("ray", "ray")

    def check(self) -> None:
        """Raise a ConfigError if Ray is not installed or nobody answers at the address, within seconds."""
        ray = self.ray
        if not ray.is_initialized():
            _check_reachable(self._address)

    def connect(self) -> None:
        """Join the cluster, or start it; where that is done already, nothing happens."""
        self.check()
        if self.ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"address": self._address}
        if self._address is None:
            options = {"address": "local", "num_cpus": self._num_cpus, "include_dashboard": False}
            options["_node_ip_address"] = "127.0.0.1"
        try:
            with _own_sigterm(), contextlib.nullcontext() if self._address else _loopback_alone():
                self.ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # of any type, some of them plain
            if self._address is None:
                raise ConfigError(
                    f"Ray cannot be started on this machine ({one_line(error)}); try again when it is less busy, or "
                    "use the engine 'local'"
                ) from None
            raise _no_answer(self._address, one_line(error)) from None
        self._joined = True

    def task(self, function: Callable[..., Any], **options: Any) -> Any:
        """The function as a Ray task, the same at every call, so that workers are used again.

        Args:
            options: as of `ray.remote`.
        """
        if function not in self._tasks:
            self._tasks[function] = self.ray.remote(**options)(function)
        return self._tasks[function]

    def close(self) -> None:
        """Leave the cluster, if it was joined here."""
        if self._joined:
            self._joined = False
            self.ray.shutdown()


def one_line(error: BaseException) -> str:
    """The beginning of an error's message, on one line.

    >>> one_line(ValueError("no\\n  way"))
    'no way'
    """
    return " ".join(str(error).split())[:300]


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _loopback_alone() -> Iterator[None]:
    """Let Ray start on the loopback interface: on Linux it would take an address that other machines reach."""
    constants: Any = extra("ray._private.ray_constants", "ray")
    before, given = constants.ENABLE_RAY_CLUSTER, os.environ.get(_MANY_MACHINES)
    # this process has read the variable already, and those that it starts will
    constants.ENABLE_RAY_CLUSTER, os.environ[_MANY_MACHINES] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(_MANY_MACHINES)
        os.environ |= {} if given is None else {_MANY_MACHINES: given}


def _check_reachable(address: str | None) -> None:
    """Knock at the port of a cluster: Ray itself would try for minutes before it gives up."""
    parts = re.fullmatch(r"(?P<client>ray://)?(?P<host>[^:/]+):(?P<port>\d{1,5})", address or "")
    if parts is None:
        return
    host = parts["host"]
    if parts["client"] is None and host in ("127.0.0.1", "localhost"):  # Ray goes to the machine's outer address
        host = extra("ray.util", "ray").get_node_ip_address()
    try:
        with socket.create_connection((host, int(parts["port"])), timeout=_KNOCK) as connection:
            answers = os.environ.get("RAY_USE_TLS", "0") == "1" or _speaks_http2(connection)
    except (OSError, OverflowError) as error:
        raise _no_answer(str(address), str(error)) from None
    if not answers:
        raise _no_answer(str(address), "something else listens there")


def _speaks_http2(connection: socket.socket) -> bool:
    """True if the other side answers a greeting with its settings, as every server of gRPC does."""
    connection.settimeout(_KNOCK)
    connection.sendall(_GREETING)
    answer = b""
    while len(answer) < 4 and (received := connection.recv(4 - len(answer))):
        answer += received
    return len(answer) == 4 and answer[3] == _SETTINGS_FRAME


def _no_answer(place: str, reason: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster answers at {place} ({reason}); start it there with `ray start --head` and give both the same "
        "RAY_AUTH_TOKEN_PATH, or leave --address away"
    )
