"""Figures as plotly JSON. Colours are CSS variables of the page, so that figures follow light and dark mode.

Text from a run is escaped, because plotly interprets tags in labels.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from stochflow.core.arrays import Array
from stochflow.evaluation.bootstrap import median_interval
from stochflow.reports.checkpoint import Channels, DesignDistribution, random_subset
from stochflow.reports.groups import Group, Measure, curve

Trace = dict[str, Any]

NUM_COLOURS = 7
NUM_POINTS = 2000
_NUM_BINS = 24
# a curve over many seeds has a point wherever one of them was evaluated
_MAX_CURVE_POINTS = 48
_MAX_STEPS = 200
_DASHES = ("solid", "dash", "dot")
_PATTERNS = ("", "/", ".")
_LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"}


@dataclass(frozen=True)
class Figure:
    """A chart with its caption.

    Attributes:
        title: heading, plain text.
        text: caption, plain text.
    """

    title: str
    text: str
    traces: list[Trace]
    layout: dict[str, Any] = field(default_factory=dict)


def regret_bars(groups: Sequence[Group], measure: Measure) -> Figure:
    """Bar chart of the median over seeds per method and condition, with bootstrap intervals."""
    conditions = list(dict.fromkeys(group.condition for group in groups))
    positions = {condition: number for number, condition in enumerate(conditions)}
    traces: list[Trace] = []
    for number, method in enumerate(dict.fromkeys(group.method for group in groups)):
        rows = [
            (positions[group.condition], values)
            for group in groups
            if group.method == method and (values := group.values(measure.key))
        ]
        medians = [float(np.median(values)) for _, values in rows]
        bounds = [median_interval(values) for _, values in rows]
        traces.append(
            {
                "type": "bar",
                "name": _label(method),
                "x": [position for position, _ in rows],
                "y": _numbers(medians),
                "marker": {"color": _colour(number), "pattern": {"shape": _PATTERNS[number // NUM_COLOURS % 3]}},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": _numbers(high - middle for (_, high), middle in zip(bounds, medians, strict=True)),
                    "arrayminus": _numbers(middle - low for (low, _), middle in zip(bounds, medians, strict=True)),
                    "color": "--text",
                    "thickness": 1.5,
                },
                "customdata": [[_label(conditions[position]), len(values)] for position, values in rows],
                "hovertemplate": "%{customdata[0]}<br>%{y:.4g}, %{customdata[1]} seeds<extra>%{fullData.name}</extra>",
            }
        )
    ticks = {"tickvals": list(positions.values()), "ticktext": [_label(name) for name in conditions]}
    layout = {
        "barmode": "group",
        "bargap": 0.35,
        "xaxis": {"title": {"text": "condition"}, **ticks},
        "yaxis": {"title": {"text": measure.axis}, "rangemode": "tozero"},
        "legend": _LEGEND,
        "showlegend": True,
    }
    text = (
        f"{measure.meaning} Bars are medians over seeds; lines are 95 % bootstrap intervals of the median, "
        "or lowest to highest where there are fewer than three seeds."
    )
    return Figure(f"{measure.title} by method and noise", text, traces, layout)


def learning_curves(groups: Sequence[Group], measure: Measure, along: str, methods: Sequence[str]) -> Figure:
    """A measure against trajectories or seconds, one line per method; `methods` determines the colours."""
    traces: list[Trace] = []
    for group in groups:
        found = curve(group.runs, measure.key, along)
        if found is None:
            continue
        number = methods.index(group.method)
        keep = _spread(len(found.x), _MAX_CURVE_POINTS)
        x = _numbers(found.x[keep])
        if len(group.runs) > 1:
            outline = _numbers(found.high[keep]) + _numbers(found.low[keep])[::-1]
            traces.append(_band(x, outline, _colour(number, 0.18), group.method))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(keep) < 2 else "lines",
                "name": _label(group.method),
                "legendgroup": _label(group.method),
                "x": x,
                "y": _numbers(found.median[keep]),
                "line": {"color": _colour(number), "width": 2, "dash": _DASHES[number // NUM_COLOURS % 3]},
            }
        )
    unit = "trajectories" if along == "trajectories" else "training time (seconds)"
    linear = {"rangemode": "tozero" if measure.from_zero else "normal"}
    scale = {"type": "log"} if measure.is_logarithmic and _spans_decades(traces) else linear
    layout = {
        "xaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": measure.axis}, **scale},
        "legend": _LEGEND,
        "showlegend": len(groups) > 1,
        "hovermode": "x",
    }
    text = measure.meaning if along == "trajectories" else "The same against the time that training took."
    return Figure(f"{measure.title} against {along}", text, traces, layout)


def probability_scatter(distribution: DesignDistribution) -> Figure:
    """log P_π against log R of a random subset of sequences, for sampler and optimum, with quantiles over all."""
    kept = random_subset(distribution, NUM_POINTS)
    num = len(distribution.log_rewards)
    x = _numbers(distribution.log_rewards[kept])
    clouds = (
        ("sampler", distribution.log_probs, "--s1 0.4"),
        ("attainable optimum", distribution.attainable, "--s2 0.4"),
    )
    traces: list[Trace] = [_points(name, x, _numbers(values[kept]), colour) for name, values, colour in clouds]
    middle, low, high = _quantile_lines(distribution.log_rewards, distribution.log_probs)
    ends = [float(distribution.log_rewards[kept].min()), float(distribution.log_rewards[kept].max())]
    target = _numbers(end - distribution.log_z for end in ends)
    traces += [
        _line("target R/Z", _numbers(ends), target, "--text", "dot"),
        _line("sampler, 5 and 95 %", *low, "--s1", "dash"),
        {**_line("", *high, "--s1", "dash"), "showlegend": False},
        _line("sampler, median", *middle, "--s1", "solid"),
    ]
    what = (
        f"Points: {len(kept):,} of {num:,} sequences, drawn at random" if len(kept) < num else f"All {num:,} sequences"
    )
    text = (
        "A perfect sampler lies on the dotted line; the attainable optimum is as near to it as the noise allows. "
        f"{what}; the quantile lines are over all {num:,}."
    )
    return Figure("Probability against reward", text, traces, _scatter_layout())


def sample_scatter(samples: pd.DataFrame) -> Figure:
    """log P_π against log R of the drawn designs, for tasks that cannot be enumerated."""
    kept = samples.head(NUM_POINTS)
    points = _points("designs", _numbers(kept["log_reward"]), _numbers(kept["log_prob"]), "--s1 0.6")
    what = f"the {len(kept):,} best of {len(samples):,}" if len(kept) < len(samples) else f"all {len(samples):,}"
    text = (
        f"Only drawn designs ({what} distinct ones), because the probability of all sequences could not be computed "
        "here; a perfect sampler puts them on a line of slope one."
    )
    return Figure("Probability against reward", text, [points], _scatter_layout())


def feasibility(unbalanced: Sequence[float]) -> Figure:
    """Bar chart of the share of prefixes per depth that no policy can balance."""
    trace = {
        "type": "bar",
        "name": "prefixes",
        "x": list(range(len(unbalanced))),
        "y": _numbers(100.0 * share for share in unbalanced),
        "marker": {"color": "--s2"},
        "hovertemplate": "%{x} letters: %{y:.3g} %<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "letters of the prefix"}, "dtick": max(1, len(unbalanced) // 12)},
        "yaxis": {"title": {"text": "prefixes out of reach (%)"}, "range": [0, max(105 * max(unbalanced), 1)]},
    }
    text = (
        "Noise puts a floor under every next letter. Here is the share of prefixes with a letter whose target share is "
        "below it, so that no policy can balance them."
    )
    return Figure("What the noise puts out of reach", text, [trace], layout)


def term_curves(metrics: pd.DataFrame) -> list[Figure]:
    """Curves of the terms that a method logs: entropy ratio, dynamics loss, and terms with mean and deviation."""
    figures = []
    x = metrics.get("trajectories", pd.Series(dtype=float))
    keep = _spread(len(metrics), _MAX_STEPS)
    for key, title, axis, text in (
        (
            "log_entropy_ratio",
            "Entropy ratio",
            "mean log r_γ",
            "How unequal the policy's uncertainty is across states of one depth; 0 means all are equally uncertain.",
        ),
        ("dynamics_loss", "Dynamics loss", "L_dyn", "The balance of exploration and exploitation at visited states."),
    ):
        if key in metrics and metrics[key].notna().any():
            line = _line(title, _numbers(x.iloc[keep]), _numbers(metrics[key].iloc[keep]), "--s1", "solid")
            figures.append(Figure(title, text, [line], _steps_layout(axis)))
    stems = [str(name).removesuffix("_mean") for name in metrics if str(name).endswith("_mean")]
    stems = [stem for stem in stems if f"{stem}_std" in metrics and metrics[f"{stem}_mean"].notna().any()]
    if stems:
        traces: list[Trace] = []
        for number, stem in enumerate(stems):
            rows = metrics.iloc[keep]
            middle, spread = rows[f"{stem}_mean"], rows[f"{stem}_std"]
            steps = _numbers(x.iloc[keep])
            outline = _numbers(middle + spread) + _numbers(middle - spread)[::-1]
            name = stem.replace("_", " ")
            traces.append(_band(steps, outline, _colour(number, 0.15), name))
            dash = _DASHES[number // NUM_COLOURS % 3]
            line = _line(name, steps, _numbers(middle), _colour(number), dash)
            traces.append({**line, "legendgroup": _label(name)})
        text = "The terms of the residual that training drives to zero: mean over a batch, and one standard deviation."
        figures.append(Figure("Terms of the balance (ll_diff)", text, traces, _steps_layout("nats")))
    return figures


def channel_maps(channels: Channels, position: int | None) -> list[Figure]:
    """Heat maps of true and learned channel and their difference, at one position or averaged over all."""

    def shown(table: Array) -> Array:
        return table.mean(axis=0) if position is None else table[position]

    truth = shown(channels.truth)
    scale = [[0, "--heat0"], [0.5, "--heat1"], [1, "--heat2"]]
    true_map = _heat_map("True channel", "P(outcome | intention).", truth, channels.letters, scale, (0.0, 1.0))
    if channels.learned is None:
        return [true_map]
    learned = shown(channels.learned)
    largest = max(float(np.abs(channels.learned - channels.truth).max()), 1e-3)
    signed = [[0, "--cold"], [0.5, "--heat0"], [1, "--hot"]]
    learned_name = "Known to the method" if channels.is_known else "Learned channel"
    return [
        true_map,
        _heat_map(learned_name, "The same, as the sampler sees it.", learned, channels.letters, scale, (0.0, 1.0)),
        _heat_map(
            "Learned minus true",
            "Orange: believed too likely. Blue: too unlikely.",
            learned - truth,
            channels.letters,
            signed,
            (-largest, largest),
        ),
    ]


def _heat_map(
    title: str, text: str, table: Array, letters: list[str], scale: list[list[Any]], bounds: tuple[float, float]
) -> Figure:
    names = [_label(letter) for letter in letters]
    signed = bounds[0] < 0
    trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": [_numbers(row) for row in table],
        "colorscale": scale,
        "zmin": bounds[0],
        "zmax": bounds[1],
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "hovertemplate": "intended %{y}, came %{x}: %{z:.4f}<extra></extra>",
    }
    if len(letters) <= 6:
        trace |= {"texttemplate": "%{z:+.3f}" if signed else "%{z:.3f}"}
    axis = {"type": "category", "showgrid": False}
    layout = {
        "xaxis": {**axis, "title": {"text": "outcome"}},
        "yaxis": {**axis, "title": {"text": "intention"}, "autorange": "reversed"},
    }
    return Figure(title, text, [trace], layout)


def _quantile_lines(x: Array, y: Array) -> list[tuple[list[float | None], list[float | None]]]:
    """Median, 5 % and 95 % quantile of y in equally full bins of x, as pairs of coordinates."""
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, min(_NUM_BINS, len(order)))
    centres = _numbers(float(np.median(x[part])) for part in parts)
    return [(centres, _numbers(float(np.quantile(y[part], level)) for part in parts)) for level in (0.5, 0.05, 0.95)]


def _points(name: str, x: list[float | None], y: list[float | None], colour: str) -> Trace:
    marker = {"color": colour, "size": 4, "line": {"width": 0}}
    hover = "log R %{x:.3f}, log P %{y:.3f}<extra>%{fullData.name}</extra>"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "marker": marker,
        "hovertemplate": hover,
    }


def _line(name: str, x: list[float | None], y: list[float | None], colour: str, dash: str) -> Trace:
    line = {"color": colour, "width": 2, "dash": dash}
    mode = "lines" if len(x) > 1 else "lines+markers"
    return {"type": "scatter", "mode": mode, "name": _label(name), "x": x, "y": y, "line": line}


def _band(x: list[float | None], outline: list[float | None], colour: str, name: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x + x[::-1],
        "y": outline,
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": _label(name),
    }


def _scatter_layout() -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "log R(x) (nats)"}},
        "yaxis": {"title": {"text": "log P_π(x) (nats)"}},
        "legend": _LEGEND,
        "showlegend": True,
    }


def _steps_layout(axis: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "trajectories"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": axis}},
        "legend": _LEGEND,
        "showlegend": axis == "nats",
    }


def _colour(number: int, opacity: float | None = None) -> str:
    name = f"--s{number % NUM_COLOURS + 1}"
    return name if opacity is None else f"{name} {opacity}"


def _label(text: str) -> str:
    """Text escaped for plotly."""
    return html.escape(text, quote=False)


def _spans_decades(traces: Sequence[Trace]) -> bool:
    """True when all values are positive and span a factor of ten, so that a logarithmic axis is used."""
    values = [value for trace in traces for value in trace["y"] if value is not None]
    return bool(values) and 0 < 10 * min(values) <= max(values)


def _spread(num: int, most: int) -> Array:
    """At most `most` evenly spaced indices from 0 to num − 1, both ends included."""
    return np.unique(np.linspace(0, num - 1, min(num, most)).round().astype(int)) if num else np.empty(0, dtype=int)


def _numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, with five significant digits unless integer; None for those that are not finite."""
    return [_short(float(value)) if np.isfinite(value) else None for value in values]


def _short(value: float) -> float:
    return int(value) if value.is_integer() else float(f"{value:.5g}")
