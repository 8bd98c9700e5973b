"""Seasons that a frequency implies, and the waves and lags that describe them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.core.errors import ConfigError

YEAR_IN_DAYS = 365.25
MAX_SEASON = 10_000
_MOST_DIGITS = 18
NUM_RECENT_LAGS = 14
_MOST_SEASONS = 7


@dataclass(frozen=True)
class Rhythm:
    """Seasons in steps: the main one, m, a longer one that is worth a lag of its own, and waves (period, harmonics)."""

    season: int
    long_season: int = 0
    waves: tuple[tuple[float, int], ...] = ()

    @property
    def lags(self) -> list[int]:
        """Lags 1–14, those around one and two seasons, and every season of a long one of up to seven."""
        lags = set(range(1, NUM_RECENT_LAGS + 1))
        if self.season > 1:
            lags |= {self.season - 1, self.season, self.season + 1, 2 * self.season, 2 * self.season + 1}
        if self.long_season:
            lags |= {self.long_season - 1, self.long_season, self.long_season + 1, 2 * self.long_season}
            if self.long_season <= _MOST_SEASONS * self.season:
                lags |= set(range(self.season, self.long_season, self.season))
        return sorted(lag for lag in lags if lag >= 1)

    @property
    def near(self) -> list[int]:
        """Lags that exponential smoothing reads: the last step, and one season back with the step before it."""
        seasons = [self.season] * (self.season > 1) + [self.long_season] * (self.long_season > 0)
        return [1] + [lag for season in seasons for lag in (season, season + 1)]

    @property
    def window(self) -> int:
        """Steps of the past that the next prediction needs."""
        return max(self.lags[-1], self.near[-1])

    def wave_values(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cosines and sines of all waves at positions in steps, [..., waves]."""
        columns = []
        for period, num_harmonics in self.waves:
            for harmonic in range(1, num_harmonics + 1):
                angle = 2 * np.pi * harmonic * positions / period
                columns.append(np.cos(angle))
                if 2 * harmonic != period:  # at the highest frequency the sine is zero at every step
                    columns.append(np.sin(angle))
        return np.stack(columns, axis=-1) if columns else np.zeros((*positions.shape, 0))


def rhythm_of(freq: str | None, season_length: int | None = None) -> Rhythm:
    """Seasons of a pandas frequency; `season_length` overrides the main one. No frequency: no season."""
    if season_length is not None:
        whole = isinstance(season_length, int | np.integer) and not isinstance(season_length, bool)
        if not whole or not 1 <= season_length <= MAX_SEASON:
            raise ConfigError(
                f"season_length is {season_length!s:.40}; give 1 for no season or the number of steps of one, "
                f"at most {MAX_SEASON}"
            )
    known = _known_rhythm(freq) if freq else Rhythm(1)
    if season_length is None or season_length == known.season:
        return known
    waves = tuple(wave for wave in known.waves if wave[0] > 2 * season_length)
    own = ((float(season_length), min(season_length // 2, 6)),) if season_length > 1 else ()
    return Rhythm(season_length, 0, own + waves)


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


def _known_rhythm(freq: str) -> Rhythm:
    offset = offset_of(freq)
    name, multiple = offset.rule_code.split("-")[0], offset.n
    if multiple == 1:
        match name:
            case "h":
                return Rhythm(24, 168, ((24.0, 4), (168.0, 3), (24 * YEAR_IN_DAYS, 2)))
            case "D":
                return Rhythm(7, 0, ((7.0, 3), (YEAR_IN_DAYS, 2)))
            case "B":
                return Rhythm(5, 0, ((5.0, 2),))
            case "W":
                return Rhythm(52, 0, ((YEAR_IN_DAYS / 7, 3),))
            case "MS" | "ME" | "BMS" | "BME":
                return Rhythm(12, 0, ((12.0, 6),))
            case "QS" | "QE" | "BQS" | "BQE":
                return Rhythm(4, 0, ((4.0, 2),))
            case "min":
                return Rhythm(60, 1440, ((60.0, 3), (1440.0, 4)))
    if name in ("h", "min"):  # 15min, 6h, …: steps of a day
        minutes = multiple * (60 if name == "h" else 1)
        if 1440 % minutes == 0 and minutes < 1440:
            day = 1440 // minutes
            return Rhythm(day, 7 * day, ((float(day), min(day // 2, 4)), (7.0 * day, 3)))
    return Rhythm(1)
