"""What the checks for values that are not finite cost: `python -m benchmarks.checks`.

Steps with and without them take turns in one process; the ratio of CPU times is what counts.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stochflow.config import resolve
from stochflow.experiment import build, torch_threads
from stochflow.methods import method_settings

METHODS = ("gfn-tb", "sgfn-db", "sgfn-kl-trajectory", "sgfn-kl")
_WINDOW = 20
_WINDOWS = 30


def main() -> None:
    print("method, batch, CPU time with checks / without (median of pairs, quartiles)")
    for method in METHODS:
        for size in (16, 256):
            ratios = measured(method, size)
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{method}, {size}, {middle:.3f} ({low:.3f}–{high:.3f})", flush=True)


def measured(method: str, size: int) -> list[float]:
    """Ratio of CPU times of neighbouring windows of steps, with checks over without."""
    config = resolve(
        [method_settings(method), {"method": method, "optimiser": {"batch_size": size}, "budget": {"steps": 10**6}}]
    )
    trainer = build(config).trainer
    ratios = []
    with torch_threads(1):
        window(trainer.train_step)
        for _ in range(_WINDOWS):
            checked = window(trainer.train_step)
            with unchecked(type(trainer.descent)):
                ratios.append(checked / window(trainer.train_step))
    return ratios


@contextmanager
def unchecked(descent: type) -> Iterator[None]:
    """Every number is taken for finite, at no cost: a mock would cost more than what it replaces."""
    check, is_finite = descent.require_finite, math.isfinite
    descent.require_finite, math.isfinite = (lambda self: None), (lambda value: True)
    try:
        yield
    finally:
        descent.require_finite, math.isfinite = check, is_finite


def window(step: Callable[[], object]) -> float:
    started = time.process_time()
    for _ in range(_WINDOW):
        step()
    return time.process_time() - started


if __name__ == "__main__":
    main()
