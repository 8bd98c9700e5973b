"""Joining a Ray cluster: what is missing or silent is said within seconds, and what others have made is left alone."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stochflow.core import ray_cluster
from stochflow.core.errors import ConfigError
from stochflow.core.ray_cluster import RayCluster

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class PretendedRay(SimpleNamespace):
    """The few functions of the package that are used, without a cluster."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(options=None, running=False, error=error)
        self.constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)

    def is_initialized(self) -> bool:
        return bool(self.running)

    def init(self, **options: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does
        self.options = options | {"many": self.constants.ENABLE_RAY_CLUSTER}
        if self.error is not None:
            raise self.error
        self.running = True

    def shutdown(self) -> None:
        self.running = False


def installed(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> PretendedRay:
    ray = PretendedRay(error)
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]  # it is asked for attributes alone
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", ray.constants)  # type: ignore[arg-type]  # likewise
    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    monkeypatch.setitem(sys.modules, "ray.util", util)  # type: ignore[arg-type]  # likewise
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return ray


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port where connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def place(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_ray_that_is_not_installed_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'stochflow\[ray\]'"):
        RayCluster(2, None).check()


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_a_port_that_says_nothing_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket, prefix: str
) -> None:
    ray = installed(monkeypatch)
    monkeypatch.setattr(ray_cluster, "_KNOCK", 0.05)
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at {prefix}{place(listener)} .timed out"):
        RayCluster(2, prefix + place(listener)).connect()
    assert ray.options is None


@pytest.mark.parametrize(("answer", "is_cluster"), [(b"HTTP/1.0 400\r\n", False), (b"", False), (SETTINGS, True)])
def test_only_a_server_of_grpc_is_joined(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket, answer: bytes, is_cluster: bool
) -> None:
    ray = installed(monkeypatch)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    server = threading.Thread(target=serve)
    server.start()
    cluster = RayCluster(2, place(listener))
    if is_cluster:
        cluster.connect()
        assert (ray.options["address"], ray.options["many"]) == (place(listener), True)
        assert "num_cpus" not in ray.options
    else:
        with pytest.raises(ConfigError, match="something else listens there"):
            cluster.connect()
        assert ray.options is None
    server.join()


def test_ray_is_started_on_the_loopback_interface_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, handler, variables = installed(monkeypatch), signal.getsignal(signal.SIGTERM), dict(os.environ)
    cluster = RayCluster(3, None)
    cluster.connect()
    assert (ray.options["address"], ray.options["num_cpus"], ray.options["many"]) == ("local", 3, False)
    assert ray.constants.ENABLE_RAY_CLUSTER
    assert os.environ == variables
    assert signal.getsignal(signal.SIGTERM) == handler
    cluster.close()
    assert not ray.running


def test_a_connection_of_the_caller_is_used_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = installed(monkeypatch)
    ray.running = True
    cluster = RayCluster(2, "127.0.0.1:1")
    cluster.connect()
    cluster.close()
    assert ray.running
    assert ray.options is None


@pytest.mark.parametrize("error", [ConnectionError("no\nwho"), ValueError("bad"), Exception("the node timed out")])
def test_what_ray_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    installed(monkeypatch, error)
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at auto .{' '.join(str(error).split())}"):
        RayCluster(2, "auto").connect()
    with pytest.raises(ConfigError, match=r"Ray cannot be started on this machine .*use the engine 'local'"):
        RayCluster(2, None).connect()
