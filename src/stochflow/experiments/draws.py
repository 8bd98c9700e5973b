"""Many designs from a sampler, in parts that fit into memory."""

from collections.abc import Callable

import pandas as pd

_CHUNK = 4096
_MIN_NEW_SHARE = 0.005


def drawn(draws: Callable[[int], pd.DataFrame], n: int, unique: str | None) -> pd.DataFrame:
    """n rows of draws, or as many with different entries in the column `unique` as can be found in reasonable time."""
    if unique is None:
        sizes = [min(_CHUNK, n - start) for start in range(0, n, _CHUNK)]
        return pd.concat([draws(size) for size in sizes], ignore_index=True)
    parts: list[pd.DataFrame] = []
    seen: set[str] = set()
    while len(seen) < n:
        fresh = draws(_CHUNK).drop_duplicates(unique)
        fresh = fresh[~fresh[unique].isin(seen)]
        parts.append(fresh)
        seen.update(fresh[unique])
        if len(fresh) < _MIN_NEW_SHARE * _CHUNK:
            break
    return pd.concat(parts, ignore_index=True).head(n)
