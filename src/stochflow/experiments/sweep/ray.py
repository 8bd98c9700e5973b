"""Runs as tasks of a Ray cluster, each in its own run directory on storage that all machines share."""

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.experiments.sweep.worker import Job, Outcome, execute

_TICK = 0.2
_KNOCK = 5.0


class RayEngine:
    """A Ray task per run. Ray starts a task again when its worker is killed; the run goes on from its checkpoint.

    Without an address Ray is started on this machine with `jobs` workers and ended again. With one, the cluster
    decides how many tasks it takes at a time, and `jobs` only limits them if it is given.
    """

    def __init__(self, jobs: int, limit: int | None, retries: int, address: str | None) -> None:
        self._ray = extra("ray", "ray")
        self._jobs, self._limit, self._retries, self._address = jobs, limit, retries, address
        self._joined = False
        _check_reachable(address)

    def __enter__(self) -> "RayEngine":
        if self._ray.is_initialized():  # the caller's own connection is used, and left open
            return self
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"address": self._address}
        if self._address is None:
            options = {"address": "local", "num_cpus": self._jobs, "include_dashboard": False}
            options["_node_ip_address"] = "127.0.0.1"
        try:
            self._ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise _no_answer(self._address or "this machine", reason) from None
        self._joined = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._joined:
            self._ray.shutdown()

    def run(self, jobs: list[Job], cost: Callable[[Job], float], stop: Callable[[], bool]) -> Iterator[Outcome | None]:
        """Outcomes as they come, and None a few times a second in between; after `stop` nothing new is started."""
        task = self._ray.remote(num_cpus=1, max_retries=self._retries)(execute)
        pending = sorted(jobs, key=cost)
        running: dict[Any, Job] = {}
        while (pending and not stop()) or running:
            while pending and not stop() and len(running) < (self._limit or len(jobs)):
                job = pending.pop()
                running[task.remote(job)] = job
            done, _ = self._ray.wait(list(running), num_returns=1, timeout=_TICK)
            for reference in done:
                yield self._outcome(reference, running.pop(reference))
            yield None

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:300]
            return Outcome(job.name, "failed", f"Ray gave it up after {self._retries} retries: {reason}")


def _check_reachable(address: str | None) -> None:
    """Knock at the port of a cluster: Ray itself would try for minutes before it gives up."""
    parts = re.fullmatch(r"(?:ray://)?(?P<host>[^:/]+):(?P<port>\d{1,5})", address or "")
    if parts is None:
        return
    try:
        socket.create_connection((parts["host"], int(parts["port"])), timeout=_KNOCK).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(str(address), str(error)) from None


def _no_answer(place: str, reason: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster answers at {place} ({reason}); start it there with `ray start --head` and give both the same "
        "RAY_AUTH_TOKEN_PATH, or leave --address away"
    )
