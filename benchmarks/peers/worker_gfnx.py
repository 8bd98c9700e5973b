"""gfnx's worker: trajectory balance on its tasks, compiled as one loop; timed, or with exact TV at checkpoints."""

import argparse
import os
from pathlib import Path

import jax
import numpy as np

from benchmarks.peers.clock import Stopwatch, say
from benchmarks.peers.gfnx_training import Training
from benchmarks.peers.reward import read_log_rewards, total_variation
from benchmarks.peers.settings import GFNX_BATCH, GFNX_CHECKPOINTS, GROUNDS


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, default=GFNX_BATCH)
    options.add_argument("--iterations", type=int)
    options.add_argument("--warm-up", type=int, default=0)
    options.add_argument("--ground", choices=GROUNDS, default="tfbind8")
    options.add_argument("--curve", action="store_true")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--rewards", type=Path, required=True)
    options.add_argument("--sources", type=Path, required=True, help="its unpacked source distribution")
    given = options.parse_args()
    log_rewards = read_log_rewards(given.rewards)
    # gfnx looks for its table below the working directory
    os.chdir(given.sources)
    training = Training(given.batch, given.seed, given.ground, log_rewards)
    compiling = Stopwatch()
    with compiling:
        training.compile()
    fields = {"parameters": training.num_parameters, "compile_seconds": compiling.cpu}
    if given.curve:
        draw_curve(training, log_rewards, fields)
    else:
        training.advance(given.warm_up)
        watch = Stopwatch()
        with watch:
            training.advance(given.iterations)
        say(iterations=given.iterations, **fields, **watch.per_iteration(given.iterations))


def draw_curve(training: Training, log_rewards: np.ndarray, fields: dict[str, float]) -> None:
    """Exact TV after each checkpoint, outside the clock."""
    watch = Stopwatch()
    for checkpoint in GFNX_CHECKPOINTS:
        with watch:
            training.advance(checkpoint - training.step)
        tv = total_variation(terminal_log_probs(training), log_rewards)
        say(iterations=training.step, trajectories=training.step * training.batch, **fields, **watch.seconds(), tv=tv)


def terminal_log_probs(training: Training) -> np.ndarray:
    """log P(x) of every sequence in lexicographic order: the tree level by level, float64, [K^L]."""
    log_probs = np.zeros(1)
    tokens = np.zeros((1, 0), dtype=np.int32)
    for _ in range(training.length):
        log_policy = np.asarray(jax.nn.log_softmax(training.logits(tokens)), dtype=np.float64)
        log_probs = (log_probs[:, None] + log_policy).reshape(-1)
        letters = np.tile(np.arange(log_policy.shape[1], dtype=np.int32), len(tokens))
        tokens = np.column_stack([np.repeat(tokens, log_policy.shape[1], axis=0), letters])
    return log_probs


if __name__ == "__main__":
    main()
