"""Client of a score function on a Ray cluster, where worker processes call it as they would on this machine."""

import functools
import os
import sys
from typing import Any

from stochflow.core.errors import OracleError
from stochflow.core.ray_cluster import RayCluster, one_line
from stochflow.environments.sequences.oracles.clients import START_LIMIT, OracleClient, Reply, WorkerClient


class RayClient(OracleClient):
    """Calls a function by name, each batch of designs in a task of a Ray cluster.

    A call that fails, and a machine that is lost, are answers like any other: only the oracle makes calls again, Ray
    itself does not.

    Args:
        timeout: seconds that a call may take, from when the cluster begins it.
        cluster: connection that clients share.
    """

    def __init__(self, name: str, timeout: float | None, cluster: RayCluster) -> None:
        self._name, self._timeout, self._cluster = name, timeout, cluster
        self._running: Any = None

    def connect(self) -> None:
        self._cluster.connect()

    def start(self) -> None:
        self.connect()
        reply = self._call(None, START_LIMIT)
        if "problem" in reply:
            raise OracleError(f"the oracle '{self._name}' cannot be used: {reply['problem']}; correct the cluster")

    def score(self, designs: list[str]) -> Reply:
        return self._call(designs, None)

    def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._cluster.ray.cancel(running, force=True)

    def _call(self, designs: list[str] | None, limit: float | None) -> Reply:
        """The reply of the cluster within `limit` seconds; an OracleError where the function cannot be imported."""
        ray = self._cluster.ray
        # machines have their share of the calls, wherever there is room for them
        task = self._cluster.task(call, num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")
        try:
            self._running = running = task.remote(self._name, self._timeout, os.getcwd(), tuple(sys.path), designs)
            reply: Reply = ray.get(running, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self.close()
            return {"problem": f"the Ray cluster gave no answer within {limit:g} s"}
        except ray.exceptions.RayTaskError as error:  # its message is a traceback
            return {"problem": f"its Ray worker failed ({str(error).strip().splitlines()[-1]})"}
        except (ray.exceptions.RayError, ConnectionError) as error:
            return {"problem": f"its Ray worker failed ({type(error).__name__}: {one_line(error)})"}
        finally:
            self._running = None
        if "refused" in reply:
            raise OracleError(reply["refused"])
        return reply


def call(name: str, timeout: float | None, folder: str, path: tuple[str, ...], designs: list[str] | None) -> Reply:
    """What a task of the cluster does: ask the worker process of this machine's worker, which stays for the next task.

    Args:
        folder, path: of the process that asks for scores.
        designs: None only to see whether the function can be called.
    """
    client = _client(name, timeout, folder, path)
    try:
        client.start()
        return {"scores": []} if designs is None else client.score(designs)
    except OracleError as error:
        return {"refused": str(error)}


@functools.cache
def _client(name: str, timeout: float | None, folder: str, path: tuple[str, ...]) -> WorkerClient:
    return WorkerClient(name, timeout, folder, path)
