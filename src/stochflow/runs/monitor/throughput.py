"""Progress of a process: elapsed and remaining time, throughput, resident memory."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_STATM = Path("/proc/self/statm")
_WINDOW = 60.0  # seconds over which the throughput is averaged
_TICK = 1.0


class Throughput:
    """Elapsed time, and throughput averaged over the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = self._now = clock()
        self._share = 0.0
        self._count = 0.0
        self._marks: deque[tuple[float, float, float]] = deque()

    def note(self, share: float, count: float) -> None:
        """Record the progress: the share of the work that is done, and how many items (trajectories, steps) that is."""
        self._now, self._share, self._count = self._clock(), share, count
        if not self._marks or self._now >= self._marks[-1][0] + _TICK:
            self._marks.append((self._now, share, count))
            while self._now - self._marks[0][0] > _WINDOW:
                self._marks.popleft()

    @property
    def elapsed(self) -> float:
        """Seconds of this session."""
        return self._now - self._started

    @property
    def rate(self) -> float | None:
        """Items per second; None until it can be estimated."""
        return self._speed(2, self._count)

    @property
    def left(self) -> float | None:
        """Estimated seconds to the end; None until it can be estimated."""
        speed = self._speed(1, self._share)
        return (1.0 - self._share) / speed if speed else None

    def _speed(self, column: int, now: float) -> float | None:
        if not self._marks or self._now <= self._marks[0][0]:
            return None
        return (now - self._marks[0][column]) / (self._now - self._marks[0][0])


def resident_memory() -> int | None:
    """Resident memory of this process in bytes, or its peak where only that is known; None where neither is."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def training_figures(latest: Mapping[str, Any], throughput: Throughput, counted: str) -> list[str]:
    """Parts of a progress line: count, throughput, memory, loss and the newest exact figures.

    Args:
        latest: the newest value of every metric.
        counted: `trajectories`, `oracle_calls` or `step`, whichever the throughput counts.
    """
    name = "steps" if counted == "step" else counted.replace("_", " ")
    parts = [f"{int(latest[counted]):,} {name}", *throughput_figures(throughput)]
    parts += [f"loss {latest['loss']:.4f}"] if "loss" in latest else []  # chains take no gradient steps
    parts += [f"E[score] {latest['mean_score']:.3f}"] if "mean_score" in latest else []
    parts += [f"KL {latest['kl']:.4f}"] if "kl" in latest else []
    parts += [f"regret {latest['regret']:.4f}"] if "regret" in latest else []
    parts += [f"J {latest['j']:.3f}"] if "j" in latest and "regret" not in latest else []
    return parts


def throughput_figures(throughput: Throughput, name: str = "") -> list[str]:
    """Throughput and resident memory as text, as far as they are known.

    Args:
        name: unit of the throughput, where the line does not name it elsewhere.
    """
    parts = []
    if throughput.rate is not None:
        number = f"{throughput.rate:,.0f}" if throughput.rate >= 10 else f"{throughput.rate:.2g}"
        parts.append(f"{number} {name}/s" if name else f"{number}/s")
    memory = resident_memory()
    return parts if memory is None else [*parts, size_text(memory)]


def time_text(seconds: float | None) -> str:
    """Hours, minutes and seconds as 1:02:03; -:--:-- where they are not known."""
    if seconds is None or seconds >= 1e8:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def size_text(num_bytes: int) -> str:
    """A size in whole megabytes, or in gigabytes with one decimal from 10 GB on."""
    megabytes = num_bytes / 1e6
    return f"{megabytes / 1e3:.1f} GB" if megabytes >= 1e4 else f"{megabytes:.0f} MB"
