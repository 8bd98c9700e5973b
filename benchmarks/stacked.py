"""What five stacked seeds cost against one: CPU time of a training step, alternating in one process.

python -m benchmarks.stacked [--methods gfn-tb,sgfn-db,sgfn-kl-trajectory] [--batch 16] [--seeds 5]
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import pandas as pd

from benchmarks.sweep import RESULTS, publish
from stochflow.api import resolve_config
from stochflow.experiment import build, torch_threads
from stochflow.stacking.trainer import StackedTrainer
from stochflow.trainer import Trainer

METHODS = "gfn-tb,sgfn-db,sgfn-kl-trajectory"
_BUDGET = 2000  # steps of the run that is timed near its beginning


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--methods", default=METHODS)
    options.add_argument("--batch", type=int, default=16)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--steps", type=int, default=10, help="steps per round")
    options.add_argument("--warmup", type=int, default=50, help="steps before the clock starts")
    given = options.parse_args()
    with torch_threads(1):
        measure(given)


def measure(given: argparse.Namespace) -> None:
    rows = []
    for method in given.methods.split(","):
        alone = trainer(method, given.batch, 0)
        together = StackedTrainer([trainer(method, given.batch, seed) for seed in range(given.seeds)])
        for _ in range(given.warmup):
            alone.train_step()
            together.train_step()
        pairs = []
        for number in range(given.rounds):
            # in turns and in changing order: what else the machine does meets both alike
            first, second = (alone.train_step, together.train_step)[:: 1 if number % 2 == 0 else -1]
            times = cpu_milliseconds(first, given.steps), cpu_milliseconds(second, given.steps)
            pairs.append(times[:: 1 if number % 2 == 0 else -1])
        rows.append(row(method, pairs))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    title = (
        f"{given.seeds} stacked seeds against one on TFBind8, batch {given.batch}, one thread, CPU ms per step: "
        f"median of {given.rounds} rounds of {given.steps} steps after {given.warmup}; the ratio with its quartiles"
    )
    RESULTS.mkdir(exist_ok=True)
    frame = pd.DataFrame(rows)
    frame.to_csv(RESULTS / "stacked.csv", index=False)
    publish(frame, "stacked", title)


def trainer(method: str, batch_size: int, seed: int) -> Trainer:
    """A run at the method's own settings but for the batch."""
    settings = {"method": method, "seed": seed, "optimiser": {"batch_size": batch_size}, "budget": {"steps": _BUDGET}}
    return build(resolve_config([settings])).trainer


def cpu_milliseconds(step: Callable[[], object], num: int) -> float:
    """CPU time of one step, the mean of so many."""
    started = time.process_time()
    for _ in range(num):
        step()
    return 1e3 * (time.process_time() - started) / num


def row(method: str, pairs: list[tuple[float, ...]]) -> dict[str, str | float]:
    """Medians over rounds, and the ratio with its quartiles."""
    ratios = pd.Series([together / alone for alone, together in pairs])
    return {
        "method": method,
        "one": round(median(alone for alone, _ in pairs), 2),
        "stacked": round(median(together for _, together in pairs), 2),
        "ratio": round(float(ratios.median()), 2),
        "low": round(float(ratios.quantile(0.25)), 2),
        "high": round(float(ratios.quantile(0.75)), 2),
    }


if __name__ == "__main__":
    main()
