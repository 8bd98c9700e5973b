"""Runs as tasks of a Ray cluster, each in its own run directory on storage that all machines share."""

from collections.abc import Callable, Iterator
from typing import Any

from stochflow.core.ray_cluster import RayCluster, one_line
from stochflow.experiments.sweep.worker import Job, Outcome, execute

_TICK = 0.2


class RayEngine:
    """A Ray task per run. Ray starts a task again when its worker is killed; the run goes on from its checkpoint.

    Without an address Ray is started on this machine with `jobs` workers and ended again. With one, the cluster
    decides how many tasks it takes at a time, and `jobs` only limits them if it is given.
    """

    def __init__(self, jobs: int, limit: int | None, retries: int, address: str | None) -> None:
        self._limit, self._retries = limit, retries
        self._cluster = RayCluster(jobs, address)
        self._cluster.check()

    def __enter__(self) -> "RayEngine":
        self._cluster.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def run(self, jobs: list[Job], cost: Callable[[Job], float], stop: Callable[[], bool]) -> Iterator[Outcome | None]:
        """Outcomes as they come, and None a few times a second in between; after `stop` nothing new is started."""
        task = self._cluster.task(execute, num_cpus=1, max_retries=self._retries)
        pending = sorted(jobs, key=cost)
        running: dict[Any, Job] = {}
        while (pending and not stop()) or running:
            while pending and not stop() and len(running) < (self._limit or len(jobs)):
                job = pending.pop()
                running[task.remote(job)] = job
            done, _ = self._cluster.ray.wait(list(running), num_returns=1, timeout=_TICK)
            for reference in done:
                yield self._outcome(reference, running.pop(reference))
            yield None

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        ray = self._cluster.ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayError as error:
            return Outcome(job.name, "failed", f"Ray gave it up after {self._retries} retries: {one_line(error)}")
