"""Choice of a batch: which designs to order next."""

from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.campaigns.goals import Goal
from stochflow.surrogates.base import Prediction, unfitted
from stochflow.surrogates.kmer_ridge import KmerRidge

_DRAWS = 4096


class Batch(NamedTuple):
    """Designs to order, and why.

    Attributes:
        orders: int64, [num, L].
        mean, low, high: predicted score and its 80 % interval, float64, [num].
        reasons: one sentence per design.
    """

    orders: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    reasons: list[str]


def propose(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, goal: Goal, seed: int) -> Batch:
    """The best predicted of many random designs and mutants of what was measured; the same for the same arguments.

    Args:
        taken: designs that were ordered or measured before and are not proposed again, [num_taken, L].
    """
    generator = torch.Generator().manual_seed(seed)
    pool = _pool(space, evidence, taken, num, generator)
    pool = pool[torch.randperm(len(pool), generator=generator)]  # ties are not ranked by the alphabet
    prediction = predict(space, evidence, pool)
    value = -(prediction.mean - goal.target).abs() if goal.target is not None else prediction.at(1.0)
    best = value.argsort(descending=True, stable=True)[:num]
    chosen = prediction[best]
    low, high = chosen.interval()
    return Batch(pool[best], chosen.mean, low, high, ["predicted among the best"] * len(best))


def predict(space: DesignSpace, evidence: Evidence, orders: Tensor) -> Prediction:
    """Scores of sequences that are made as written; [num, L] → [num]."""
    if not len(evidence):
        return unfitted(len(orders))
    surrogate = KmerRidge(len(space.alphabet), space.length)
    shift = min(float(evidence.scores.min()), 0.0)  # surrogates take scores that are not negative
    surrogate.fit(evidence.tokens, evidence.scores - shift, evidence.variances)
    found = surrogate.predict(orders)
    return Prediction(found.mean + shift, found.deviation)


def _pool(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """Distinct feasible designs that are not taken, at least `num` of them; draws until there are enough."""
    pool = torch.empty(0, space.length, dtype=torch.int64)
    while len(pool) < num:
        shape = (_DRAWS, space.length)
        drawn = torch.randint(len(space.alphabet), shape, generator=generator)
        if len(evidence):
            parents = evidence.tokens[torch.randint(len(evidence), shape[:1], generator=generator)]
            kept = torch.rand(shape, generator=generator) < 0.8
            drawn = torch.cat([drawn, torch.where(kept, parents, drawn)])
        found = torch.cat([pool, drawn[space.feasible(drawn)]]).unique(dim=0)
        pool = _without(found, taken)
    return pool


def _without(rows: Tensor, others: Tensor) -> Tensor:
    """Distinct rows that are not among others."""
    _, labels = torch.cat([others, rows]).unique(dim=0, return_inverse=True)
    return rows[~torch.isin(labels[len(others) :], labels[: len(others)])]
