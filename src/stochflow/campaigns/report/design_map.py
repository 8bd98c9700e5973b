"""Where the next plate lies among what is known: a map of two dimensions, and distances."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.linalg import eigh
from torch import Tensor

from stochflow.campaigns.judging import nearest
from stochflow.core.arrays import Array
from stochflow.environments.sequences.task import Alphabet
from stochflow.reports.html.figure import Figure, Trace, axes, axis, evenly_spaced, label, numbers

MAX_POINTS = 1500
_SHOWN_LETTERS = 60


def coordinates(tokens: Tensor, num_letters: int) -> tuple[Array, float]:
    """Classical multidimensional scaling of Hamming distances; [num, L] → [num, 2], and the share that two axes show.

    Hamming distances are half the squared Euclidean ones of one-hot letters, so this is their principal components.
    Each axis points to where its largest coordinate is positive.

    >>> points, share = coordinates(torch.tensor([[0, 0], [0, 1], [1, 1]]), 2)
    >>> round(share, 6), np.abs(points[:, 0]).round(3).tolist()
    (1.0, [1.0, 0.0, 1.0])
    """
    letters = torch.nn.functional.one_hot(tokens, num_letters).flatten(1).float()
    distances = tokens.shape[1] - (letters @ letters.T).double().numpy()  # whole numbers, exact in float32
    means = distances.mean(axis=0)
    products = means + means[:, None] - distances - means.mean()  # of vectors from the centre
    num = len(tokens)
    values, vectors = eigh(products, subset_by_index=[max(num - 2, 0), num - 1])
    points = np.zeros((num, 2))
    points[:, : len(values)] = (vectors * np.sqrt(values.clip(min=0.0)))[:, ::-1]
    signs = np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    total = float(np.trace(products))
    return points * np.where(signs == 0, 1, signs), float(values.clip(min=0.0).sum() / total) if total > 0 else 1.0


def design_map(known: pd.DataFrame, pending: list[str], alphabet: Alphabet) -> Figure:
    """Measured sequences by score and pending orders, one of them at least; evenly thinned where there are too many.

    Args:
        known: measured sequences of one length in `measured`, their `score` and `worth`.
        pending: orders without a result.
    """
    orders = [pending[row] for row in evenly_spaced(len(pending), MAX_POINTS // 2)]
    rows = evenly_spaced(len(known), MAX_POINTS - len(orders))
    best = [int(known["worth"].argmax())] if len(known) and np.isfinite(known["worth"].max()) else []
    shown = known.iloc[np.union1d(rows, np.array(best, dtype=int)).astype(int)]
    sequences = [*shown["measured"], *orders]
    points, share = coordinates(alphabet.encode(sequences), len(alphabet))
    traces = _traces(shown, points[: len(shown)]) if len(shown) else []
    if orders:
        traces.append(_points("pending", orders, points[len(shown) :], _PENDING))
    text = (
        "Near each other are sequences with many letters in common, as far as two axes can show it: they hold "
        f"{100 * share:.0f} % of the squared distances."
    )
    if len(sequences) < len(known) + len(pending):
        text += f" {len(sequences):,} of {len(known) + len(pending):,} are drawn, evenly spaced in the order of coming."
    layout = axes(axis("first axis"), axis("second axis"), showlegend=True)
    return Figure("Where the next plate lies" if orders else "What is known", text, traces, layout)


def distance_bars(pending: list[str], known: list[str], alphabet: Alphabet) -> Figure:
    """How many letters pending orders differ from the nearest measured sequence."""
    _, distances = nearest(alphabet.encode(pending), alphabet.encode(known))
    letters, counts = np.unique(distances.numpy(), return_counts=True)
    bars = {"type": "bar", "x": letters.tolist(), "y": counts.tolist(), "marker": {"color": "--s2"}}
    hover = "%{y} orders, %{x} letters away<extra></extra>"
    layout = axes(axis("letters that differ", dtick=max(1, int(letters.max()) // 12)), axis("orders"), showlegend=False)
    text = "Every pending order and the measured sequence nearest to it. Predictions are surer near what is known."
    return Figure("How far from what is known", text, [{**bars, "hovertemplate": hover}], layout)


_SCORES = [[0, "--line"], [0.5, "--heat1"], [1, "--heat2"]]
_PENDING = {"color": "--s2", "size": 7, "symbol": "diamond-open", "line": {"width": 1.5}}
_BEST = {"color": "--s3", "size": 14, "symbol": "star"}


def _traces(known: pd.DataFrame, points: Array) -> list[Trace]:
    """Measured sequences in the colour of their score, and a star at the best."""
    bar = {"thickness": 10, "outlinewidth": 0, "title": {"text": "score"}}
    marker = {"color": numbers(known["score"]), "colorscale": _SCORES, "size": 6, "colorbar": bar, "showscale": True}
    names = [
        f"{name[:_SHOWN_LETTERS]}, {score:.4g}" for name, score in zip(known["measured"], known["score"], strict=True)
    ]
    traces = [_points("measured", names, points, marker)]
    if np.isfinite(known["worth"].max()):
        row = int(known["worth"].argmax())
        traces.append(_points("best", names[row : row + 1], points[row : row + 1], _BEST))
    return traces


def _points(name: str, texts: list[str], points: Array, marker: dict[str, Any]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": numbers(points[:, 0]),
        "y": numbers(points[:, 1]),
        "text": [label(text[: 2 * _SHOWN_LETTERS]) for text in texts],
        "marker": marker,
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }
