"""How far, how fast and how large a process is."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_STATM = Path("/proc/self/statm")
_WINDOW = 60.0  # seconds that a rate is taken over
_TICK = 1.0


class Pace:
    """Time spent, and the rates of the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = self._now = clock()
        self._share = 0.0
        self._count = 0.0
        self._marks: deque[tuple[float, float, float]] = deque()

    def note(self, share: float, count: float) -> None:
        """Say what is done by now: a share of the whole, and a number of things."""
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
        """Things per second; None before anything can be said."""
        return self._speed(2, self._count)

    @property
    def left(self) -> float | None:
        """Seconds to go; None before anything can be said."""
        speed = self._speed(1, self._share)
        return (1.0 - self._share) / speed if speed else None

    def _speed(self, column: int, now: float) -> float | None:
        if not self._marks or self._now <= self._marks[0][0]:
            return None
        return (now - self._marks[0][column]) / (self._now - self._marks[0][0])


def resident_memory() -> int | None:
    """Bytes of memory that this process has now; where only its peak can be known, that; None where nothing can."""
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


def training_figures(latest: Mapping[str, Any], pace: Pace, counted: str) -> list[str]:
    """What a progress line says of a run: how fast, how large, and how good.

    Args:
        latest: the newest value of everything that was recorded.
        counted: `trajectories` or `oracle_calls`, whichever the pace counts.
    """
    name = counted.replace("_", " ")
    parts = [f"{int(latest[counted]):,} {name}", *pace_figures(pace)]
    parts += [f"loss {latest['loss']:.4f}"] if "loss" in latest else []  # chains take no gradient steps
    parts += [f"E[score] {latest['mean_score']:.3f}"] if "mean_score" in latest else []
    parts += [f"KL {latest['kl']:.4f}"] if "kl" in latest else []
    parts += [f"regret {latest['regret']:.4f}"] if "regret" in latest else []
    return parts


def pace_figures(pace: Pace, name: str = "") -> list[str]:
    """The rate and the memory, as far as they are known.

    Args:
        name: of the things that the pace counts, where it is not said elsewhere.
    """
    parts = []
    if pace.rate is not None:
        number = f"{pace.rate:,.0f}" if pace.rate >= 10 else f"{pace.rate:.2g}"
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
