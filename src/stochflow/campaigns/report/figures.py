"""Charts of rounds: scores, predictions against measurements, calibration, and further properties."""

import math
from collections.abc import Sequence
from typing import Any

from stochflow.campaigns.goals import Goal, Threshold
from stochflow.campaigns.report.rounds import Round, mean_reach, round_name, share_interval
from stochflow.reports.html.figure import Figure, Trace, axes, axis, evenly_spaced, label, line, numbers, series_colour
from stochflow.surrogates.base import INTERVAL

_MAX_POINTS = 1500
_SHOWN_LETTERS = 60
_REACH = 1.96  # deviations on either side of a 95 % interval


def progress(rounds: Sequence[Round], goal: Goal) -> Figure:
    """Mean and best of every round with intervals, and the mean that was predicted."""
    measured = [each for each in rounds if len(each.outcomes)]
    best = [(each, row) for each in measured if (row := each.best) is not None]
    deviations = [math.sqrt(row["variance"]) for _, row in best]
    means = [each.outcomes["score"] for each in measured]
    predicted = [each for each in rounds if len(each.orders)]
    traces = [
        _course("best", _numbers_of(each for each, _ in best), [row["score"] for _, row in best], "--s2"),
        _course("mean", _numbers_of(measured), [mean.mean() for mean in means], "--s1"),
        _course(
            "mean predicted", _numbers_of(predicted), [each.orders["predicted"].mean() for each in predicted], "--s1"
        ),
    ]
    traces[0]["error_y"] = _errors([_REACH * deviation for deviation in deviations], "--s2")
    traces[1]["error_y"] = _errors([mean_reach(mean) for mean in means], "--s1")
    traces[2] |= {"mode": "markers", "marker": {"color": "--s1", "symbol": "circle-open", "size": 10}}
    numbered = [each.number for each in rounds]
    if goal.target is not None:
        traces.append(line("target", [min(numbered), max(numbered)], [goal.target] * 2, "--text", "dot"))
    text = (
        "The mean of a round with its 95 % interval by Student's t; the best with that of its replicates or the "
        "variance that was told, where there are any; and the mean of what was predicted for the orders as "
        "written when they were asked for."
    )
    layout = axes(_round_axis(numbered), axis("score"), showlegend=True)
    return Figure("Scores of the rounds", text, [trace for trace in traces if trace["x"]], layout)


def predicted_against_measured(rounds: Sequence[Round]) -> Figure:
    """Every prediction that was put to the test, with its interval."""
    tested = [each for each in rounds if len(each.checked)]
    most = max(1, _MAX_POINTS // max(len(tested), 1))
    traces = [_predictions(each, most) for each in tested]
    ends = [value for trace in traces for value in (*trace["x"], *trace["y"]) if value is not None]
    traces.append(line("as predicted", [min(ends), max(ends)], [min(ends), max(ends)], "--text", "dot"))
    thinned = any(len(each.checked) > most for each in tested)
    text = (
        "What was predicted when the design was asked for, with its 80 % interval, and what was measured. Designs that "
        "were sequenced and came out otherwise are left out." + (" Evenly thinned." if thinned else "")
    )
    layout = axes(axis("predicted score"), axis("measured score"), showlegend=True)
    return Figure("Predicted against measured", text, traces, layout)


def calibration(rounds: Sequence[Round]) -> Figure:
    """Share of measurements inside their 80 % intervals, by round."""
    tested = [each for each in rounds if len(each.checked)]
    counts = [(int(each.checked["inside"].sum()), len(each.checked)) for each in tested]
    shares = [inside / num for inside, num in counts]
    bounds = [share_interval(*count) for count in counts]
    course = _course("inside", _numbers_of(tested), shares, "--s1")
    course["error_y"] = {
        **_errors([high - share for (_, high), share in zip(bounds, shares, strict=True)], "--s1"),
        "symmetric": False,
        "arrayminus": numbers(share - low for (low, _), share in zip(bounds, shares, strict=True)),
    }
    course |= {"customdata": [[*count] for count in counts], "mode": "markers"}
    course["hovertemplate"] = "%{customdata[0]} of %{customdata[1]}<extra></extra>"
    ends = [min(course["x"]) - 0.5, max(course["x"]) + 0.5]
    traces = [course, line(f"{100 * INTERVAL:.0f} %", ends, [INTERVAL] * 2, "--text", "dot")]
    text = (
        "The share of measurements inside their 80 % intervals, with its own 95 % interval after Wilson. Below the "
        "line, the predictions were too sure. Intervals do not allow for the noise of a single measurement, and "
        "designs that were chosen because much was expected of them fall short more often than others."
    )
    layout = axes(_round_axis(course["x"], range=ends), axis("share inside", range=[-0.03, 1.03]), showlegend=True)
    return Figure("Calibration", text, traces, layout)


def property_scatter(rounds: Sequence[Round], threshold: Threshold) -> Figure:
    """A further property against the score, and the bound that it must keep."""
    measured = [(each, each.outcomes.dropna(subset=[threshold.name])) for each in rounds]
    traces = [
        _points(each, rows["measured"].tolist(), numbers(rows["score"]), numbers(rows[threshold.name]))
        for each, rows in measured
        if len(rows)
    ]
    scores = [score for trace in traces for score in trace["x"]]
    ends = [min(scores), max(scores)] if scores else [0, 1]
    traces.append(line(str(threshold), ends, [threshold.bound] * 2, "--text", "dot"))
    side = "below" if threshold.at_least else "above"
    text = f"Designs {side} the dotted line break the threshold and are no candidates for the best."
    return Figure(f"{threshold.name} and score", text, traces, axes(axis("score"), axis(label(threshold.name)), True))


def _predictions(each: Round, most: int) -> Trace:
    rows = each.checked.iloc[evenly_spaced(len(each.checked), most)]
    trace = _points(each, rows["design"].tolist(), numbers(rows["predicted"]), numbers(rows["score"]))
    bars = {
        "type": "data",
        "symmetric": False,
        "array": numbers(rows["high"] - rows["predicted"]),
        "arrayminus": numbers(rows["predicted"] - rows["low"]),
        "color": f"{series_colour(each.number)} 0.25",
        "thickness": 1,
        "width": 0,
    }
    return {**trace, "error_x": bars}


def _points(each: Round, designs: list[str], x: list[float | None], y: list[float | None]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": each.title,
        "x": x,
        "y": y,
        "text": [label(design[:_SHOWN_LETTERS]) for design in designs],
        "marker": {"color": f"{series_colour(each.number)} 0.7", "size": 6},
        "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def _course(name: str, x: list[int], y: list[float], colour: str) -> Trace:
    return {**line(name, x, numbers(y), colour), "mode": "lines+markers", "marker": {"color": colour, "size": 8}}


def _errors(reach: list[float], colour: str) -> dict[str, Any]:
    """Error bars; none where the reach is NaN."""
    return {"type": "data", "array": numbers(reach), "color": colour, "thickness": 1.5}


def _round_axis(rounds: Sequence[int], **more: Any) -> dict[str, Any]:
    """An axis of rounds, at most some twenty of which are named."""
    named = [rounds[row] for row in evenly_spaced(len(rounds), 20)]
    return axis("round", tickvals=named, ticktext=[round_name(number) for number in named], **more)


def _numbers_of(rounds: Any) -> list[int]:
    return [each.number for each in rounds]
