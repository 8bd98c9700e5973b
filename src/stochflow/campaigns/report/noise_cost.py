"""What the noise between order and outcome cost: as the model expects it, and as it was measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.campaigns.report.rounds import Round, mean_reach
from stochflow.campaigns.score_model import ScoreModel
from stochflow.reports.html.figure import Figure, Trace, axes, axis, numbers

_FEW = 8  # measurements below which a model says nothing about noise


@dataclass(frozen=True)
class NoiseCost:
    """Mean scores of the orders of a round; NaN where nothing is known.

    Attributes:
        title: of the round.
        written: what the model expects of the orders if they are made as written.
        expected: what it expects of them after the channel.
        exact, outcomes: measured mean where the order itself was found by sequencing, and of all that was sequenced.
        exact_reach, outcomes_reach: half the 95 % intervals of these.
        num_exact, num_outcomes: how many there are of each.
    """

    title: str
    written: float
    expected: float
    exact: float
    exact_reach: float
    num_exact: int
    outcomes: float
    outcomes_reach: float
    num_outcomes: int


def noise_costs(
    rounds: Sequence[Round], evidence: Evidence, space: DesignSpace, sequenced: set[str]
) -> list[NoiseCost]:
    """Of every round of orders; all are expected by one model of everything that is known now.

    Args:
        sequenced: designs of which an observed sequence was told.
    """
    asked = [each for each in rounds if len(each.orders)]
    designs = [design for each in asked for design in each.orders["design"]]
    if len(evidence) < _FEW or space.channel.slip == 0.0 or not designs:
        written = expected = pd.Series(math.nan, index=designs)
    else:
        model, tokens = ScoreModel(space, evidence), space.alphabet.encode(designs)
        written = pd.Series(model.predict_mean(tokens).numpy(), index=designs)
        expected = pd.Series(model.expected(tokens).numpy(), index=designs)
    return [
        _cost(
            each, float(written[each.orders["design"]].mean()), float(expected[each.orders["design"]].mean()), sequenced
        )
        for each in asked
    ]


def noise_bars(costs: Sequence[NoiseCost]) -> Figure:
    """Bars of the means of every round."""
    titles = [cost.title for cost in costs]
    rows = {
        "expected as written": ("--s1 0.45", [cost.written for cost in costs], None),
        "expected after the noise": ("--s1", [cost.expected for cost in costs], None),
        "measured, made as written": (
            "--s2 0.45",
            [cost.exact for cost in costs],
            [cost.exact_reach for cost in costs],
        ),
        "measured, all": ("--s2", [cost.outcomes for cost in costs], [cost.outcomes_reach for cost in costs]),
    }
    traces = [
        _bars(name, titles, values, reach, colour)
        for name, (colour, values, reach) in rows.items()
        if any(map(math.isfinite, values))
    ]
    text = (
        "Mean scores of the orders of each round. What is expected is what a model of everything that is known now "
        "says of the orders as written, and of what the noise makes of them. What was measured counts only wells that "
        "were sequenced: those in which the order itself was found, and all; lines are 95 % intervals."
    )
    layout = {
        **axes(axis("", type="category"), axis("mean score"), showlegend=True),
        "barmode": "group",
        "bargap": 0.35,
    }
    return Figure("What the noise cost", text, traces, layout)


def _cost(each: Round, written: float, expected: float, sequenced: set[str]) -> NoiseCost:
    found = each.outcomes[each.outcomes["design"].isin(sequenced)]
    exact = found.loc[found["design"] == found["measured"], "score"]
    measured = (
        exact.mean(),
        mean_reach(exact),
        len(exact),
        found["score"].mean(),
        mean_reach(found["score"]),
        len(found),
    )
    return NoiseCost(each.title, written, expected, *measured)


def _bars(name: str, titles: list[str], values: list[float], reach: list[float] | None, colour: str) -> Trace:
    errors = {} if reach is None else {"error_y": {"type": "data", "array": numbers(reach), "color": "--text"}}
    bars = {"type": "bar", "name": name, "x": titles, "y": numbers(values), "marker": {"color": colour}, **errors}
    return {**bars, "hovertemplate": "%{x}: %{y:.4g}<extra>%{fullData.name}</extra>"}
