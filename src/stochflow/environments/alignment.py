"""Observed letters brought to their intended positions, by edit distance where letters were lost or added."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from stochflow.core.arrays import Bools, Ints

Tokens: TypeAlias = npt.NDArray[np.int16]

UNSEEN = -1  # a letter that was deleted or could not be read
EDITS = ("deletion", "duplication", "insertion")
# how many letters a shift must explain in a pair of equal length: fewer are as likely substitutions
_LEAST_GAIN = 3
_LEAST_SHIFT = 2  # a deletion and an insertion
_UNSEEN_BYTE = 255


@dataclass(frozen=True)
class Strings:
    """Strings as one row of tokens, [sum of lengths], with their lengths, [num]."""

    tokens: Tokens
    lengths: Ints

    def of(self, kept: Bools) -> Tokens:
        """Tokens of some of the strings."""
        return self.tokens if kept.all() else self.tokens[np.repeat(kept, self.lengths)]

    def texts(self, which: Ints) -> list[bytes]:
        """Some of the strings, one byte per letter."""
        text, ends = self.tokens.astype(np.uint8).tobytes(), np.cumsum(self.lengths)
        return [text[end - length : end] for end, length in zip(ends[which], self.lengths[which], strict=True)]


@dataclass(frozen=True)
class Alignment:
    """Pairs of strings, letter by letter.

    Attributes:
        observed: what came of every intended letter, `UNSEEN` for nothing, with the lengths of the intended strings.
        edits: deletions, duplications and other insertions of each pair, int64, [num, 3].
        kept: True for pairs with few enough edits.
    """

    observed: Strings
    edits: Ints
    kept: Bools


def most_edits(length: Ints) -> Ints:
    """How many edits two strings may differ in, of which the longer has so many letters: a third, at least one.

    Random DNA strings differ in half of their letters.
    """
    return np.maximum(length // 3, 1)


def align(intended: Strings, observed: Strings) -> Alignment:
    """Pairs of equal length letter by letter, unless a shift explains three letters more; others by edit distance.

    Those of two lengths are kept up to `most_edits`. Those of equal length, in which nothing is ambiguous and a doped
    library has many errors, are kept up to two thirds of their letters, where five differ; random DNA differs in three
    quarters.

    >>> intended = Strings(np.array([0, 1, 2, 3], dtype=np.int16), np.array([4]))
    >>> found = align(intended, Strings(np.array([0, 0, 1, 3], dtype=np.int16), np.array([4])))
    >>> found.observed.tokens.tolist(), found.edits.tolist()  # two substitutions are as likely as two edits
    ([0, 0, 1, 3], [[0, 0, 0]])
    >>> found = align(intended, Strings(np.array([0, 0, 1, 2, 3], dtype=np.int16), np.array([5])))
    >>> found.observed.tokens.tolist(), found.edits.tolist()
    ([0, 1, 2, 3], [[0, 1, 0]])
    """
    num = len(intended.lengths)
    equal = intended.lengths == observed.lengths
    rows: Tokens = np.full(len(intended.tokens), UNSEEN, dtype=np.int16)
    rows[np.repeat(equal, intended.lengths)] = observed.of(equal)
    differing = np.concatenate([[0], np.cumsum(rows != intended.tokens)])
    ends = np.cumsum(intended.lengths)
    hamming = differing[ends] - differing[ends - intended.lengths]
    which = np.flatnonzero(~equal | (hamming >= _LEAST_GAIN + _LEAST_SHIFT))
    sources, targets = intended.texts(which), observed.texts(which)
    distances = process.cpdist(sources, targets, scorer=Levenshtein.distance, dtype=np.int64)
    few = distances <= most_edits(np.maximum(intended.lengths, observed.lengths)[which])
    kept, edits = np.ones(num, dtype=bool), np.zeros((num, len(EDITS)), dtype=np.int64)
    kept[which] = few | (equal[which] & (3 * hamming[which] <= 2 * intended.lengths[which]))
    chosen = few & (~equal[which] | (hamming[which] - distances >= _LEAST_GAIN))
    for place in np.flatnonzero(chosen).tolist():
        index = which[place]
        text, edits[index] = _aligned(sources[place], targets[place])
        row = np.frombuffer(text, dtype=np.uint8).astype(np.int16)
        rows[ends[index] - len(text) : ends[index]] = np.where(row == _UNSEEN_BYTE, UNSEEN, row)
    return Alignment(Strings(rows, intended.lengths), edits, kept)


def nearest(reads: Sequence[str], orders: Sequence[str]) -> tuple[Ints, Bools]:
    """Index of the order with the fewest edits to each read, −1 where all have too many, and where two have as few."""
    distances = process.cdist(reads, orders, scorer=Levenshtein.distance, dtype=np.int32)
    best = distances.argmin(axis=1).astype(np.int64)
    least = distances.min(axis=1)
    longest = np.maximum([len(read) for read in reads], np.array([len(order) for order in orders])[best])
    far = least > most_edits(longest)
    return np.where(far, -1, best), ~far & ((distances == least[:, None]).sum(axis=1) > 1)


def _aligned(intended: bytes, observed: bytes) -> tuple[bytes, tuple[int, int, int]]:
    """What was observed of each intended letter, and the number of deletions, duplications and other insertions."""
    row = bytearray([_UNSEEN_BYTE]) * len(intended)
    deleted = doubled = added = 0
    for step in Levenshtein.opcodes(intended, observed):
        kind, start, end, first, last = step.tag, step.src_start, step.src_end, step.dest_start, step.dest_end
        if kind == "delete":
            deleted += end - start
        elif kind == "insert":
            copies = sum(_is_copy(observed, place) for place in range(first, last))
            doubled, added = doubled + copies, added + last - first - copies
        else:
            row[start:end] = observed[first:last]
    return bytes(row), (deleted, doubled, added)


def _is_copy(text: bytes, place: int) -> bool:
    """True where the letter stands beside one like it."""
    return text[place] in text[max(place - 1, 0) : place] + text[place + 1 : place + 2]
