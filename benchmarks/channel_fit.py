"""How well channels are fitted, and how fast: `python -m benchmarks.channel_fit`.

How often matrices by position are chosen with and without drift, how many 95 % intervals cover the true probability,
and the seconds and memory that a million pairs take. What is printed is kept in benchmarks/results/channel_fit.txt.
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stochflow.environments.channel_fit import fit_channel
from stochflow.environments.channels import Channel, positional
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")
MATRIX = torch.tensor(
    [[0.96, 0.01, 0.025, 0.005], [0.002, 0.97, 0.008, 0.02], [0.06, 0.01, 0.92, 0.01], [0.001, 0.03, 0.001, 0.968]],
    dtype=torch.float64,
)
LENGTH = 8
SIZES = (100, 1000, 5000)
DRIFTS = {1.0: 200, 1.3: 40, 2.0: 40, 4.0: 40}  # how much more frequent errors are at the end, and fits
MILLION, READ_LENGTH, CHUNK = 1_000_000, 100, 2_000


def drifting(last: float, length: int = LENGTH) -> Channel:
    """The matrix with errors that become `last` times as frequent toward the end."""
    identity = torch.eye(4, dtype=torch.float64)
    return positional(identity + torch.linspace(1.0, last, length)[:, None, None] * (MATRIX - identity))


def reads(channel: Channel, num: int, length: int, generator: torch.Generator) -> pd.DataFrame:
    """Random designs and what the channel makes of them."""
    intended = torch.randint(4, (num, length), generator=generator)
    columns = [channel.sample(intended[:, position], position, generator) for position in range(length)]
    return pd.DataFrame({"intended": strings(intended), "observed": strings(torch.stack(columns, dim=1))})


def strings(tokens: Tensor) -> list[str]:
    width = tokens.shape[1]
    text = np.frombuffer(DNA.letters.encode(), dtype=np.uint8)[tokens.numpy()].tobytes().decode()
    return [text[start : start + width] for start in range(0, len(text), width)]


def choices(generator: torch.Generator) -> None:
    """Print how often matrices by position are chosen, and how many intervals of fits without drift cover."""
    covered = num_intervals = 0
    for num in SIZES:
        shares = []
        for last, num_fits in DRIFTS.items():
            chosen = 0
            for _ in range(num_fits):
                frame = reads(drifting(last), num, LENGTH, generator)
                chosen += fit_channel(frame).model == "position"
                if last == 1.0:
                    found = fit_channel(frame, model="global")
                    inside = (found.lower[0] <= MATRIX.numpy()) & (found.upper[0] >= MATRIX.numpy())
                    covered, num_intervals = covered + int(inside.sum()), num_intervals + inside.size
            shares.append(f"{chosen}/{num_fits} at drift {last:g}")
        print(f"{num} pairs of {LENGTH} letters: positions chosen {', '.join(shares)}", flush=True)
    print(f"95 % intervals: {covered} of {num_intervals} cover the truth ({covered / num_intervals:.2%})")


def speed(generator: torch.Generator) -> None:
    """Print what a million pairs take."""
    with tempfile.TemporaryDirectory() as folder:
        path, channel = Path(folder) / "pairs.csv", drifting(2.0, READ_LENGTH)
        for start in range(0, MILLION, CHUNK):
            frame = reads(channel, CHUNK, READ_LENGTH, generator)
            frame.to_csv(path, mode="a", header=start == 0, index=False)
        before, started, cpu = _peak(), time.perf_counter(), time.process_time()
        fit_channel(path)
        took = f"{time.process_time() - cpu:.1f} s of CPU ({time.perf_counter() - started:.1f} s)"
    print(f"{MILLION:,} pairs of {READ_LENGTH} letters: {took}, {_peak() - before:.0f} MB more at the peak")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    stream = torch.Generator().manual_seed(0)
    speed(stream)
    choices(stream)
