"""Roles of the columns of a long table, and the check that they are there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from stochflow.core.errors import ConfigError, DataError


@dataclass(frozen=True)
class Columns:
    """Names and roles of the columns of a long table.

    Attributes:
        id: of the series; a table without `unique_id` is one series.
        time: dates (ISO 8601) or integers.
        target: the values to forecast.
        future: features known in advance.
        past: features known only up to now.
        static: features with one value per series.

    >>> Columns(target="sales", future=("price", "event")).features
    ('price', 'event')
    """

    id: str = "unique_id"
    time: str = "ds"
    target: str = "y"
    future: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for role in ("future", "past", "static"):
            names = getattr(self, role)
            if not isinstance(names, Iterable):
                raise ConfigError(f"the {role} columns are {names!s:.40}; give their names")
            object.__setattr__(self, role, (names,) if isinstance(names, str) else tuple(names))
        names = [self.id, self.time, self.target, *self.features]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"column '{twice}' is named twice; give every column one role")
        # these stand beside the columns of forecasts in one table
        for name in map(str, (self.id, self.time, self.target)):
            if name in ("stochflow", "cutoff", "sample") or name.startswith("stochflow-"):
                raise ConfigError(f"a column named '{name}' would clash with those of the forecasts; rename it")

    def adding(self, future: Sequence[str], past: Sequence[str], static: Sequence[str]) -> "Columns":
        """These columns and further features.

        >>> Columns(past=("rain",)).adding(["promo"], [], []).features
        ('promo', 'rain')
        """
        more = Columns(self.id, self.time, self.target, future, past, static)  # type: ignore[arg-type]  # made tuples
        return replace(
            self,
            future=(*self.future, *more.future),
            past=(*self.past, *more.past),
            static=(*self.static, *more.static),
        )

    @property
    def features(self) -> tuple[str, ...]:
        """All columns beside id, time and target."""
        return (*self.future, *self.past, *self.static)


def require_table(table: object, what: str = "the table") -> None:
    """Raise a DataError unless the table is a DataFrame."""
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"{what} is of type {type(table).__name__}; give a pandas DataFrame")


def require_columns(frame: pd.DataFrame, columns: Columns, with_target: bool = True) -> None:
    """Raise a DataError that lists what there is, unless every column is there once."""
    require_table(frame)
    needed = [columns.time, *columns.future]
    needed += [columns.target, *columns.past, *columns.static] if with_target else []
    needed += [columns.id] if columns.id != Columns().id else []
    there = ", ".join(map(str, frame.columns)) or "none"
    for name in needed:
        if name not in frame.columns:
            raise DataError(f"there is no column '{name}'; the columns are: {there}")
    for name in (columns.id, *needed):
        if (frame.columns == name).sum() > 1:
            raise DataError(f"there are two columns '{name}'; keep one of them")
