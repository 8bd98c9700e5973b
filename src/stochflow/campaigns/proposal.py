"""Choice of a batch: which designs to order next, for their value and their difference together."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.campaigns.candidates import all_designs, enumerable, random_designs, searched_designs
from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.campaigns.goals import SCORE, Goal, Threshold
from stochflow.campaigns.score_model import ScoreModel, predict_orders
from stochflow.surrogates.base import Prediction

OPTIMISM = 1.0  # deviations above the expected score that a design is valued at
CALIBRATION = 0.05  # share of a batch that is drawn at random among the candidates
SAMPLE_BETA = 3.0  # exponent of the score where designs are drawn in proportion to it
CHECKING = "drawn at random, to check predictions"
_FEW = 8  # measurements below which a batch is spread at random
_NUM_FIRST, _NUM_FINALISTS = 20_000, 2_000  # of all designs by expected score, then by optimistic score
_NUGGET = 1e-3  # share of a variance that measuring a design leaves
_LIKELY = 0.5  # of the optimistic value that must be expected for a design to be called good rather than uncertain


class Batch(NamedTuple):
    """Designs to order, and why.

    Attributes:
        orders: int64, [num, L].
        mean, low, high: predicted score of the sequence as written and its 80 % interval, float64, [num].
        expected: predicted mean score of what the channel makes of an order, [num].
        reasons: one sentence per design.
    """

    orders: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    expected: Tensor
    reasons: list[str]


@dataclass(frozen=True)
class _Candidates:
    """Designs with what a choice rests on.

    Attributes:
        tokens: [num, L].
        value: what is expected of an order, after the channel, for the goal, [num].
        deviation: by how much that may be wrong, [num].
    """

    tokens: Tensor
    value: Tensor
    deviation: Tensor

    def rows(self, rows: Tensor) -> "_Candidates":
        return _Candidates(self.tokens[rows], self.value[rows], self.deviation[rows])


def propose(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, goal: Goal, seed: int) -> Batch:
    """Designs to order next; the same for the same arguments.

    A design is worth what the model expects of it after the channel, and a deviation more. Designs are chosen one
    after the other, each as if those before it had been measured: a Gaussian process knows how much less there would
    be to learn from one that resembles them (the variance of a process does not depend on what is measured;
    Desautels et al. 2014). A twentieth of the batch is drawn at random among the candidates, so that predictions can be
    checked on designs that were not chosen for them. Before anything is known all are random.

    Args:
        taken: designs that were ordered or measured before and are not proposed again, [num_taken, L].
    """
    generator = torch.Generator().manual_seed(seed)
    if len(evidence) < _FEW:
        return _spread(space, evidence, taken, num, generator)
    model = ScoreModel(space, evidence)
    candidates = _candidates(space, model, goal, taken, num, generator)
    num_random = math.floor(CALIBRATION * num + 0.5)
    if goal.kind == "sample":
        chosen = _drawn(candidates, float(evidence.scores.min()), num - num_random, generator)
        reasons = ["drawn in proportion to its expected score"] * len(chosen)
    else:
        chosen, reasons = _greedy(model, candidates, num - num_random)
    orders = candidates.tokens[chosen]
    shuffled = candidates.tokens[torch.randperm(len(candidates.tokens), generator=generator)]
    others = torch.cat([shuffled, random_designs(space, 2 * num, generator)])
    random = _without(others, torch.cat([taken, orders]))[: num - len(orders)]
    reasons += [CHECKING] * len(random)
    orders = torch.cat([orders, random])
    return Batch(orders, *model.predict_orders(orders), reasons)


def _spread(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, generator: torch.Generator) -> Batch:
    """Random designs: there is next to nothing to choose by."""
    orders = _without(random_designs(space, 2 * num + len(taken), generator), taken)[:num]
    reasons = ["drawn at random, because hardly anything has been measured"] * len(orders)
    return Batch(orders, *predict_orders(space, evidence, orders), reasons)


def _candidates(
    space: DesignSpace, model: ScoreModel, goal: Goal, taken: Tensor, num: int, generator: torch.Generator
) -> _Candidates:
    """Feasible designs that are not taken, the best expected ones of a small space or those of a search."""
    value_of = _value_of(goal)
    if enumerable(space):
        tokens = all_designs(space)
        value = value_of(model.expected_everywhere(tokens))
        first = _best(value.masked_fill(~space.feasible(tokens), -torch.inf), _NUM_FIRST + len(taken))
        tokens, value = tokens[first], value[first]
    else:

        def optimistic(designs: Tensor) -> Tensor:
            found = model.predict(designs)
            return value_of(found.mean) + (OPTIMISM if goal.target is None else 0.0) * found.deviation

        tokens = searched_designs(space, model.evidence, optimistic, generator)
        value = value_of(model.expected(tokens))
    new = _is_new(tokens, taken) & space.feasible(tokens)
    tokens, value = tokens[new], value[new]
    shuffled = torch.randperm(len(tokens), generator=generator)  # ties are not ranked by the alphabet
    tokens, value = tokens[shuffled], value[shuffled]
    deviation = model.predict(tokens).deviation
    if goal.target is not None:  # a design is no nearer to a target because little is known of it
        value = value - OPTIMISM * deviation
    passing = _passing(space, model, goal, tokens)
    least = value_of(model.evidence.scores).min()
    return _Candidates(tokens, (value - least) * passing + least, deviation * passing)


def _value_of(goal: Goal) -> Callable[[Tensor], Tensor]:
    """What a score is worth for the goal, as a function of [num] → [num]."""
    target = goal.target
    return (lambda scores: scores) if target is None else (lambda scores: -(scores - target).abs())


def _passing(space: DesignSpace, model: ScoreModel, goal: Goal, tokens: Tensor) -> Tensor:
    """Predicted probability of keeping all thresholds, as if they were independent; [num, L] → [num]."""
    passing = torch.ones(len(tokens), dtype=torch.float64)
    for threshold in goal.thresholds:
        found = _property_model(space, model, threshold)
        if found is not None:
            passing *= _probability(found.predict(tokens), threshold)
    return passing


def _property_model(space: DesignSpace, model: ScoreModel, threshold: Threshold) -> ScoreModel | None:
    """Model of the property of a threshold; None where too little of it was measured."""
    if threshold.name == SCORE:
        return model
    values = model.evidence.properties[threshold.name]
    known = ~values.isnan()
    return (
        ScoreModel(space, Evidence(model.evidence.tokens[known], values[known])) if int(known.sum()) >= _FEW else None
    )


def _probability(prediction: Prediction, threshold: Threshold) -> Tensor:
    """P(the bound is kept) under normal errors; [num] → [num]."""
    above = torch.special.ndtr((prediction.mean - threshold.bound) / prediction.deviation)
    return above if threshold.at_least else 1.0 - above


def _drawn(candidates: _Candidates, least: float, num: int, generator: torch.Generator) -> Tensor:
    """Different candidates, drawn in proportion to (value above the lowest measured score)^β: Gumbel-top-k."""
    log_rewards = SAMPLE_BETA * (candidates.value - least).clamp(min=1e-9).log()
    clocks = torch.empty_like(log_rewards).exponential_(generator=generator)
    return _best(log_rewards - clocks.log(), num)


def _greedy(model: ScoreModel, candidates: _Candidates, num: int) -> tuple[Tensor, list[str]]:
    """Rows chosen one after the other by value and what there is still to learn from them, and why."""
    finalists = _best(candidates.value + OPTIMISM * candidates.deviation, _NUM_FINALISTS)
    candidates = candidates.rows(finalists)
    covariance = model.resemblance(candidates.tokens)
    variances = covariance.diagonal().clamp(min=_NUGGET).clone()
    left = torch.zeros(len(variances), dtype=torch.float64)  # −inf in rows that are chosen
    chosen, reasons = [], []
    spread = candidates.deviation
    top = float(candidates.value.max())
    for _ in range(min(num, len(variances))):
        doubt = spread * (covariance.diagonal().clamp(min=0.0) / variances).sqrt()
        row = int((candidates.value + OPTIMISM * doubt + left).argmax())
        left[row] = -torch.inf
        chosen.append(row)
        reasons.append(_reason(top - float(candidates.value[row]), float(spread[row])))
        column = covariance[:, row].clone()
        covariance -= torch.outer(column, column / (column[row] + _NUGGET))
    return finalists[torch.tensor(chosen, dtype=torch.int64)], reasons


def _reason(behind: float, deviation: float) -> str:
    """Why a design is in the batch: expected to be good, or good if the model errs in its favour."""
    if behind <= _LIKELY * deviation:
        return "expected to be among the best"
    return "uncertain, and perhaps among the best"


def _best(values: Tensor, num: int) -> Tensor:
    """Rows of the largest values, the largest first; [num_rows] → [at most num]."""
    return values.argsort(descending=True, stable=True)[:num]


def _is_new(rows: Tensor, others: Tensor) -> Tensor:
    """True for rows that are not among others; [num, L] → [num]."""
    _, labels = torch.cat([others, rows]).unique(dim=0, return_inverse=True)
    return ~torch.isin(labels[len(others) :], labels[: len(others)])


def _without(rows: Tensor, others: Tensor) -> Tensor:
    """Rows that are not among others, in their order."""
    return rows[_is_new(rows, others)]
