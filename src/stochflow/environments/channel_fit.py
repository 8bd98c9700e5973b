"""A channel estimated from pairs of strings: substitutions, deletions and duplications."""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaln

from stochflow.core.arrays import Floats, Ints
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.alignment import EDITS
from stochflow.environments.fitted_channel import FittedChannel, edit_rate, wilson_interval
from stochflow.environments.pair_counts import Counts, PairColumns, PairCounts, count_pairs
from stochflow.environments.reads import AssignedReads, holds_reads
from stochflow.environments.sequences.alphabets import named_alphabet
from stochflow.environments.sequences.task import Alphabet

MODELS = ("auto", "global", "position", "context")
PSEUDO_COUNT = 2.0  # observations that smoothing adds to a row: half a letter per entry for DNA
# pseudo-counts with which a position or context follows all of them, the likeliest is taken
_STRENGTHS = PSEUDO_COUNT * 4.0 ** np.arange(12)
_DEVIATIONS = 2.0  # by how many standard errors other matrices must predict held-out letters better
_MAX_ENTRIES = 40_000  # of the matrices in a file, which holds four numbers for each


class _Gain(NamedTuple):
    """By how much the matrices of a model predict held-out letters better than one matrix, and its standard error."""

    mean: float
    error: float


def fit_channel(
    pairs: pd.DataFrame | str | Path,
    *,
    orders: str | Path | Sequence[str] | None = None,
    intended: str = "intended",
    observed: str = "observed",
    count: str | None = None,
    alphabet: str = "dna",
    model: str = "auto",
) -> FittedChannel:
    """Estimate P(observed letter | intended letter) and the rates of deletions and duplications from pairs of strings.

    Every fifth pair is held out to compare a single matrix with one per position and one per letter before; what is
    returned is then fitted to all pairs. Pairs of two lengths are aligned by edit distance; those that differ in more
    than a third of their letters, and of equal length in more than two thirds, are left out.

    Args:
        pairs: a CSV or TSV file with a header, or a data frame; with `orders` a FASTQ or FASTA file of reads.
        orders: what was ordered, as a list, or as a file (FASTA, CSV with a column `order` or `sequence`, lines); every
            read is paired with the nearest of them.
        intended, observed, count: columns of a table; `count` says how often a pair was seen, by default the column of
            that name, or once where there is none.
        alphabet: "dna", "rna", "protein", or the letters; upper and lower case are the same letter.
        model: "global", "position" (all intended strings must have one length), "context", or "auto" for what predicts
            held-out pairs best.

    >>> frame = pd.DataFrame({"intended": ["AC", "AC"], "observed": ["AC", "AA"], "count": [90, 10]})
    >>> found = fit_channel(frame, alphabet="AC", model="global")
    >>> found.counts.tolist()
    [[[100, 0], [10, 90]]]
    >>> found.matrices.round(3).tolist()
    [[[0.99, 0.01], [0.108, 0.892]]]
    >>> found.edits["deletion"].rate
    0.0
    """
    if model not in MODELS:
        raise ConfigError(f"the model '{model}' is not known; choose one of: {', '.join(MODELS)}")
    letters = named_alphabet(alphabet)
    counts = count_pairs(_source(pairs, orders, letters), PairColumns(intended, observed, count), letters)
    unfit = _unfit(counts)
    if model in unfit:
        raise DataError(f"there cannot be a matrix per {model} because {unfit[model]}; choose --model global")
    held_out, gains = _compared(counts, unfit)
    chosen, reason = (model, "as asked for") if model != "auto" else _chosen(gains, unfit)
    return _fitted(counts, letters.letters, chosen, reason, held_out)


def _source(
    pairs: pd.DataFrame | str | Path, orders: str | Path | Sequence[str] | None, alphabet: Alphabet
) -> pd.DataFrame | Path | AssignedReads:
    """A table, or reads with the orders they belong to."""
    if isinstance(pairs, pd.DataFrame):
        if orders is not None:
            raise ConfigError("orders belong to a file of reads, and a table names what was intended; leave them out")
        return pairs
    path = Path(pairs)
    if holds_reads(path) and orders is None:
        raise ConfigError(f"{path} holds reads without what was ordered; name the orders with --orders FILE")
    if orders is None:
        return path
    if not holds_reads(path):
        raise ConfigError(
            f"{path} is a table, which names what was intended; leave --orders out, or give FASTQ or FASTA"
        )
    return AssignedReads(path, Path(orders) if isinstance(orders, str) else orders, alphabet)


