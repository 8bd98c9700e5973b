"""Time in steps: the grid of a frequency, or elapsed time in median gaps where there is none."""

import math
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.series import Array
from stochflow.forecasting.data.split import show_time
from stochflow.forecasting.model.seasonality import offset_of, step_of

T = TypeVar("T", str, int)
_CHUNK = 10
_NUM_CHUNKS = 20
# a grid that is emptier than this is no grid
_MIN_PRESENT = 0.5
# more steps than this, and this many per row, are a mistyped date or the wrong frequency
_MANY_STEPS = 10_000
_MANY_STEPS_PER_ROW = 100
_LAST_YEAR = 9999


@dataclass(frozen=True)
class Timeline:
    """What one step is and where counting starts.

    Attributes:
        dates: True for dates, False for numbers.
        regular: True when every series lies on a grid of equal steps.
        freq: pandas alias of the grid; None when the timestamps are irregular or numbers without seasons.
        step: of the grid, or the median gap, in seconds or in the numbers' own unit.
        origin: the earliest time of training, ISO 8601 or a number; phase zero of every series.
    """

    dates: bool
    regular: bool
    freq: str | None
    step: float
    origin: str | float

    def check(self) -> None:
        """Raise a ValueError unless origin, step and frequency can be read: a timeline may come from a file."""
        origin = pd.Timestamp(self.origin) if self.dates else float(self.origin)
        if pd.isna(origin) or not 0.0 < self.step < math.inf:
            raise ValueError("a timeline without an origin or a step")
        if self.dates and self.freq is not None:
            pd.tseries.frequencies.to_offset(self.freq)

    def grid(self, uid: str, times: pd.Index) -> pd.Index:
        """Every step from the first time to the last, [n]; irregular times as they are. Times must be in order."""
        self._require_kind(uid, times)
        if not self.regular:
            return times
        num_steps = self._elapsed(times[-1] - times[0]) / self.step
        if num_steps > max(_MANY_STEPS, _MANY_STEPS_PER_ROW * len(times)):
            raise DataError(
                f"series '{uid}': {show_time(times[0])} to {show_time(times[-1])} are {num_steps:.0f} steps "
                f"{self._grid_name}, for {len(times)} rows; check the first and last timestamp or give a longer freq"
            )
        if isinstance(times, pd.DatetimeIndex):
            grid: pd.Index = pd.date_range(times[0], times[-1], freq=self.freq)
        else:
            grid = pd.Index(np.arange(times[0], times[-1] + 1, int(self.step)))
        off = ~times.isin(grid)
        if off.any():
            raise DataError(
                f"series '{uid}': {show_time(times[int(np.argmax(off))])} is not {self._grid_name}; "
                "correct the timestamp or give the freq that the series has"
            )
        gap = np.diff(grid.get_indexer(times)).min(initial=len(grid))
        if gap > 1 and len(times) > 2:  # years on a grid of months would be interpolated for eleven twelfths
            raise DataError(
                f"series '{uid}': no two rows are one step apart {self._grid_name}, the closest are {gap}; "
                "give the freq that the series has, or fit it apart from the others"
            )
        return grid

    def phases(self, times: pd.Index) -> Array:
        """Steps since the origin, [n]; `times` are consecutive on a regular grid."""
        origin = self._origin_like(times)
        if not self.regular:
            return _seconds((times - origin).to_numpy()) / self.step
        return self._steps(origin, times[0]) + np.arange(len(times), dtype=np.float64)

    def ahead(self, uid: str, times: pd.Index, horizon: int) -> pd.Index:
        """The next times after the last one, [horizon]; raises a DataError beyond the year 9999 or 64 bits."""
        too_far = DataError(
            f"series '{uid}': {horizon} steps after {show_time(times[-1])} are later than any time that can be "
            "written; shorten the horizon"
        )
        try:
            ahead = self._ahead(times, horizon)
        except (OverflowError, ValueError):  # the latter: pandas' OutOfBoundsDatetime
            raise too_far from None
        if len(ahead) < horizon or (isinstance(ahead, pd.DatetimeIndex) and ahead[-1].year > _LAST_YEAR):
            raise too_far
        return ahead

    def _ahead(self, times: pd.Index, horizon: int) -> pd.Index:
        if not isinstance(times, pd.DatetimeIndex):
            if times.dtype.kind in "iu" and int(times[-1]) + horizon * int(self.step) >= 2**63:
                raise OverflowError
            return pd.Index(times[-1] + (np.arange(1, horizon + 1) * self.step).astype(times.to_numpy().dtype))
        if self.regular:
            return pd.date_range(times[-1], periods=horizon + 1, freq=self.freq)[1:]
        return pd.DatetimeIndex(
            [times[-1] + number * pd.Timedelta(seconds=self.step) for number in range(1, horizon + 1)]
        )

    @property
    def _grid_name(self) -> str:
        return f"on the grid of freq '{self.freq}'" if self.dates else f"on the grid of steps of {self.step:g}"

    def _require_kind(self, uid: str, times: pd.Index) -> None:
        dates = isinstance(times, pd.DatetimeIndex)
        kinds = {True: "dates", False: "numbers"}
        if dates != self.dates:
            raise DataError(
                f"series '{uid}': the times are {kinds[dates]}, in training they were {kinds[self.dates]}; "
                "give the same kind"
            )
        aware = isinstance(times, pd.DatetimeIndex) and times.tz is not None
        if dates and aware != (pd.Timestamp(self.origin).tz is not None):
            raise DataError(
                f"series '{uid}': only one of the training times and these has a time zone; give both or none one"
            )

    def _origin_like(self, times: pd.Index) -> Any:
        if not isinstance(times, pd.DatetimeIndex):
            return float(self.origin)
        origin = pd.Timestamp(self.origin)
        return origin if times.tz is None else origin.tz_convert(times.tz)

    def _steps(self, origin: Any, first: Any) -> float:
        """Steps of the grid from the origin to a time on it, negative before."""
        if isinstance(origin, pd.Timestamp):
            offset = pd.tseries.frequencies.to_offset(self.freq)
            if not isinstance(offset, pd.offsets.Tick):  # months and the like differ in length
                early, late = min(origin, first), max(origin, first)
                count = len(pd.date_range(early, late, freq=offset)) - 1
                return float(count if first >= origin else -count)
        return self._elapsed(first - origin) / self.step

    def _elapsed(self, span: Any) -> float:
        return span.total_seconds() if self.dates else float(span)


