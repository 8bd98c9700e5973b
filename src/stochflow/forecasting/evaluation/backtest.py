"""Backtests on rolling origins: all methods forecast the same targets from the same data."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.datasets import SERIES, load_group, load_series
from stochflow.forecasting.data.series import Array, Mask
from stochflow.forecasting.evaluation.baselines import Baseline
from stochflow.forecasting.evaluation.scoring import LEVELS, SCORES, at_levels, distribution_scores, point_scores
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of

# fewest values before an origin
MIN_HISTORY = 48


@dataclass(frozen=True)
class Case:
    """One series on its regular grid.

    Attributes:
        name: of the series.
        freq: pandas alias.
        horizon: number of steps to forecast.
        times: every period of the frequency from first to last, [n].
        y: NaN where nothing was measured, [n].
    """

    name: str
    freq: str
    horizon: int
    times: pd.DatetimeIndex
    y: Array

    @property
    def seasonality(self) -> Seasonality:
        return seasonality_of(self.freq)

    @property
    def observed(self) -> Mask:
        """True where something was measured, [n]."""
        return np.isfinite(self.y)

    @property
    def filled(self) -> Array:
        """y with gaps interpolated linearly, at the end by the last value, [n]."""
        places = np.arange(len(self.y))
        if not self.observed.any():
            raise DataError(f"{self.name}: no value was measured in {len(self.y)} steps; start from a later origin")
        return np.interp(places, places[self.observed], self.y[self.observed])

    def before(self, origin: int) -> "Case":
        """The series before the index `origin` of the first value to forecast."""
        return replace(self, times=self.times[:origin], y=self.y[:origin])


def regular_case(rows: pd.DataFrame, freq: str, horizon: int) -> Case:
    """Rows of one series (`unique_id`, `ds`, `y`) on the grid of their frequency; absent periods become NaN."""
    name = str(rows["unique_id"].iloc[0])
    values = rows.set_index("ds")["y"]
    grid = pd.date_range(values.index[0], values.index[-1], freq=freq)
    strays = values.index.difference(grid)
    if len(strays) or values.index.has_duplicates:
        raise DataError(f"{name}: its times are not distinct periods of '{freq}'; resample the series or correct freq")
    return Case(name, freq, horizon, grid, values.reindex(grid).to_numpy(dtype=np.float64))


def case_of(name: str) -> Case:
    """A series that ships with the package, by name."""
    return regular_case(load_series(name), SERIES[name].freq, SERIES[name].horizon)


def cases_of(group: str) -> list[Case]:
    """All series of a group, in its order."""
    parts = load_group(group).groupby("unique_id", sort=False)
    return [regular_case(rows, SERIES[str(name)].freq, SERIES[str(name)].horizon) for name, rows in parts]


def origins(n: int, horizon: int, num: int, step: int, before: int | None = None) -> list[int]:
    """Up to `num` origins, rising by `step`; the last one's targets end with the series, or just before index `before`.

    An origin is the index of the first value to forecast. Those with fewer than `MIN_HISTORY` values before are left
    out.
    """
    if min(horizon, num, step) < 1:
        raise ConfigError(f"horizon {horizon}, num {num} and step {step} must be at least 1")
    last = (n if before is None else before) - horizon
    found = [last - step * back for back in reversed(range(num)) if last - step * back >= MIN_HISTORY]
    if not found:
        raise DataError(
            f"no origin leaves {MIN_HISTORY} values before and {horizon} after it; give a longer series or "
            "a shorter horizon"
        )
    return found


def block(case: Case, which: str, num: int = 10, step: int | None = None) -> list[int]:
    """Origins of the `final` block or of the `earlier` one, whose targets all lie before the final block's."""
    size, stride = len(case.y), step or max(case.horizon // 2, 1)
    final = origins(size, case.horizon, num, stride)
    if which not in ("final", "earlier"):
        raise ConfigError(f"unknown block '{which}'; choose final or earlier")
    return final if which == "final" else origins(size, case.horizon, num, stride, before=final[0])


@runtime_checkable
class FittedOnce(Protocol):
    """A forecaster that is fitted at the first origin of a series only.

    `quantiles` is then called at every origin, the first included, and len(y) is the origin.
    """

    def fit(self, past: Case) -> None:
        """Fit to the values before the first origin, len(past.y)."""
        ...


def backtest(
    case: Case, forecasters: Mapping[str, Baseline], places: Sequence[int], levels: Array = LEVELS
) -> pd.DataFrame:
    """One row per method and origin: series, method, origin, the scores, seconds_fit_predict.

    The methods take turns at each origin, so that the load of the machine affects them alike. The time of a
    `FittedOnce` forecaster's fit counts at the first origin.
    """
    rows, medians, means = [], [], []
    for number, origin in enumerate(places):
        past, truth = case.before(origin), case.y[origin : origin + case.horizon]
        steps = {
            "unique_id": case.name,
            "cutoff": origin - 1,
            "ds": np.arange(origin, origin + case.horizon),
            "y": truth,
        }
        middle, mean = pd.DataFrame(steps), pd.DataFrame(steps)
        for name, forecaster in forecasters.items():
            begun = time.perf_counter()
            if number == 0 and isinstance(forecaster, FittedOnce):
                forecaster.fit(past)
            q = forecaster.quantiles(past.filled, case.seasonality, case.horizon, levels, past.observed)
            seconds = time.perf_counter() - begun
            if q.shape != (len(levels), case.horizon) or not np.isfinite(q).all():
                raise DataError(
                    f"{name} answered {case.name} at origin {origin} with shape {q.shape} and "
                    f"{np.isnan(q).sum()} NaN, expected {(len(levels), case.horizon)} finite quantiles; mend or drop it"
                )
            middle[name], mean[name] = at_levels(q, levels, np.array([0.5]))[0], q.mean(axis=0)
            scores = distribution_scores(q, levels, truth)
            rows.append({"method": name, "cutoff": origin - 1, "seconds_fit_predict": seconds, **scores})
        medians.append(middle)
        means.append(mean)
    history = pd.DataFrame({"unique_id": case.name, "ds": np.arange(len(case.y)), "y": case.y})
    points = point_scores(pd.concat(medians), pd.concat(means), history, list(forecasters), case.seasonality.season)
    frame = pd.DataFrame(rows).merge(points, on=["method", "cutoff"], how="left")
    frame.insert(0, "series", case.name)
    frame.insert(2, "origin", frame.pop("cutoff") + 1)
    return frame[["series", "method", "origin", *SCORES, "seconds_fit_predict"]]


def summary(frame: pd.DataFrame, reference: str, score: str = "crps") -> pd.DataFrame:
    """One row per method: mean score per series relative to the reference's, and their aggregates.

    Columns: one per series, then `geometric_mean` of these ratios, `coverage_error` and `pit_coverage_error` (mean over
    series of |coverage of the 80 % interval − 0.80|), and `seconds` in all.
    """
    methods, series = frame["method"].unique().tolist(), frame["series"].unique().tolist()
    if reference not in methods:
        raise ConfigError(f"the reference {reference} was not run; choose one of: {', '.join(methods)}")
    mean = frame.groupby(["method", "series"])[[score, "covered_80", "pit_covered_80"]].mean()
    table = mean[score].unstack("series").loc[methods, series]
    # no ratio where the reference has no error
    table = table / table.loc[reference].replace(0.0, np.nan)
    error = (mean[["covered_80", "pit_covered_80"]] - 0.8).abs().groupby("method").mean()
    return table.assign(
        geometric_mean=np.exp(np.log(table).mean(axis=1)),
        coverage_error=error["covered_80"],
        pit_coverage_error=error["pit_covered_80"],
        seconds=frame.groupby("method")["seconds_fit_predict"].sum(),
    ).rename_axis(index=None, columns=None)
