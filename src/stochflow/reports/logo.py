"""Sequence logo as inline SVG; the height of a position is its information content in bits."""

import html
import math
from collections.abc import Sequence

import numpy as np

from stochflow.reports.html.figure import NUM_COLOURS

_PER_ROW = 20
_CELL, _HEIGHT, _LEFT, _TOP, _BOTTOM = 40, 140, 46, 8, 24
# cap height over font size, within two per cent in the usual sans-serif faces
_CAPITAL = 0.72
_FONT = 100
# how far the axis reaches at least, in heights of random designs
_OVER_CHANCE = 10
_STEPS = (0.05, 0.1, 0.25, 0.5, 1.0)


def information(sequences: Sequence[str], num_letters: int) -> list[dict[str, float]]:
    """Information per letter and position in bits, share · (log2 K − H), for the letters that occur there.

    There is no small-sample correction, since the logo describes these designs and estimates nothing.

    >>> information(["AC", "AG"], num_letters=4)
    [{'A': 2.0}, {'C': 0.5, 'G': 0.5}]
    """
    columns: list[dict[str, float]] = []
    for letters in zip(*sequences, strict=True):
        found, counts = np.unique(np.array(letters), return_counts=True)
        shares = counts / counts.sum()
        bits = max(math.log2(max(num_letters, 2)) + float((shares * np.log2(shares)).sum()), 0.0)
        columns.append({str(letter): float(share) * bits for letter, share in zip(found, shares, strict=True)})
    return columns


def random_information(num_sequences: int, num_letters: int) -> float:
    """Information in bits that a position of random sequences shows on average, (K − 1)/(2 n ln 2), or log2 K if less.

    >>> round(random_information(100, num_letters=4), 4)
    0.0216
    """
    return min((num_letters - 1) / (2 * num_sequences * math.log(2)), math.log2(max(num_letters, 2)))


def logo_svg(sequences: Sequence[str], num_letters: int) -> str:
    """Stacked letters per position, the most frequent on top, in rows of at most 20 positions."""
    columns = information(sequences, num_letters)
    # the axis ends at the next tick above the tallest position, so that small heights are readable, but not those that
    # random designs would have
    chance = min(_OVER_CHANCE * random_information(len(sequences), num_letters), math.log2(max(num_letters, 2)))
    tallest = max(chance, *(sum(column.values()) for column in columns))
    step = next((step for step in _STEPS if tallest <= 4 * step), _STEPS[-1])
    most = step * max(math.ceil(tallest / step - 1e-9), 1)
    order = sorted({letter for column in columns for letter in column})
    starts = range(0, len(columns), _PER_ROW)
    return "".join(_row(columns[start : start + _PER_ROW], start, (most, step), order) for start in starts)


def _row(columns: list[dict[str, float]], start: int, scale: tuple[float, float], order: list[str]) -> str:
    width = _LEFT + _CELL * len(columns)
    parts = [_axis(width, *scale)]
    for number, column in enumerate(columns):
        left, base = _LEFT + _CELL * number, float(_TOP + _HEIGHT)
        for letter, bits in sorted(column.items(), key=lambda item: (item[1], item[0])):
            height = _HEIGHT * bits / scale[0]
            parts.append(_letter(letter, left, base, height, order.index(letter)))
            base -= height
        middle = left + _CELL / 2
        parts.append(f'<text class="tick" x="{middle:g}" y="{_TOP + _HEIGHT + 17}">{start + number + 1}</text>')
    label = f"Sequence logo, positions {start + 1} to {start + len(columns)}, height in bits"
    box = f"0 0 {width} {_TOP + _HEIGHT + _BOTTOM}"
    return (
        f'<svg class="logo" style="max-width: {1.6 * width:g}px" viewBox="{box}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _letter(letter: str, left: float, base: float, height: float, number: int) -> str:
    """A letter scaled to a box; empty if it would be lower than half a pixel."""
    if height < 0.5:
        return ""
    stretch = height / (_FONT * _CAPITAL)
    place = f"translate({left + 1:g} {base:.2f}) scale(1 {stretch:.4f})"
    return (
        f'<text class="letter n{number % NUM_COLOURS + 1}" transform="{place}" textLength="{_CELL - 2}" '
        f'lengthAdjust="spacingAndGlyphs">{html.escape(letter)}</text>'
    )


def _axis(width: float, most: float, step: float) -> str:
    ticks = []
    for number in range(round(most / step) + 1):
        bits = step * number
        y = _TOP + _HEIGHT * (1 - bits / most)
        ticks.append(f'<line x1="{_LEFT}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        ticks.append(f'<text class="tick" x="{_LEFT - 15}" y="{y + 4:.1f}">{bits:g}</text>')
    middle = _TOP + _HEIGHT / 2
    return "".join(ticks) + f'<text class="tick" transform="translate(12 {middle:g}) rotate(-90)">bits</text>'
