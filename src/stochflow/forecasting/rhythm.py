"""Seasons that a frequency implies, and the waves and lags that describe them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stochflow.errors import ConfigError

YEAR_IN_DAYS = 365.25
NUM_RECENT_LAGS = 14
MAX_SEASON = 10_000


@dataclass(frozen=True)
class Rhythm:
    """Seasons in steps: the main one, m, a longer one that is worth a lag of its own, and waves (period, harmonics)."""

    season: int
    long_season: int = 0
    waves: tuple[tuple[float, int], ...] = ()

    @property
    def lags(self) -> list[int]:
        """Lags 1–14 and those around one and two seasons."""
        lags = set(range(1, NUM_RECENT_LAGS + 1))
        if self.season > 1:
            lags |= {self.season - 1, self.season, self.season + 1, 2 * self.season, 2 * self.season + 1}
        if self.long_season:
            lags |= {self.long_season - 1, self.long_season, self.long_season + 1}
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
    whole = isinstance(season_length, int | np.integer) and not isinstance(season_length, bool)
    if season_length is not None and not (whole and 1 <= season_length <= MAX_SEASON):
        raise ConfigError(
            f"season_length is {season_length}; give 1 for no season or the steps of one, up to {MAX_SEASON:,}"
        )
    known = _known_rhythm(freq) if freq else Rhythm(1)
    if season_length is None or season_length == known.season:
        return known
    waves = tuple(wave for wave in known.waves if wave[0] > 2 * season_length)
    own = ((float(season_length), min(season_length // 2, 6)),) if season_length > 1 else ()
    return Rhythm(season_length, 0, own + waves)


def offset_of(freq: str) -> pd.tseries.offsets.BaseOffset:
    """The pandas offset of an alias; a ConfigError if it is none or does not lead forward by at least a microsecond."""
    try:
        offset = pd.tseries.frequencies.to_offset(freq)
        moves = offset.n > 0 and not isinstance(offset, pd.offsets.Nano)
    except (ValueError, TypeError, AttributeError, OverflowError):
        moves = False
    if not moves:
        raise ConfigError(f"'{freq}' is no frequency; give a pandas alias such as h, D, W, MS, QS or YS")
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
