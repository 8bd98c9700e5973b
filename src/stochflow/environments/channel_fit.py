"""A channel of substitutions, P(observed letter | intended letter), estimated from pairs of strings."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from scipy.special import gammaln

from stochflow.config.noise import check_matrix_name
from stochflow.config.yaml import parse_yaml, read_yaml_text
from stochflow.core.arrays import Array, Floats, Ints
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import unwritable, write_atomically
from stochflow.environments.channels import Channel, confusion, positional
from stochflow.environments.pair_counts import PairColumns, PairCounts, count_pairs
from stochflow.environments.sequences.alphabets import named_alphabet

MODELS = ("auto", "global", "position")
PSEUDO_COUNT = 2.0  # observations that smoothing adds to a row: half a letter per entry for DNA
# pseudo-counts with which a position follows all positions, the likeliest is taken
_STRENGTHS = PSEUDO_COUNT * 4.0 ** np.arange(12)
_DEVIATIONS = 2.0  # by how many standard errors position matrices must predict held-out letters better
_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution
_MAX_ENTRIES = 40_000  # of the matrices in a file, which holds four numbers for each
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_HEADING = """\
# P(observed | intended): rows are intended letters and columns observed ones, both in the order of `letters`.
# Written by `stochflow channel fit`; use it with `--noise`, and look at it with `stochflow channel show`.
"""


@dataclass(frozen=True)
class FittedChannel:
    """An estimated channel with the counts behind it.

    Attributes:
        letters: the alphabet, in the order of rows and columns.
        model: "global" for one matrix, "position" for one per position.
        matrices: P(b|a), smoothed, float64, [positions or 1, K, K]; rows are intended letters.
        counts: how often b was observed for a, int64, of the same shape.
        lower, upper: 95 % Wilson intervals of the unsmoothed shares, of the same shape; [0, 1] without a count.
        held_out: log-likelihood per held-out letter in nats by model, of fits to the other pairs; NaN where there is
            none.
        num_pairs: pairs that were counted.
        num_left_out: pairs that were not, because their lengths differ.
        smoothing: pseudo-counts of a row, toward equal shares; of a position, toward the global matrix.
        reason: why this model.
    """

    letters: str
    model: str
    matrices: Floats
    counts: Ints
    lower: Floats
    upper: Floats
    held_out: Mapping[str, float]
    num_pairs: int
    num_left_out: int
    smoothing: float
    reason: str

    @property
    def channel(self) -> Channel:
        """The channel of the matrices, for environments of your own."""
        table = torch.from_numpy(self.matrices)
        return confusion(table[0], "fitted") if self.model == "global" else positional(table, "fitted")

    @property
    def error_rates(self) -> tuple[Floats, Floats, Floats]:
        """Share of wrong letters by position with its 95 % interval: rates, lower, upper, [positions or 1] each."""
        totals = self.counts.sum(axis=(1, 2))
        wrong = totals - np.trace(self.counts, axis1=1, axis2=2)
        return wrong / np.maximum(totals, 1), *wilson_interval(wrong, totals)

    def save(self, path: str | Path) -> None:
        """Write the file that `--noise` and `stochflow channel show` read, in one step."""
        path = Path(path)
        check_matrix_name(path)
        one = self.model == "global"
        tables = {"matrices": self.matrices, "counts": self.counts, "lower": self.lower, "upper": self.upper}
        content: dict[str, Any] = {"letters": self.letters, "model": self.model, "reason": self.reason}
        for name, table in tables.items():
            values = table.tolist() if name in ("matrices", "counts") else np.round(table, 8).tolist()
            content["matrix" if one and name == "matrices" else name] = values[0] if one else values
        content |= {"pairs": self.num_pairs, "left_out": self.num_left_out, "smoothing": self.smoothing}
        content["held_out"] = {name: None if math.isnan(value) else value for name, value in self.held_out.items()}
        text = yaml.dump(
            content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=10**9
        )
        try:
            write_atomically(path, _HEADING + text)
        except (OSError, ValueError) as error:
            raise unwritable(path, error) from None

    @classmethod
    def load(cls, path: str | Path) -> "FittedChannel":
        """Read what `save` has written."""
        path = Path(path)
        try:
            content = parse_yaml(read_yaml_text(path))
            letters, one = str(content["letters"]), {"global": True, "position": False}[content["model"]]
            names = ("matrix" if one else "matrices", "counts", "lower", "upper")
            tables = [np.asarray(content[name])[None] if one else np.asarray(content[name]) for name in names]
            _check_tables(tables, len(letters))
            held_out = {str(name): _number(value) for name, value in content["held_out"].items()}
            numbers = int(content["pairs"]), int(content["left_out"]), float(content["smoothing"])
            reason = str(content["reason"])
        except FileNotFoundError:
            raise DataError(f"the channel file {path} does not exist; check the path") from None
        except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, ConfigError) as error:
            raise DataError(
                f"{path} is no channel that `stochflow channel fit` has written ({' '.join(str(error).split())}); "
                "fit it again"
            ) from None
        matrices, counts, lower, upper = tables
        return cls(
            letters,
            "global" if one else "position",
            matrices.astype(np.float64),
            counts.astype(np.int64),
            lower.astype(np.float64),
            upper.astype(np.float64),
            held_out,
            *numbers,
            reason,
        )


def fit_channel(
    pairs: pd.DataFrame | str | Path,
    *,
    intended: str = "intended",
    observed: str = "observed",
    count: str | None = None,
    alphabet: str = "dna",
    model: str = "auto",
) -> FittedChannel:
    """Estimate P(observed letter | intended letter) from pairs of strings of equal length.

    Pairs of two lengths are left out. Every fifth pair is held out to compare a single matrix with one per position;
    what is returned is then fitted to all pairs.

    Args:
        pairs: a CSV or TSV file with a header, or a data frame.
        intended, observed, count: its columns; `count` says how often a pair was seen, by default the column of that
            name, or once where there is none.
        alphabet: "dna", "rna", "protein", or the letters; upper and lower case are the same letter.
        model: "global", "position" (all pairs must have one length), or "auto" for what predicts held-out pairs better.

    >>> frame = pd.DataFrame({"intended": ["AC", "AC"], "observed": ["AC", "AA"], "count": [90, 10]})
    >>> found = fit_channel(frame, alphabet="AC", model="global")
    >>> found.counts.tolist()
    [[[100, 0], [10, 90]]]
    >>> found.matrices.round(3).tolist()
    [[[0.99, 0.01], [0.108, 0.892]]]
    """
    if model not in MODELS:
        raise ConfigError(f"the model '{model}' is not known; choose one of: {', '.join(MODELS)}")
    letters = named_alphabet(alphabet)
    counts = count_pairs(pairs, PairColumns(intended, observed, count), letters)
    unfit = _unfit_for_positions(counts)
    if model == "position" and unfit is not None:
        raise DataError(f"there cannot be a matrix per position because {unfit}; choose --model global")
    held_out, better = _compared(counts, unfit is None)
    if model != "auto":
        chosen, reason = model, "as asked for"
    elif unfit is not None:
        chosen, reason = "global", unfit
    else:
        chosen, reason = ("position", better) if better else ("global", "position matrices predict no better")
    return _fitted(counts, letters.letters, chosen, reason, held_out)


def wilson_interval(num: Ints, total: Ints) -> tuple[Floats, Floats]:
    """The 95 % Wilson score interval of a probability, from `num` successes in `total` trials; [0, 1] without any.

    >>> lower, upper = wilson_interval(np.array([0, 5]), np.array([10, 10]))
    >>> lower.round(4).tolist(), upper.round(4).tolist()
    ([0.0, 0.2366], [0.2775, 0.7634])
    """
    trials = np.maximum(total, 1)
    share = num / trials
    centre = share + _Z**2 / (2 * trials)
    half = _Z * np.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2))
    scale = 1 + _Z**2 / trials
    # exact at the ends, where rounding would leave 1e-17
    lower = np.where((total == 0) | (num == 0), 0.0, (centre - half) / scale)
    upper = np.where((total == 0) | (num == total), 1.0, (centre + half) / scale)
    return lower, upper


def _check_tables(tables: Sequence[Array], size: int) -> None:
    """A ValueError unless these can be matrices, counts and bounds of as many letters."""
    shape = (len(tables[0]), size, size)
    if not len(tables[0]) or any(table.shape != shape or table.dtype.kind not in "if" for table in tables):
        raise ValueError(f"its tables are not all of the shape {shape}")
    if tables[1].dtype.kind != "i" or tables[1].min() < 0:
        raise ValueError("its counts are not all whole numbers from 0 on")
    if any(not ((table >= 0) & (table <= 1)).all() for table in (tables[0], *tables[2:])):
        raise ValueError("it has probabilities outside [0, 1]")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _unfit_for_positions(counts: PairCounts) -> str | None:
    """Why there can be no matrix per position; None where there can."""
    if len(counts.lengths) > 1:
        return f"pairs have {min(counts.lengths)} to {max(counts.lengths)} letters, not all the same number"
    if counts.total.size > _MAX_ENTRIES:
        return f"a file of {len(counts.total):,} matrices of {counts.total.shape[-1]} letters would be too large"
    return None


def _compared(counts: PairCounts, positions: bool) -> tuple[dict[str, float], str | None]:
    """Held-out log-likelihood per letter by model, and in what sense position matrices are better; None if not.

    The gain of a held-out letter is the difference of its log-probabilities; the gains of all must exceed zero by two
    standard errors, or noise alone would choose position matrices every other time.
    """
    held, training = counts.held_out, counts.total - counts.held_out
    num_held = int(held.sum())
    found = {"global": math.nan} | ({"position": math.nan} if positions else {})
    if not num_held:
        return found, None
    log_global = np.log(_global_matrix(training))
    found["global"] = float((held.sum(axis=0) * log_global).sum() / num_held)
    if not positions:
        return found, None
    gains = np.log(_position_matrices(training)[0]) - log_global
    mean = float((held * gains).sum() / num_held)
    found["position"] = found["global"] + mean
    error = math.sqrt(float((held * (gains - mean) ** 2).sum())) / num_held
    if mean <= _DEVIATIONS * error:
        return found, None
    return found, f"position matrices predict held-out letters better by {mean:.2g} ± {error:.1g} nats"


def _fitted(counts: PairCounts, letters: str, model: str, reason: str, held_out: Mapping[str, float]) -> FittedChannel:
    """The chosen model, fitted to all pairs."""
    pooled = counts.total.sum(axis=0, keepdims=True)
    unseen = [letter for letter, num in zip(letters, pooled.sum(axis=(0, 2)), strict=True) if not num]
    if unseen:
        warnings.warn(
            f"no pair intends {', '.join(unseen)}, so nothing is known of what comes of it; its row has equal shares",
            stacklevel=3,
        )
    if model == "global":
        table, matrices, smoothing = pooled, _global_matrix(counts.total)[None], PSEUDO_COUNT
    else:
        table, (matrices, smoothing) = counts.total, _position_matrices(counts.total)
    lower, upper = wilson_interval(table, table.sum(axis=-1, keepdims=True))
    return FittedChannel(
        letters,
        model,
        matrices,
        table,
        lower,
        upper,
        held_out,
        counts.num_pairs,
        counts.num_unequal,
        smoothing,
        reason,
    )


def _global_matrix(counts: Ints) -> Floats:
    """P(b|a) of all positions, smoothed toward equal shares; [positions, K, K] → [K, K]."""
    pooled = counts.sum(axis=0)
    return _smoothed(pooled, np.full(pooled.shape, 1 / len(pooled)), PSEUDO_COUNT)


def _position_matrices(counts: Ints) -> tuple[Floats, float]:
    """P(b|a) by position, [positions, K, K], smoothed toward the global matrix, and the pseudo-counts of a row.

    Rows of positions are multinomial draws whose probabilities come from a Dirichlet distribution around the global
    row; its strength κ is the likeliest of a few (empirical Bayes): large where positions are alike.
    """
    centre = _global_matrix(counts)
    totals = counts.sum(axis=-1)

    def log_evidence(strength: float) -> float:
        prior = strength * centre
        rows = gammaln(strength) - gammaln(totals + strength)
        return float(rows.sum() + (gammaln(counts + prior) - gammaln(prior)).sum())

    best = max(_STRENGTHS.tolist(), key=log_evidence)
    return _smoothed(counts, centre, best), best


def _smoothed(counts: Ints, centre: Floats, strength: float) -> Floats:
    """Mean of the Dirichlet posterior: shares of the counts and `strength` pseudo-counts around `centre`."""
    sums = counts + strength * centre
    matrices: Floats = sums / sums.sum(axis=-1, keepdims=True)
    return matrices
