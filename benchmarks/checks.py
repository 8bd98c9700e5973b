"""What the checks for values that are not finite cost: `python -m benchmarks.checks`.

Their CPU time is added up inside of a run and divided by that of the steps around them, so that whatever slows the
machine down slows both. What would be computed without any check is not counted: the loss terms as numbers, for the
log, and the norm of the gradient, for the clip.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from stochflow.config.layers import resolve
from stochflow.config.methods import method_settings
from stochflow.experiments.build import build
from stochflow.experiments.torch_settings import torch_threads
from stochflow.training import dynamics_fitter, optimizer
from stochflow.training.optimizer import FlatAdam

METHODS = ("gfn-tb", "sgfn-db", "sgfn-kl-trajectory", "sgfn-kl-gamma", "sgfn-kl", "edb")
_WINDOW = 5
_SECONDS = 5.0


class Clock:
    """Adds up the CPU time of calls, without what it takes to look at the clock."""

    def __init__(self) -> None:
        self.spent = self.calls = 0
        self._inside = False
        self.own = self._own()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self._inside:  # one check calls another one
                return function(*arguments)
            self._inside = True
            started = time.thread_time_ns()
            found = function(*arguments)
            self.spent += time.thread_time_ns() - started
            self._inside = False
            self.calls += 1
            return found

        return call

    @property
    def net(self) -> float:
        """Nanoseconds."""
        return self.spent - self.calls * self.own

    def restart(self) -> None:
        self.spent = self.calls = 0

    def _own(self) -> float:
        """What a call of nothing seems to take, in nanoseconds."""
        nothing, found = self.timed(lambda terms: None), []
        for _ in range(200):
            self.restart()
            for _ in range(100):
                nothing({})
            found.append(self.spent / self.calls)
        self.restart()
        return statistics.median(found)


def main() -> None:
    print("method, batch, steps, CPU µs of checks per step, share of a step in % (median of windows, quartiles)")
    for method in METHODS:
        for size in (16, 256):
            times, shares = measured(method, size)
            low, middle, high = (100.0 * share for share in statistics.quantiles(shares, n=4))
            steps = _WINDOW * len(shares)
            print(
                f"{method}, {size}, {steps}, {statistics.median(times):.1f}, {middle:.2f} ({low:.2f}–{high:.2f})",
                flush=True,
            )


def measured(method: str, size: int) -> tuple[list[float], list[float]]:
    """Of every window of steps: microseconds of checks per step, and their share of the CPU time."""
    config = resolve(
        [method_settings(method), {"method": method, "optimiser": {"batch_size": size}, "budget": {"steps": 10**5}}]
    )
    loop, clock = build(config).trainer, Clock()
    times, shares, end = [], [], time.monotonic() + _SECONDS
    with torch_threads(1), watched(clock):
        for number in range(10**6):
            clock.restart()
            started = time.thread_time_ns()
            for _ in range(_WINDOW):
                loop.train_step()
            total = time.thread_time_ns() - started - clock.calls * clock.own
            if number:  # the first steps are slower
                times.append(clock.net / _WINDOW / 1000.0)
                shares.append(clock.net / total)
            if time.monotonic() > end and len(shares) >= 4:
                break
    return times, shares


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Every check is timed."""
    with (
        mock.patch.object(optimizer, "finite_numbers", clock.timed(optimizer.finite_numbers)),
        mock.patch.object(dynamics_fitter, "finite_numbers", clock.timed(dynamics_fitter.finite_numbers)),
        mock.patch.object(FlatAdam, "require_finite", clock.timed(FlatAdam.require_finite)),
    ):
        yield


if __name__ == "__main__":
    main()
