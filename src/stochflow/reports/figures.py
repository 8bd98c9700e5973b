"""Figures of runs and sweeps as plotly JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from stochflow.core.arrays import Array
from stochflow.evaluation.bootstrap import median_interval
from stochflow.reports.checkpoint import Channels, DesignDistribution, random_subset
from stochflow.reports.groups import Group, Measure, ceiling, curve
from stochflow.reports.html.figure import (
    NUM_COLOURS,
    Figure,
    Trace,
    axes,
    axis,
    band,
    evenly_spaced,
    label,
    line,
    numbers,
    series_colour,
)

NUM_POINTS = 2000
_NUM_BINS = 24
# a curve over many seeds has a point wherever one of them was evaluated
_MAX_CURVE_POINTS = 48
_MAX_STEPS = 200
_DASHES = ("solid", "dash", "dot")
_PATTERNS = ("", "/", ".")
_UNITS = {"trajectories": "trajectories", "oracle_calls": "oracle calls", "seconds": "training time (seconds)"}


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
                "name": label(method),
                "x": [position for position, _ in rows],
                "y": numbers(medians),
                "marker": {"color": series_colour(number), "pattern": {"shape": _PATTERNS[number // NUM_COLOURS % 3]}},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": numbers(high - middle for (_, high), middle in zip(bounds, medians, strict=True)),
                    "arrayminus": numbers(middle - low for (low, _), middle in zip(bounds, medians, strict=True)),
                    "color": "--text",
                    "thickness": 1.5,
                },
                "customdata": [[label(conditions[position]), len(values)] for position, values in rows],
                "hovertemplate": "%{customdata[0]}<br>%{y:.4g}, %{customdata[1]} seeds<extra>%{fullData.name}</extra>",
            }
        )
    ticks = {"tickvals": list(positions.values()), "ticktext": [label(name) for name in conditions]}
    x, y = axis("condition", **ticks), axis(measure.axis, rangemode="tozero")
    layout = {"barmode": "group", "bargap": 0.35, **axes(x, y, showlegend=True)}
    text = (
        f"{measure.meaning} Bars are medians over seeds; lines are 95 % bootstrap intervals of the median, "
        "or lowest to highest where there are fewer than three seeds."
    )
    return Figure(f"{measure.title} by method and noise", text, traces, layout)


def learning_curves(groups: Sequence[Group], measure: Measure, along: str, methods: Sequence[str]) -> Figure:
    """A measure against trajectories, oracle calls or seconds, one line per method, and its ceiling if one is known.

    Args:
        methods: of the whole page, which determine the colours.
    """
    traces: list[Trace] = []
    for group in groups:
        found = curve(group.runs, measure.key, along)
        if found is None:
            continue
        keep = evenly_spaced(len(found.x), _MAX_CURVE_POINTS)
        x, low, middle, high = (numbers(part[keep]) for part in (found.x, found.low, found.median, found.high))
        drawn = _line_in_band(group.method, x, (low, middle, high), methods.index(group.method))
        traces += drawn if len(group.runs) > 1 else drawn[1:]
    ceilings = _ceilings(groups, measure, traces)
    linear = {"rangemode": "tozero" if measure.from_zero else "normal"}
    scale = {"type": "log"} if measure.is_logarithmic and _spans_decades(traces) else linear
    x_axis, y_axis = axis(_UNITS[along], rangemode="tozero"), axis(measure.axis, **scale)
    layout = {"hovermode": "x", **axes(x_axis, y_axis, showlegend=len(groups) > 1 or bool(ceilings))}
    text = "The same against the time that training took." if along == "seconds" else measure.meaning
    if ceilings and along != "seconds":
        text += " The dotted line is the most that any policy or design could have."
    return Figure(f"{measure.title} against {along.replace('_', ' ')}", text, traces + ceilings, layout)


def _ceilings(groups: Sequence[Group], measure: Measure, traces: Sequence[Trace]) -> list[Trace]:
    """A dotted line as wide as the traces at every ceiling that a run knows; runs of one target know the same."""
    reached = [x for trace in traces for x in trace["x"] if x is not None]
    known = [found for group in groups for run in group.runs if (found := ceiling(run, measure.key)) is not None]
    if not reached:
        return []
    ends = [min(reached), max(reached)]
    # rounded to hundredths: the same ceiling from J plus regret differs in its last digits
    heights = sorted({round(height, 2) for height in known})
    return [line(f"ceiling {height:g}", ends, [height, height], "--text", "dot") for height in heights]


def probability_scatter(distribution: DesignDistribution) -> Figure:
    """log P_π against log R of a random subset of sequences, for sampler and optimum, with quantiles over all."""
    kept = random_subset(distribution, NUM_POINTS)
    num = len(distribution.log_rewards)
    x = numbers(distribution.log_rewards[kept])
    clouds = (
        ("sampler", distribution.log_probs, "--s1 0.4"),
        ("attainable optimum", distribution.attainable, "--s2 0.4"),
    )
    traces: list[Trace] = [_points(name, x, numbers(values[kept]), colour) for name, values, colour in clouds]
    middle, low, high = _quantile_lines(distribution.log_rewards, distribution.log_probs)
    ends = [float(distribution.log_rewards[kept].min()), float(distribution.log_rewards[kept].max())]
    target = numbers(end - distribution.log_z for end in ends)
    traces += [
        line("target R/Z", numbers(ends), target, "--text", "dot"),
        line("sampler, 5 and 95 %", *low, "--s1", "dash"),
        {**line("", *high, "--s1", "dash"), "showlegend": False},
        line("sampler, median", *middle, "--s1"),
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
    points = _points("designs", numbers(kept["log_reward"]), numbers(kept["log_prob"]), "--s1 0.6")
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
        "y": numbers(100.0 * share for share in unbalanced),
        "marker": {"color": "--s2"},
        "hovertemplate": "%{x} letters: %{y:.3g} %<extra></extra>",
    }
    layout = {
        "xaxis": axis("letters of the prefix", dtick=max(1, len(unbalanced) // 12)),
        "yaxis": axis("prefixes out of reach (%)", range=[0, max(105 * max(unbalanced), 1)]),
    }
    text = (
        "Noise puts a floor under every next letter. Here is the share of prefixes with a letter whose target share is "
        "below it, so that no policy can balance them."
    )
    return Figure("What the noise puts out of reach", text, [trace], layout)


def term_curves(metrics: pd.DataFrame) -> list[Figure]:
    """Curves of the terms that a method logs: entropy ratio, dynamics loss, and terms with mean and deviation."""
    figures, rows = [], metrics.iloc[evenly_spaced(len(metrics), _MAX_STEPS)]
    x = numbers(rows.get("trajectories", ()))
    for key, title, unit, text in (
        (
            "log_entropy_ratio",
            "Entropy ratio",
            "mean log r_γ",
            "How unequal the policy's uncertainty is across states of one depth; 0 means all are equally uncertain.",
        ),
        ("dynamics_loss", "Dynamics loss", "L_dyn", "The balance of exploration and exploitation at visited states."),
    ):
        if key in metrics and metrics[key].notna().any():
            figures.append(Figure(title, text, [line(title, x, numbers(rows[key]), "--s1")], _steps_layout(unit)))
    stems = [str(name).removesuffix("_mean") for name in metrics if str(name).endswith("_mean")]
    stems = [stem for stem in stems if f"{stem}_std" in metrics and metrics[f"{stem}_mean"].notna().any()]
    if stems:
        traces: list[Trace] = []
        for number, stem in enumerate(stems):
            middle, spread = rows[f"{stem}_mean"], rows[f"{stem}_std"]
            y = numbers(middle - spread), numbers(middle), numbers(middle + spread)
            traces += _line_in_band(stem.replace("_", " "), x, y, number)
        text = "The terms of the residual that training drives to zero: mean over a batch, and one standard deviation."
        figures.append(Figure("Terms of the balance (ll_diff)", text, traces, _steps_layout("nats")))
    return figures


def channel_maps(channels: Channels, position: int | None) -> list[Figure]:
    """Heat maps of true and learned channel and their difference, at one position or averaged over all."""

    def shown(table: Array) -> Array:
        return table.mean(axis=0) if position is None else table[position]

    truth, letters = shown(channels.truth), channels.letters
    true_map = _heat_map("True channel", "P(outcome | intention).", truth, letters)
    if channels.learned is None:
        return [true_map]
    learned = shown(channels.learned)
    largest = max(float(np.abs(channels.learned - channels.truth).max()), 1e-3)
    name = "Known to the method" if channels.is_known else "Learned channel"
    text = "Orange: believed too likely. Blue: too unlikely."
    return [
        true_map,
        _heat_map(name, "The same, as the sampler sees it.", learned, letters),
        _heat_map("Learned minus true", text, learned - truth, letters, largest),
    ]


def _heat_map(title: str, text: str, table: Array, letters: list[str], largest: float | None = None) -> Figure:
    """Map of probabilities, or of differences between −largest and largest."""
    signed = largest is not None
    colours = ("--cold", "--heat0", "--hot") if signed else ("--heat0", "--heat1", "--heat2")
    names = [label(letter) for letter in letters]
    trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": [numbers(row) for row in table],
        "colorscale": [[0, colours[0]], [0.5, colours[1]], [1, colours[2]]],
        "zmin": 0.0 if largest is None else -largest,
        "zmax": 1.0 if largest is None else largest,
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "hovertemplate": "intended %{y}, came %{x}: %{z:.4f}<extra></extra>",
    }
    if len(letters) <= 6:
        trace |= {"texttemplate": "%{z:+.3f}" if signed else "%{z:.3f}"}
    letters_only = {"type": "category", "showgrid": False}
    layout = {
        "xaxis": axis("outcome", **letters_only),
        "yaxis": axis("intention", autorange="reversed", **letters_only),
    }
    return Figure(title, text, [trace], layout)


def _quantile_lines(x: Array, y: Array) -> list[tuple[list[float | None], list[float | None]]]:
    """Median, 5 % and 95 % quantile of y in equally full bins of x, as pairs of coordinates."""
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, min(_NUM_BINS, len(order)))
    centres = numbers(float(np.median(x[part])) for part in parts)
    return [(centres, numbers(float(np.quantile(y[part], level)) for part in parts)) for level in (0.5, 0.05, 0.95)]


def _points(name: str, x: list[float | None], y: list[float | None], colour: str) -> Trace:
    marker = {"color": colour, "size": 4, "line": {"width": 0}}
    hover = "log R %{x:.3f}, log P %{y:.3f}<extra>%{fullData.name}</extra>"
    points = {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y}
    return {**points, "marker": marker, "hovertemplate": hover}


def _line_in_band(
    name: str, x: list[float | None], y: tuple[list[float | None], list[float | None], list[float | None]], number: int
) -> list[Trace]:
    """Band between the lower and the upper line of y, then the middle line, in the colour and dashes of a number."""
    low, middle, high = y
    colour = series_colour(number)
    drawn = line(name, x, middle, colour, _DASHES[number // NUM_COLOURS % 3])
    return [band(name, x, low, high, f"{colour} 0.18"), {**drawn, "legendgroup": label(name)}]


def _scatter_layout() -> dict[str, Any]:
    return axes(axis("log R(x) (nats)"), axis("log P_π(x) (nats)"), showlegend=True)


def _steps_layout(unit: str) -> dict[str, Any]:
    return axes(axis("trajectories", rangemode="tozero"), axis(unit), showlegend=unit == "nats")


def _spans_decades(traces: Sequence[Trace]) -> bool:
    """True when all values are positive and span a factor of ten, so that a logarithmic axis is used."""
    values = [value for trace in traces for value in trace["y"] if value is not None]
    return bool(values) and 0 < 10 * min(values) <= max(values)
