"""How well channels are fitted, and how fast: `python -m benchmarks.channel_fit`.

How often matrices by position or context are chosen where errors depend on them and where not, how many 95 % intervals
cover the true probability, of deletions and duplications as well, and the seconds and memory that a million pairs take.
What is printed is kept in benchmarks/results/channel_fit.txt; `edits` and `contexts` as an argument repeat that part.
"""

import resource
import sys
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
FITS = 200
# substitutions, deletions and duplications per letter: as good arrays make, as bad ones do, and worse
EDITS = ((0.01, 0.002, 0.0005), (0.01, 0.005, 0.001), (0.04, 0.01, 0.005))
EDITED_LENGTH, EDITED_READS = 50, (200, 1000, 5000)
CONTEXTS = {1.0: 200, 1.5: 40, 3.0: 40}  # how much more frequent errors are after G, and fits
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


def edited(rates: tuple[float, float, float], num: int, generator: torch.Generator) -> pd.DataFrame:
    """Random designs with substitutions to any other letter, deletions and duplications."""
    errors, deletion, duplication = rates
    intended = torch.randint(4, (num, EDITED_LENGTH), generator=generator)
    channel = positional(torch.eye(4)[None].double() * (1 - 4 / 3 * errors) + errors / 3)
    observed = channel.sample(intended.flatten(), 0, generator).view_as(intended)
    chance = torch.rand(intended.shape, generator=generator, dtype=torch.float64)
    copies = 1 - (chance < deletion).long() + (chance > 1 - duplication).long()
    texts = [DNA.decode(row.repeat_interleave(number)[None])[0] for row, number in zip(observed, copies, strict=True)]
    return pd.DataFrame({"intended": strings(intended), "observed": texts})


def edits(generator: torch.Generator) -> None:
    """Print how many intervals of deletion, duplication and error rate cover the truth, and the mean estimates."""
    for rates in EDITS:
        for num in EDITED_READS:
            found = [fit_channel(edited(rates, num, generator), model="global") for _ in range(FITS)]
            each = {
                "errors": [tuple(float(part[0]) for part in fit.error_rates) for fit in found],
                "deletions": [fit.edits["deletion"][:3] for fit in found],
                "duplications": [fit.edits["duplication"][:3] for fit in found],
            }
            shown = []
            for (name, fits), truth in zip(each.items(), rates, strict=True):
                covered = sum(lower <= truth <= upper for _, lower, upper in fits)
                mean = sum(rate for rate, _, _ in fits) / FITS
                shown.append(f"{name} {truth:.2%}: {covered}/{FITS} cover, mean {mean:.4%}")
            print(f"{num} reads of {EDITED_LENGTH} letters: {'; '.join(shown)}", flush=True)


def contexts(generator: torch.Generator) -> None:
    """Print how often matrices by context are chosen, and how many of their intervals cover."""
    identity, covered, num_intervals = torch.eye(4, dtype=torch.float64), 0, 0
    for num in SIZES:
        shares = []
        for factor, num_fits in CONTEXTS.items():
            tables = torch.stack(
                [identity + (factor if before == 2 else 1.0) * (MATRIX - identity) for before in range(5)]
            )
            chosen = 0
            for _ in range(num_fits):
                frame = reads_in_context(tables, num, generator)
                chosen += fit_channel(frame).model == "context"
                if factor == max(CONTEXTS):
                    found = fit_channel(frame, model="context")
                    inside = (found.lower <= tables.numpy()) & (found.upper >= tables.numpy())
                    covered, num_intervals = covered + int(inside.sum()), num_intervals + inside.size
            shares.append(f"{chosen}/{num_fits} at {factor:g} times the errors after G")
        print(f"{num} pairs of {LENGTH} letters: contexts chosen {', '.join(shares)}", flush=True)
    print(f"95 % intervals by context: {covered} of {num_intervals} cover the truth ({covered / num_intervals:.2%})")


def reads_in_context(tables: Tensor, num: int, generator: torch.Generator) -> pd.DataFrame:
    """Random designs and what becomes of them where errors depend on the letter before; tables are [K + 1, K, K]."""
    intended = torch.randint(4, (num, LENGTH), generator=generator)
    before = torch.cat([torch.full((num, 1), 4), intended[:, :-1]], dim=1)
    cumulative = tables.cumsum(dim=-1)[before, intended]
    chance = torch.rand((num, LENGTH, 1), generator=generator, dtype=torch.float64)
    observed = (chance >= cumulative).sum(dim=-1).clamp_max(3)
    return pd.DataFrame({"intended": strings(intended), "observed": strings(observed)})


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
    parts = {"speed": speed, "choices": choices, "edits": edits, "contexts": contexts}
    for part in sys.argv[1:] or parts:
        parts[part](torch.Generator().manual_seed(0))