def _unfit(counts: PairCounts) -> dict[str, str]:
    """Why there can be no matrix per position, or per letter before; without those of which there can."""
    found = {}
    for name, groups in (("position", counts.by_position), ("context", counts.by_context)):
        if groups.total.size > _MAX_ENTRIES:
            number, size = groups.total.shape[:2]
            found[name] = f"a file of {number:,} matrices of {size} letters would be too large"
    if len(counts.lengths) > 1:
        bounds = f"{min(counts.lengths)} to {max(counts.lengths)}"
        found["position"] = f"pairs have {bounds} letters, not all the same number"
    return found


def _compared(counts: PairCounts, unfit: Mapping[str, str]) -> tuple[dict[str, float], dict[str, _Gain]]:
    """Held-out log-likelihood per letter by model, and what the others gain over a single matrix."""
    names = ["global", *(name for name in ("position", "context") if name not in unfit)]
    num_held = int(counts.by_context.held_out.sum())
    if not num_held:
        return dict.fromkeys(names, math.nan), {}
    training = counts.by_context.total - counts.by_context.held_out
    log_global = np.log(_global_matrix(training))
    base = float((counts.by_context.held_out.sum(axis=0) * log_global).sum() / num_held)
    gains = {name: _gain(_groups(counts, name), log_global) for name in names[1:]}
    return {"global": base} | {name: base + gain.mean for name, gain in gains.items()}, gains


def _gain(counts: Counts, log_global: Floats) -> _Gain:
    """The mean difference of log-probabilities of a held-out letter; without a wrong one nobody can tell."""
    held, training = counts.held_out, counts.total - counts.held_out
    no_errors = int(np.trace(held, axis1=1, axis2=2).sum()) == int(held.sum())
    gains = np.log(_group_matrices(training)[0]) - log_global
    mean = float((held * gains).sum() / held.sum())
    error = math.sqrt(float((held * (gains - mean) ** 2).sum())) / int(held.sum())
    return _Gain(mean, math.inf if no_errors else error)


def _chosen(gains: Mapping[str, _Gain], unfit: Mapping[str, str]) -> tuple[str, str]:
    """The model that predicts best, and why.

    Its gain must exceed zero by two standard errors, or noise alone would choose it every other time.
    """
    better = {name: gain for name, gain in gains.items() if gain.mean > _DEVIATIONS * gain.error}
    if better:
        name, gain = max(better.items(), key=lambda item: item[1].mean)
        return name, f"{name} matrices predict held-out letters better by {gain.mean:.2g} ± {gain.error:.1g} nats"
    return "global", unfit.get("position", "neither position nor context matrices predict better")


def _groups(counts: PairCounts, model: str) -> Counts:
    return counts.by_position if model == "position" else counts.by_context


def _fitted(counts: PairCounts, letters: str, model: str, reason: str, held_out: Mapping[str, float]) -> FittedChannel:
    """The chosen model, fitted to all pairs."""
    pooled = counts.by_context.total.sum(axis=0, keepdims=True)
    unseen = [letter for letter, num in zip(letters, pooled.sum(axis=(0, 2)), strict=True) if not num]
    if unseen:
        warnings.warn(
            f"no pair intends {', '.join(unseen)}, so nothing is known of what comes of it; its row has equal shares",
            stacklevel=3,
        )
    if model == "global":
        table, matrices, smoothing = pooled, _global_matrix(pooled)[None], PSEUDO_COUNT
    else:
        table = _groups(counts, model).total
        matrices, smoothing = _group_matrices(table)
    return FittedChannel(
        letters,
        model,
        matrices,
        table,
        *wilson_interval(table, table.sum(axis=-1, keepdims=True)),
        {name: edit_rate(int(num), counts.num_letters) for name, num in zip(EDITS, counts.edits, strict=True)},
        held_out,
        counts.num_pairs,
        counts.num_unaligned,
        counts.num_ambiguous,
        smoothing,
        reason,
    )


def _global_matrix(counts: Ints) -> Floats:
    """P(b|a) of all groups, smoothed toward equal shares; [groups, K, K] → [K, K]."""
    pooled = counts.sum(axis=0)
    return _smoothed(pooled, np.full(pooled.shape, 1 / len(pooled)), PSEUDO_COUNT)


def _group_matrices(counts: Ints) -> tuple[Floats, float]:
    """P(b|a) by group, [groups, K, K], smoothed toward the global matrix, and the pseudo-counts of a row.

    Rows of groups are multinomial draws whose probabilities come from a Dirichlet distribution around the global
    row; its strength κ is the likeliest of a few (empirical Bayes): large where groups are alike.
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
