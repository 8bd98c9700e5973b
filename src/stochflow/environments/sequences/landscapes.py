"""Measured landscapes: protein G, Shine–Dalgarno sequences, splice sites and a self-splicing intron.

Scores are scaled to [0, 1] by the smallest and largest mean measurement. A file holds one row per sequence of the whole
space in lexicographic order; sequences that were not measured have zeros.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from stochflow.core.arrays import Array
from stochflow.core.codes import decode
from stochflow.environments.registry import LANDSCAPES
from stochflow.environments.sequences.lookup_task import MeasuredTask, Measurements
from stochflow.environments.sequences.packed import read_verified, unpack
from stochflow.environments.sequences.task import Alphabet

DMSC_UNIT = 6000  # means of up to three measurements of three decimals are whole multiples of 1/6000
DMSC_VARIANCE = 0.0512473003280365  # of one measurement, as published; a mean over n has an nth of it
MPSA_UNIT = 10_000  # four decimals of log10 PSI
MPSA_OFFSET = 20_000
# three decimals of scores and of their deviations; the smallest deviations are 0.023 and 0.051
THREE_DECIMALS = 1000
SMN1_OFFSET = 0
INTRON_OFFSET = 8000


def make_landscape(name: str) -> MeasuredTask:
    """The task of a shipped landscape: `gb1`, `dmsc`, `mpsa`, `smn1` or `intron30c`.

    >>> task = make_landscape("mpsa")
    >>> task.length, task.num_measured
    (9, 31587)
    """
    letters, length, description, source, _ = LANDSCAPES[name]
    columns = unpack(read_verified(f"{name}.bin", "build_landscapes.py"), num_columns=2)
    codes, scores, variances = DECODERS[name](columns)
    measured = Measurements(
        decode(torch.from_numpy(codes), len(letters), length),
        torch.from_numpy(scores),
        None if variances is None else torch.from_numpy(variances),
    )
    return MeasuredTask(name, Alphabet(letters), measured.scaled_to_unit(), description, source)


def gb1_enrichment(before: Array, after: Array) -> tuple[Array, Array]:
    """Log enrichment log (after + ½)/(before + ½), without the wild type's, and its Poisson variance; [num] each."""
    return np.log((after + 0.5) / (before + 0.5)), 1.0 / (after + 0.5) + 1.0 / (before + 0.5)


def _decode_gb1(columns: Array) -> tuple[Array, Array, Array]:
    codes = np.flatnonzero(columns[0])
    enrichment, variances = gb1_enrichment(*columns[:, codes])
    return codes, enrichment[:, None], variances


def _decode_dmsc(columns: Array) -> tuple[Array, Array, Array]:
    codes = np.flatnonzero(columns[1])
    return codes, columns[0, codes, None] / DMSC_UNIT, DMSC_VARIANCE / columns[1, codes]


def _decode_mpsa(columns: Array) -> tuple[Array, Array, None]:
    codes = np.flatnonzero(columns.any(axis=0))
    found = columns[:, codes]
    # a sequence that was measured once has that value as both replicates
    both = np.where(found > 0, found, found[::-1])
    return codes, (both.T - MPSA_OFFSET) / MPSA_UNIT, None


def _decode_deviations(columns: Array, offset: int) -> tuple[Array, Array, Array]:
    codes = np.flatnonzero(columns[1])
    scores, deviations = columns[0, codes] - offset, columns[1, codes]
    return codes, scores[:, None] / THREE_DECIMALS, (deviations / THREE_DECIMALS) ** 2


# columns of a file, [2, K^L] → measured codes [num], measurements [num, num_replicates] and variances [num] or None
DECODERS: dict[str, Callable[[Array], tuple[Array, Array, Array | None]]] = {
    "gb1": _decode_gb1,
    "dmsc": _decode_dmsc,
    "mpsa": _decode_mpsa,
    "smn1": partial(_decode_deviations, offset=SMN1_OFFSET),
    "intron30c": partial(_decode_deviations, offset=INTRON_OFFSET),
}
