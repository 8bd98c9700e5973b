"""Encoder from long tables to series, fitted to the training table and applied to every later one."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.config import check_horizon
from stochflow.forecasting.data.columns import Columns, require_table
from stochflow.forecasting.data.features import Features, fit_features
from stochflow.forecasting.data.series import Array, Index, Mask, Series
from stochflow.forecasting.data.split import ONLY_SERIES, RawSeries, names_list, series_ids, show_time, split
from stochflow.forecasting.data.timeline import Timeline, fit_timeline
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of, step_of

# with fewer, intervals are too narrow: those of 80 % of a random walk cover 55 % at 3 values, 74 % at 8, 83 % at 16
MIN_OBSERVED = 8
# bound of |log(gap / median gap)|: a factor of 150
_LONGEST_LOG_GAP = 5.0


@dataclass(frozen=True)
class Panel:
    """Usable series in the order they appeared, their times by id, and a sentence for each unusable one by id."""

    series: list[Series]
    times: dict[str, pd.Index]
    problems: dict[str, str]


@dataclass(frozen=True)
class Encoder:
    """What was learned from the training table: timeline, seasonality, scales and categories of features.

    Columns of `Series.exogenous`, in this order: Fourier terms, the log of the gap since the last time (irregular
    timestamps only), features known in advance, numeric static features.
    """

    columns: Columns
    timeline: Timeline
    season_length: int | None
    features: Features

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        columns: Columns | None = None,
        freq: str | None = None,
        season_length: int | None = None,
    ) -> "Encoder":
        """Learn the frequency (unless given), the scales and the categories from a training table."""
        columns = Columns() if columns is None else columns
        if not isinstance(columns, Columns):
            raise ConfigError(
                f"columns is of type {type(columns).__name__}; give Columns(id=..., time=..., target=...)"
            )
        # refuse bad settings before reading data
        seasonality_of(freq if step_of(freq) is None else None, season_length)
        groups, problems = split(frame, columns)
        if not groups:
            raise DataError(f"no series can be used; {next(iter(problems.values()))}")
        _require_varying_past(frame, columns)
        timeline = fit_timeline([rows.times for rows in groups], freq)
        moving = fit_features(frame, (*columns.future, *columns.past), ())
        # a series counts once, however long it is
        ids = series_ids(frame, columns).to_numpy()
        static = fit_features(frame[list(columns.static)].groupby(ids, sort=False).first(), (), columns.static)
        features = Features({**moving.scales, **static.scales}, {**moving.categories, **static.categories})
        return cls(columns, timeline, season_length, features)

    @cached_property
    def seasonality(self) -> Seasonality:
        """Seasonality that the frequency and `season_length` imply."""
        return seasonality_of(self.timeline.freq, self.season_length)

    @property
    def known(self) -> tuple[int, int]:
        """First and last column of `Series.exogenous` that is a feature known in advance, as of a slice."""
        first = self.seasonality.fourier_terms(np.zeros(1)).shape[1] + (not self.timeline.regular)
        return first, first + sum(map(self._width, self.columns.future))

    @property
    def past_places(self) -> dict[str, list[int]]:
        """Columns of `Series.past` by the name of the feature."""
        ends = np.cumsum([0, *map(self._width, self.columns.past)]).tolist()
        return {name: list(range(*ends[number : number + 2])) for number, name in enumerate(self.columns.past)}

    @property
    def num_categories(self) -> list[int]:
        """Codes per categorical static column, the zero for an unknown category included; as long as Series.static."""
        return [len(self.features.categories[name]) + 1 for name in self._static_codes]

    def panel(self, frame: pd.DataFrame) -> Panel:
        """Every series of a table; what makes one unusable is said in `problems` and leaves the others alone."""
        groups, problems = split(frame, self.columns)
        panel, all_times = [], {}
        for rows in groups:
            try:
                series, times = self._series(rows)
            except DataError as error:
                problems[rows.uid] = str(error)
                continue
            panel.append(series)
            all_times[rows.uid] = times
        return Panel(panel, all_times, problems)

    def future(
        self, series: Series, times: pd.Index, horizon: int, future_frame: pd.DataFrame | None = None
    ) -> tuple[Array, pd.Index]:
        """What is known of the steps after `times`: rows of `exogenous`, [horizon, F], and times, [horizon].

        Irregular timestamps continue with the median gap unless `future_frame` gives them; features known in advance
        must be in `future_frame`. Rows and columns beyond what is needed are ignored.
        """
        check_horizon(horizon)
        given = self._rows_ahead(series.uid, future_frame)
        if given is not None and not self.timeline.regular:
            later = given.times[given.times > times[-1]]
            if len(later) < horizon:
                raise DataError(
                    f"series '{series.uid}': the future table has {len(later)} rows after {show_time(times[-1])}, "
                    f"the horizon is {horizon}; add the missing rows or shorten the horizon"
                )
            ahead = later[:horizon]
        else:
            ahead = self.timeline.ahead(series.uid, times, horizon)
        blocks = [self._calendar(self.timeline.phases(ahead), self.timeline.phases(times[-1:]))]
        if self.columns.future and given is not None:
            blocks.append(self._features_at(given, ahead))
        static = series.exogenous[:1, series.exogenous.shape[1] - len(self._static_numbers) :]
        blocks.append(np.repeat(static, horizon, axis=0))
        return np.concatenate(blocks, axis=1), ahead

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Encoder":
        """The encoder that `to_dict` wrote down, before or after a trip through JSON."""
        try:
            encoder = TypeAdapter(cls).validate_python(stored)
            encoder.timeline.check()
        except (TypeError, ValueError, OverflowError):  # pydantic's ValidationError is a ValueError
            raise DataError("the stored encoder is damaged; fit the forecaster again") from None
        return encoder

    def _width(self, name: str) -> int:
        """Number of columns that a feature becomes."""
        return 1 if name in self.features.scales else len(self.features.categories[name])

    @property
    def _static_numbers(self) -> list[str]:
        return [name for name in self.columns.static if name in self.features.scales]

    @property
    def _static_codes(self) -> list[str]:
        return [name for name in self.columns.static if name in self.features.categories]

    def _series(self, rows: RawSeries) -> tuple[Series, pd.Index]:
        uid = rows.uid
        first = _first_usable(rows, self.columns.target)
        rows = RawSeries(uid, rows.times[first:], rows.y[first:], rows.features.iloc[first:])
        times = self.timeline.grid(uid, rows.times)
        place = times.get_indexer(rows.times)
        y = np.full(len(times), np.nan)
        y[place] = rows.y
        observed = ~np.isnan(y)
        phases = self.timeline.phases(times)
        static = self._static_row(rows)
        known, past = (
            _spread(self.features.encode(uid, rows.features, names), place, len(times))
            for names in (self.columns.future, self.columns.past)
        )
        numbers = self.features.encode(uid, static, self._static_numbers)
        exogenous = [self._calendar(phases, phases[:1] - 1), known, np.repeat(numbers, len(times), axis=0)]
        codes = [self.features.codes(static[name])[0] for name in self._static_codes]
        series = Series(
            uid,
            fill_gaps(y, observed, phases),
            observed,
            np.concatenate(exogenous, axis=1),
            past,
            phases - phases[0],
            np.array(codes, dtype=np.int64),
            self.known,
        )
        return series, times

    def _calendar(self, phases: Array, previous: Array) -> Array:
        """Fourier terms and, for irregular times, the log of the gap before each, [n] and [1] → [n, columns]."""
        terms = self.seasonality.fourier_terms(phases)
        if self.timeline.regular:
            return terms
        gaps = np.log(np.diff(phases, prepend=previous))
        return np.concatenate([terms, np.clip(gaps, -_LONGEST_LOG_GAP, _LONGEST_LOG_GAP)[:, None]], axis=1)

    def _static_row(self, rows: RawSeries) -> pd.DataFrame:
        """The one value of each static feature, [1 row]."""
        columns = {}
        for name in self.columns.static:
            known = rows.features[name].dropna()
            try:
                found = known.unique()
            except TypeError:
                raise DataError(
                    f"series '{rows.uid}': the static column {name} holds {type(known.iloc[0]).__name__}s; "
                    "give numbers or text"
                ) from None
            columns[name] = (known if len(known) else rows.features[name]).head(1).reset_index(drop=True)
            if len(found) > 1:
                raise DataError(
                    f"series '{rows.uid}': the static column {name} holds '{found[0]}' and '{found[1]}'; "
                    "give one value per series or make it a past feature"
                )
        return pd.DataFrame(columns, index=range(1))

    def _rows_ahead(self, uid: str, future_frame: pd.DataFrame | None) -> RawSeries | None:
        """RawSeries of the future table for one series; None when they are not needed and not there."""
        remedy = f"give its rows with {names_list((self.columns.time, *self.columns.future))}"
        if future_frame is None:
            if self.columns.future:
                raise DataError(f"series '{uid}': there is no table of future features; {remedy}")
            return None
        require_table(future_frame, "the future table")
        if self.columns.id in future_frame.columns:
            own = future_frame[(future_frame[self.columns.id].astype(str) == uid).to_numpy(dtype=bool)]
        else:
            own = future_frame if uid == ONLY_SERIES else future_frame.iloc[:0]
        if own.empty:
            if self.columns.future:
                raise DataError(f"series '{uid}': the future table does not have it; {remedy}")
            return None
        try:
            groups, problems = split(own, self.columns, with_target=False)
        except DataError as error:
            message = str(error)
            prefix = "" if message.startswith("series ") else f"series '{uid}': in the future table, "
            raise DataError(f"{prefix}{message}") from None
        if problems:
            raise DataError(f"{problems[uid]} (in the future table)")
        return groups[0]

    def _features_at(self, given: RawSeries, ahead: pd.Index) -> Array:
        place = given.times.get_indexer(ahead)
        if (place < 0).any():
            missing = ahead[place < 0]
            raise DataError(
                f"series '{given.uid}': the future table has no row for {show_time(missing[0])}"
                f"{f' and {len(missing) - 1} later times' if len(missing) > 1 else ''}; "
                f"add it with {names_list(self.columns.future)}"
            )
        return self.features.encode(given.uid, given.features.iloc[place], self.columns.future)


def _require_varying_past(frame: pd.DataFrame, columns: Columns) -> None:
    """Raise a DataError for a past column that cannot tell anything."""
    for name in columns.past:
        different = frame[name].nunique(dropna=True)
        if different < 2:
            what = "has no values" if different == 0 else "is constant"
            raise DataError(f"the past column '{name}' {what}, so that nothing can be learned from it; drop it")


def _first_usable(rows: RawSeries, target: str) -> int:
    """Index of the first value; raises a DataError for a target that cannot be learned from."""
    infinite = np.isinf(rows.y)
    if infinite.any():
        time = show_time(rows.times[int(np.argmax(infinite))])
        raise DataError(
            f"series '{rows.uid}': {target} is infinite at {time}; correct it or leave it empty if it is missing"
        )
    observed = ~np.isnan(rows.y)
    if not observed.any():
        raise DataError(f"series '{rows.uid}': {target} is missing in every row; give values or drop the series")
    if observed.sum() < MIN_OBSERVED:
        raise DataError(
            f"series '{rows.uid}': {observed.sum()} values, at least {MIN_OBSERVED} are needed; "
            "give a longer history or drop the series"
        )
    return int(np.argmax(observed))


def _spread(values: Array, place: Index, length: int) -> Array:
    """RawSeries at their places of a grid, zero elsewhere, [length, columns]."""
    spread = np.zeros((length, values.shape[1]))
    spread[place] = values
    return spread


def fill_gaps(y: Array, observed: Mask, positions: Array) -> Array:
    """Values on a line between the neighbours, and the last one after the end, [n]; the first must be observed."""
    known = np.flatnonzero(observed)
    before = known[np.searchsorted(known, np.arange(len(y)), side="right") - 1]
    after = known[np.minimum(np.searchsorted(known, np.arange(len(y))), len(known) - 1)]
    gap = np.where(after > before, positions[after] - positions[before], 1.0)
    span = np.maximum(gap, np.finfo(np.float64).tiny)
    share = np.clip((positions - positions[before]) / span, 0.0, 1.0)
    # weights, not a slope: the difference of two finite values may be infinite
    return np.where(observed, y, np.where(after <= before, y[before], (1 - share) * y[before] + share * y[after]))
