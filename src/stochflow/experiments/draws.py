"""Many designs from a sampler, in parts that fit into memory, and the best of them."""

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pandas as pd
import torch

from stochflow.core.errors import ConfigError

Draws = Callable[[int], pd.DataFrame]
NUM_DESIGNS, _NUM_CANDIDATES = 1000, 10_000
_CHUNK = 4096
_MIN_NEW_SHARE = 0.005


@dataclass(frozen=True)
class Request:
    """Which designs are asked for.

    Attributes:
        n: how many, or how many draws to choose the best of; None for the default.
        unique: only different ones.
        best: how many of the draws, those with the highest scores.
        pays: True when every draw may cost an oracle call.
    """

    n: int | None = None
    unique: bool = False
    best: int | None = None
    pays: bool = False

    @property
    def num(self) -> int:
        """Designs to be kept in memory at least."""
        return (NUM_DESIGNS if self.best is None else _NUM_CANDIDATES) if self.n is None else self.n

    def check(self, excludes: bool) -> None:
        """Refuse what cannot be asked for.

        Args:
            excludes: True where some sequences are not wanted.
        """
        for number in (self.n, self.best):
            if number is not None and number < 1:
                raise ConfigError(f"cannot draw {number} designs; give a number of at least 1")
        if excludes and self.best is None and not self.unique:
            raise ConfigError("--exclude leaves designs out of a list of different ones; add --best N or --unique")
        if self.best is None:
            return
        if self.n is not None and self.n < self.best:
            raise ConfigError(f"{self.n} draws do not hold the {self.best} best designs; raise -n or leave it out")
        if self.pays and self.n is None:
            raise ConfigError(
                "--score-samples asks the oracle for every draw of --best; say with -n how many to pay for"
            )

    def check_space(self, num_designs: int | None, num_excluded: int) -> None:
        """Refuse to look for more designs than there are.

        Args:
            num_designs: how many there are at most; None where nobody has counted.
        """
        if self.best is not None and num_designs is not None and self.best > num_designs - num_excluded:
            less = f" less {num_excluded:,} excluded" if num_excluded else ""
            raise ConfigError(
                f"there are {num_designs:,} designs{less}, so no {self.best:,} best ones; ask for fewer with --best"
            )

    def drawn(self, draws: Draws, column: str, excluded: Collection[str], generator: torch.Generator) -> pd.DataFrame:
        """What is asked for, or as much of it as can be found in reasonable time.

        Args:
            column: that names a design.
            generator: of the order of designs that nothing else tells apart.
        """
        if self.best is None:
            if not self.unique:
                return drawn(draws, self.num)
            return distinct(draws, column, excluded, wanted=self.num).head(self.num)
        return ranked(self._candidates(draws, column, excluded), generator).head(self.best)

    def _candidates(self, draws: Draws, column: str, excluded: Collection[str]) -> pd.DataFrame:
        """What the best are chosen from; a warning says how many draws have no score."""
        num_unscored = 0

        def candidates(num: int) -> pd.DataFrame:
            nonlocal num_unscored
            frame = draws(num)
            num_unscored += int(frame[value_column(frame)].isna().sum())
            return rankable(frame)

        wanted = 0 if self.n is not None or self.best is None else self.best
        found = distinct(candidates, column, excluded, wanted=wanted, least=self.num)
        if num_unscored:
            warnings.warn(f"{num_unscored:,} draws were never paid for, so they are not ranked", stacklevel=4)
        if not len(found):
            raise ConfigError(
                "no draw can be ranked: each is excluded, breaks a constraint, or has no score; exclude less, or pay "
                "for scores with --score-samples"
            )
        return found


def drawn(draws: Draws, n: int) -> pd.DataFrame:
    """n rows of draws."""
    sizes = [min(_CHUNK, n - start) for start in range(0, n, _CHUNK)]
    return pd.concat([draws(size) for size in sizes], ignore_index=True)


def distinct(
    draws: Draws, column: str, excluded: Collection[str] = (), *, wanted: int = 0, least: int = 0
) -> pd.DataFrame:
    """Rows with different entries in `column`, none of them excluded, in the order in which they were drawn.

    Args:
        wanted: draw until there are so many, or until fewer than 1 in 200 draws is new.
        least: draw so often in any case.
    """
    parts: list[pd.DataFrame] = []
    seen, num_drawn, num_found = set(excluded), 0, 0
    while num_drawn < least or num_found < wanted:
        size = min(_CHUNK, least - num_drawn) if num_drawn < least else _CHUNK
        fresh = draws(size).drop_duplicates(column)
        fresh = fresh[~fresh[column].isin(seen)]
        parts.append(fresh)
        seen.update(fresh[column])
        num_drawn, num_found = num_drawn + size, num_found + len(fresh)
        if num_drawn >= least and len(fresh) < _MIN_NEW_SHARE * size:
            break
    return pd.concat(parts, ignore_index=True)


def rankable(frame: pd.DataFrame) -> pd.DataFrame:
    """Designs that have a score and satisfy all constraints."""
    return frame[frame[value_column(frame)].notna() & frame.get("feasible", True)]


def value_column(frame: pd.DataFrame) -> str:
    """What designs are ranked by: the score, or of orders what it will be on average."""
    return "expected_score" if "expected_score" in frame else "score"


def ranked(frame: pd.DataFrame, generator: torch.Generator) -> pd.DataFrame:
    """Rows by score, best first; of equal scores the one that the policy prefers, and of these a random one.

    >>> frame = pd.DataFrame({"sequence": ["AA", "AC", "CA"], "score": [1.0, 1.0, 2.0], "log_prob": [-2.0, -1.0, -3.0]})
    >>> ranked(frame, torch.Generator().manual_seed(0))["sequence"].tolist()
    ['CA', 'AC', 'AA']
    """
    shuffled = frame.iloc[torch.randperm(len(frame), generator=generator).numpy()]
    # in two stable steps: pandas promises stability for a single column alone
    preferred = shuffled.sort_values("log_prob", ascending=False, kind="stable")
    return preferred.sort_values(value_column(frame), ascending=False, kind="stable", ignore_index=True)
