"""Features as numbers: numeric ones scaled, categorical ones as a column per category or as a code."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.core.errors import DataError
from stochflow.forecasting.data.series import Array
from stochflow.forecasting.data.split import Column, to_numbers

MAX_COLUMNS = 100
# what lies further from the training mean than this many standard deviations counts as that far
_FURTHEST = 1e6


@dataclass(frozen=True)
class Features:
    """Mean and standard deviation of numeric columns, names of the categories of the others, as training saw them."""

    scales: dict[str, tuple[float, float]] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def encode(self, uid: str, frame: pd.DataFrame, names: Sequence[str]) -> Array:
        """A scaled column per number and a 0/1 column per category, missing and unknown ones zero, [n, columns]."""
        columns: list[Array] = [np.zeros((len(frame), 0))]
        for name in names:
            if name in self.scales:
                columns.append(self._scaled(uid, frame[name], name)[:, None])
            else:
                known = np.arange(1, len(self.categories[name]) + 1)
                columns.append((self.codes(frame[name])[:, None] == known).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def codes(self, column: Column) -> NDArray[np.int64]:
        """Number of each category from one up, zero for a missing or unknown one, [n]."""
        numbers = {category: number for number, category in enumerate(self.categories[str(column.name)], start=1)}
        codes = [0 if text is None else numbers.get(text, 0) for text in as_text(column)]
        return np.array(codes, dtype=np.int64)

    def _scaled(self, uid: str, column: Column, name: str) -> Array:
        values, bad = to_numbers(column)
        wrong = bad | np.isinf(values)
        if wrong.any():
            raise DataError(
                f"series '{uid}': '{column.iloc[int(np.argmax(wrong))]}' in {name} is no finite number; "
                "correct it or leave it empty if it is missing"
            )
        mean, std = self.scales[name]
        with np.errstate(over="ignore"):
            return np.clip(np.nan_to_num((values - mean) / std, nan=0.0), -_FURTHEST, _FURTHEST)


def fit_features(frame: pd.DataFrame, wide: Sequence[str], coded: Sequence[str]) -> Features:
    """Scales and categories of the columns; `wide` ones get a column per category, `coded` ones a number."""
    scales, categories = {}, {}
    for name in (*wide, *coded):
        numeric = pd.api.types.is_numeric_dtype(frame[name].dtype)
        if numeric or (name in wide and _numbers_but_for_a_few(frame[name])):  # the few are problems of their series
            scales[name] = _mean_and_std(to_numbers(frame[name])[0])
            continue
        found = tuple(sorted({text for text in as_text(frame[name]) if text is not None}))
        if name in wide and len(found) > MAX_COLUMNS:
            raise DataError(
                f"column '{name}' has {len(found)} categories, at most {MAX_COLUMNS} are allowed; "
                "group them, or give numbers if that is what they are"
            )
        categories[name] = found
    return Features(scales, categories)


def as_text(column: Column) -> list[str | None]:
    """Categories as text, None where missing."""
    return [None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def _numbers_but_for_a_few(column: Column) -> bool:
    """True for a column that is no declared category, mostly numbers, and too many of them to be categories."""
    texts = {text for text in as_text(column) if text is not None}
    if isinstance(column.dtype, pd.CategoricalDtype) or len(texts) <= MAX_COLUMNS:
        return False
    values, bad = to_numbers(column)
    return int(bad.sum()) < int((~np.isnan(values)).sum())


def _mean_and_std(values: Array) -> tuple[float, float]:
    """Mean and standard deviation of the finite values; (0, 1) without any, deviation 1 for a constant."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max(initial=0.0))
    if largest == 0.0:
        return 0.0, 1.0
    mean, std = (float(part) * largest for part in (np.mean(finite / largest), np.std(finite / largest)))
    return mean, std if std > 1e-12 * largest else 1.0