def fit_timeline(all_times: list[pd.Index], freq: str | None) -> Timeline:
    """The frequency that was given or that most series have, else the median gap of all; times are in order."""
    first = min(times[0] for times in all_times)
    if isinstance(all_times[0], pd.DatetimeIndex):
        freq = freq or _most_common([infer_freq(times) for times in all_times if isinstance(times, pd.DatetimeIndex)])
        if freq is None:
            return Timeline(True, False, None, _median_gap(all_times), first.isoformat())
        offset = offset_of(freq)
        try:
            ticks = pd.date_range(first, periods=13, freq=offset)
        except (OverflowError, ValueError):  # the latter: pandas' OutOfBoundsDatetime
            raise ConfigError(
                f"steps of freq '{freq:.40}' lead beyond any date that can be written; give a shorter freq"
            ) from None
        return Timeline(True, True, freq, (ticks[-1] - ticks[0]).total_seconds() / 12, ticks[0].isoformat())
    given = step_of(freq)
    if given is not None:
        return Timeline(False, True, None, float(given), float(first))
    step = _most_common([infer_step(times) for times in all_times])
    if step is not None:
        # an alias beside integers says what a step means: its seasons are used
        return Timeline(False, True, freq, float(step), float(first))
    gap = _median_gap(all_times)
    whole = all(times.dtype.kind in "iu" for times in all_times)
    return Timeline(False, False, None, max(1.0, float(round(gap))) if whole else gap, float(first))


def infer_freq(times: pd.DatetimeIndex) -> str | None:
    """The pandas alias on whose grid all times lie, with gaps at most as long as the rest; None if there is none."""
    if len(times) < 3:
        return None
    freq = _alias(times)
    if freq is not None:
        return freq
    starts = range(0, len(times) - _CHUNK + 1, _CHUNK)
    candidates = {_alias(times[start : start + _CHUNK]) for start in starts[:_NUM_CHUNKS]}
    for candidate in sorted(name for name in candidates if name):
        offset = pd.tseries.frequencies.to_offset(candidate)
        step = pd.date_range(times[0], periods=2, freq=offset)
        if (times[-1] - times[0]) / (step[1] - step[0]) > 4 * len(times):
            continue
        grid = pd.date_range(times[0], times[-1], freq=offset)
        if times.isin(grid).all() and len(times) >= _MIN_PRESENT * len(grid):
            return candidate
    return None


def _alias(times: pd.DatetimeIndex) -> str | None:
    with warnings.catch_warnings():  # pandas 3.1 announces that an offset will come back instead of its name
        warnings.simplefilter("ignore")
        found = pd.infer_freq(times)
    return getattr(found, "freqstr", found)


def infer_step(times: pd.Index) -> int | None:
    """The step on whose grid all integers lie, gaps at most as long as the rest; None if there is none."""
    if len(times) < 2 or times.dtype.kind not in "iu":
        return None
    gaps = np.diff(times.to_numpy())
    step = int(np.gcd.reduce(gaps))
    return step if len(times) >= _MIN_PRESENT * ((times[-1] - times[0]) / step + 1) else None


def _most_common(found: list[T | None]) -> T | None:
    return Counter(found).most_common(1)[0][0]


def _median_gap(all_times: list[pd.Index]) -> float:
    # without their zone: numpy knows none
    plain = [
        times.tz_convert(None) if isinstance(times, pd.DatetimeIndex) and times.tz else times for times in all_times
    ]
    gaps = [np.diff(times.to_numpy()) for times in plain if len(times) > 1]
    if not gaps:
        return 1.0
    return float(np.median(_seconds(np.concatenate(gaps))))


def _seconds(spans: NDArray[Any]) -> Array:
    """Spans of time in seconds, numbers as they are, [n]."""
    return spans / np.timedelta64(1, "s") if spans.dtype.kind == "m" else spans.astype(np.float64)
