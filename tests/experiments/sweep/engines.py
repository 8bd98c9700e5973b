"""Engines for tests that are not about how worker processes start: none at all, or workers that are forked."""

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stochflow.experiments.sweep import local
from stochflow.experiments.sweep.worker import Job, Outcome, execute


class Here:
    """An engine without processes."""

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, jobs: list[Job], cost: Callable[[Job], float], stop: Callable[[], bool]) -> Iterator[Outcome]:
        return map(execute, jobs)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers of the local engine have nothing to import; they end with the test."""
    context: Any = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: context)
    monkeypatch.setattr(local, "_GRACE", 0.0)  # they inherit the end of the pipe whose closing would send them home
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
