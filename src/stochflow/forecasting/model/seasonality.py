"""Seasonality that a frequency implies: season lengths, Fourier terms and autoregressive lags."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.core.errors import ConfigError
from stochflow.forecasting.config import is_whole

YEAR_IN_DAYS = 365.25
MAX_SEASON = 10_000
_MOST_DIGITS = 18
NUM_RECENT_LAGS = 14
_MOST_SEASONS = 7


@dataclass(frozen=True)
class Seasonality:
    """Season lengths in steps, and Fourier terms.

    Attributes:
        season: length m of the main season, 1 for none.
        long_season: length of a second, longer season with lags of its own, 0 for none.
        fourier: (period, number of harmonics) of each set of Fourier terms.
    """

    season: int
    long_season: int = 0
    fourier: tuple[tuple[float, int], ...] = ()

    @property
    def lags(self) -> list[int]:
        """Autoregressive lags: 1–14, those around one and two seasons, and each season within a long one of up to 7."""
        lags = set(range(1, NUM_RECENT_LAGS + 1))
        if self.season > 1:
            lags |= {self.season - 1, self.season, self.season + 1, 2 * self.season, 2 * self.season + 1}
        if self.long_season:
            lags |= {self.long_season - 1, self.long_season, self.long_season + 1, 2 * self.long_season}
            if self.long_season <= _MOST_SEASONS * self.season:
                lags |= set(range(self.season, self.long_season, self.season))
        return sorted(lag for lag in lags if lag >= 1)

    @property
    def smoothing_lags(self) -> list[int]:
        """Lags of exponential smoothing: 1, and m and m + 1 for each season."""
        seasons = [self.season] * (self.season > 1) + [self.long_season] * (self.long_season > 0)
        return [1] + [lag for season in seasons for lag in (season, season + 1)]

    @property
    def window(self) -> int:
        """Past steps that a one-step prediction reads."""
        return max(self.lags[-1], self.smoothing_lags[-1])

    def fourier_terms(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cosines and sines of all harmonics at positions in steps, [..., terms]."""
        columns = []
        for period, num_harmonics in self.fourier:
            for harmonic in range(1, num_harmonics + 1):
                angle = 2 * np.pi * harmonic * positions / period
                columns.append(np.cos(angle))
                if 2 * harmonic != period:  # at the highest frequency the sine is zero at every step
                    columns.append(np.sin(angle))
        return np.stack(columns, axis=-1) if columns else np.zeros((*positions.shape, 0))


def seasonality_of(freq: str | None, season_length: int | None = None) -> Seasonality:
    """Seasonality of a pandas frequency, none without one; `season_length` overrides the main season."""
    if season_length is not None and (not is_whole(season_length) or not 1 <= season_length <= MAX_SEASON):
        raise ConfigError(
            f"season_length is {season_length!s:.40}; give 1 for no season or the number of steps of one, "
            f"at most {MAX_SEASON}"
        )
    known = _implied_seasonality(freq) if freq else Seasonality(1)
    if season_length is None or season_length == known.season:
        return known
    longer = tuple(term for term in known.fourier if term[0] > 2 * season_length)
    own = ((float(season_length), min(season_length // 2, 6)),) if season_length > 1 else ()
    return Seasonality(season_length, 0, own + longer)


def _no_text(freq: object) -> ConfigError:
    alias = getattr(freq, "freqstr", "D")
    return ConfigError(f"freq is {freq!s:.40}, no text; give a pandas alias as text, such as '{alias}'")


def step_of(freq: object) -> int | None:
    """The step that a freq of digits means beside integer times; None for an alias or no freq."""
    if freq is None:
        return None
    if not isinstance(freq, str):
        raise _no_text(freq)
    if not (freq.isascii() and freq.isdecimal()):
        return None
    if len(freq) > _MOST_DIGITS or int(freq) < 1:
        raise ConfigError(f"freq is {freq:.40}; give a step of 1 or more, of at most {_MOST_DIGITS} digits")
    return int(freq)


def offset_of(freq: object) -> Any:
    """The pandas offset of an alias; raises a ConfigError unless it goes forward by at least a microsecond."""
    if not isinstance(freq, str):
        raise _no_text(freq)
    try:
        offset = pd.tseries.frequencies.to_offset(freq)
        forward = offset.n > 0
        fine = isinstance(offset, pd.offsets.Tick) and offset.nanos % 1000 != 0
    except (ValueError, OverflowError, TypeError, AttributeError):
        raise ConfigError(f"'{freq:.40}' is no frequency; give a pandas alias such as h, D, W, MS, QS or YS") from None
    if not forward:
        raise ConfigError(f"freq '{freq:.40}' does not go forward; give a step of at least one, such as D")
    if fine:
        raise ConfigError(f"freq '{freq:.40}' is finer than a microsecond; give us or longer")
    return offset


def _implied_seasonality(freq: str) -> Seasonality:
    offset = offset_of(freq)
    name, multiple = offset.rule_code.split("-")[0], offset.n
    if multiple == 1 and name in _BY_FREQ:
        return _BY_FREQ[name]
    if name in ("h", "min"):  # 15min, 6h, …: steps of a day
        minutes = multiple * (60 if name == "h" else 1)
        if 1440 % minutes == 0 and minutes < 1440:
            day = 1440 // minutes
            return Seasonality(day, 7 * day, ((float(day), min(day // 2, 4)), (7.0 * day, 3)))
    return Seasonality(1)


_BY_FREQ = {
    "h": Seasonality(24, 168, ((24.0, 4), (168.0, 3), (24 * YEAR_IN_DAYS, 2))),
    "D": Seasonality(7, 0, ((7.0, 3), (YEAR_IN_DAYS, 2))),
    "B": Seasonality(5, 0, ((5.0, 2),)),
    "W": Seasonality(52, 0, ((YEAR_IN_DAYS / 7, 3),)),
    "min": Seasonality(60, 1440, ((60.0, 3), (1440.0, 4))),
    **dict.fromkeys(("MS", "ME", "BMS", "BME"), Seasonality(12, 0, ((12.0, 6),))),
    **dict.fromkeys(("QS", "QE", "BQS", "BQE"), Seasonality(4, 0, ((4.0, 2),))),
}
