"""What a worker needs in any interpreter: a stopwatch, and one line of JSON per figure."""

import json
import time
from types import TracebackType
from typing import Any


class Stopwatch:
    """CPU seconds of all threads of this process, and seconds on the wall, summed over the blocks it was held for."""

    def __init__(self) -> None:
        self.cpu, self.wall = 0.0, 0.0

    def __enter__(self) -> "Stopwatch":
        self._started = time.process_time(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cpu += time.process_time() - self._started[0]
        self.wall += time.perf_counter() - self._started[1]

    def per_iteration(self, iterations: int) -> dict[str, float]:
        """Milliseconds of each kind."""
        return {"cpu_ms": 1e3 * self.cpu / iterations, "wall_ms": 1e3 * self.wall / iterations}

    def seconds(self) -> dict[str, float]:
        return {"cpu_seconds": self.cpu, "wall_seconds": self.wall}


def say(**row: Any) -> None:
    """One line of JSON for whoever started this worker."""
    print(json.dumps(row), flush=True)
