"""Runs in processes of this machine, one thread each; the longest first, so that no core waits at the end."""

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from stochflow.experiments.sweep.worker import Job, Outcome, execute

_TICK = 0.2
_GRACE = 5.0


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection
    job: Job | None = None


class LocalEngine:
    """Spawned worker processes. A worker that is killed is replaced, and its run goes on from its checkpoint."""

    def __init__(self, jobs: int, retries: int) -> None:
        self._jobs, self._retries = jobs, retries
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.job is None:
                worker.connection.close()  # the end of its work: it leaves by itself
            else:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(_GRACE)
        self._workers.clear()

    def run(self, jobs: list[Job], cost: Callable[[Job], float], stop: Callable[[], bool]) -> Iterator[Outcome | None]:
        """Outcomes as they come, and None a few times a second in between; after `stop` nothing new is started."""
        pending, deaths = list(jobs), Counter[str]()
        while (pending and not stop()) or self._busy():
            while pending and not stop() and len(self._busy()) < self._jobs:
                job = max(pending, key=cost)
                pending.remove(job)
                self._give(job)
            for worker, job in self._answering():
                outcome = self._answer(worker, job)
                if outcome.status != "interrupted" or stop():
                    yield outcome
                    continue
                # somebody ended the worker, not us
                deaths[job.name] += 1
                if deaths[job.name] <= self._retries:
                    pending.append(job)
                else:
                    yield Outcome(job.name, "failed", f"its worker process was ended {deaths[job.name]} times")
            yield None

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _answering(self) -> list[tuple[_Worker, Job]]:
        """Workers that have answered or died, with what they were at."""
        busy = {worker.connection: (worker, worker.job) for worker in self._workers if worker.job is not None}
        return [busy[each] for each in wait(list(busy), _TICK) if isinstance(each, Connection)]

    def _answer(self, worker: _Worker, job: Job) -> Outcome:
        worker.job = None
        try:
            return worker.connection.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            worker.connection.close()
            self._workers.remove(worker)
            return Outcome(job.name, "interrupted")

    def _give(self, job: Job) -> None:
        worker = next((worker for worker in self._workers if worker.job is None), None) or self._hire()
        worker.job = job
        worker.connection.send(job)

    def _hire(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there,), daemon=True)
        resource_tracker.ensure_running()  # its start would open the mask again
        # inherited: a Ctrl-C that comes before the worker can ignore it; ours waits and is heard afterwards
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()  # only the worker holds its end: when it dies, we hear of it
        self._workers.append(_Worker(process, here))
        return self._workers[-1]


def _serve(connection: Connection) -> None:
    """The life of a worker: take a job, do it, answer, until nobody asks any more.

    Ctrl-C and a terminal that closes reach the whole group, but a worker is born deaf to them: the parent decides what
    they mean.
    """
    threading.Thread(target=_follow_parent, daemon=True).start()
    torch.set_num_threads(1)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(execute(job))


def _follow_parent() -> None:
    """End with the parent, even if it was killed: nobody else would know of this worker."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
