"""Objects drawn from a policy: their scores, their exact probabilities, and metrics of quality and diversity."""

from dataclasses import dataclass
from typing import Any, TypeGuard

import pandas as pd
import torch
from torch import Tensor

from stochflow.config.schema import EvaluationConfig
from stochflow.core.logspace import safe_log
from stochflow.environments.base import Environment
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.evaluation import design_metrics as metrics
from stochflow.evaluation.orders import NUM_OUTCOMES, outcome_log_probs, prospects
from stochflow.objectives.planning.order_values import OrderDraws
from stochflow.sampling.policies import Policy
from stochflow.sampling.rollout import Walk, rollout
from stochflow.sampling.score_memory import checked_scores

TOP = 100


@dataclass(frozen=True)
class Sampled:
    """Objects drawn from a policy.

    Attributes:
        walk: what was intended and what came.
        made: the objects, rows of tokens or numbers, [num, ...].
        scores: score of each object, NaN where it was never paid for, float64, [num].
        log_probs: exact log P_π under the true dynamics, of the object or, where deletions and duplications let several
            histories write it, of the history that did, [num]; of what came of orders, `outcome_log_probs`.
        draws: random numbers by which the outcomes of orders are drawn; None with feedback.
    """

    walk: Walk
    made: Tensor
    scores: Tensor
    log_probs: Tensor
    draws: OrderDraws | None = None


@torch.no_grad()
def draw(policy: Policy, environment: Environment, num: int, generator: torch.Generator, pay: bool = False) -> Sampled:
    """Objects from the policy itself, without exploration; scores that cost something only with `pay`."""
    streams = {"policy": generator, "channel": generator}
    walk = rollout(environment, policy.sampler(num, generator), num, streams)
    made = environment.made(walk.outcomes, walk.valid)
    known = torch.ones(num, dtype=torch.bool) if pay else environment.known(made)
    scores = torch.full((num,), torch.nan, dtype=torch.float64)
    if bool(known.any()):
        scores[known] = checked_scores(environment.score(made[known]), int(known.sum()))
    if not _orders_in(environment):
        return Sampled(walk, made, scores, policy.log_probs(walk, environment))
    log_probs = outcome_log_probs(policy, walk, environment, generator)
    shape = (NUM_OUTCOMES, environment.max_steps)
    return Sampled(walk, made, scores, log_probs, OrderDraws(torch.rand(shape, generator=generator).double()))


def _orders_in(environment: Environment) -> TypeGuard[SequenceEnvironment]:
    return environment.ordered


def design_metrics(
    sampled: Sampled, environment: Environment, config: EvaluationConfig, reference: Tensor | None
) -> dict[str, Any]:
    """Quality, diversity and novelty of a set of objects; quality among those with a score."""
    scored = ~sampled.scores.isnan()
    feasible, reached = environment.feasible(sampled.made), environment.modes_reached(sampled.made)
    threshold = environment.mode_threshold if config.mode_threshold is None else config.mode_threshold
    designs = environment.designs(sampled.made)
    if designs is None:
        return _object_metrics(sampled, threshold)
    padding = environment.padding
    top_designs, top_scores = metrics.top_k(designs[scored], sampled.scores[scored], TOP)
    return {
        "top100_mean": float(top_scores.mean()) if len(top_scores) else None,
        "top100_hamming": metrics.mean_pairwise_hamming(top_designs),
        "top100_edit": metrics.mean_pairwise_edit(top_designs, padding),
        "num_modes": metrics.num_modes(
            designs[scored], sampled.scores[scored], threshold, config.mode_distance, padding
        ),
        "known_modes": None if reached is None else int(reached.sum()),
        "unique_fraction": metrics.unique_fraction(designs),
        "novelty": None if reference is None else metrics.novelty(designs, reference, padding),
        "scored_fraction": float(scored.double().mean()),
        "feasible_fraction": None if feasible is None else float(feasible.double().mean()),
    }


def _object_metrics(sampled: Sampled, threshold: float) -> dict[str, Any]:
    """The same where there are no letters, so that distances are not defined and every good object is a mode."""
    distinct, scores = metrics.top_k(sampled.made.unsqueeze(-1), sampled.scores, len(sampled.made))
    return {
        "top100_mean": float(scores[:TOP].mean()),
        "top100_hamming": None,
        "top100_edit": None,
        "num_modes": int((scores > threshold).sum()),
        "unique_fraction": len(distinct) / len(sampled.made),
        "novelty": None,
    }


@torch.no_grad()
def dynamics_metrics(
    policy: Policy, log_beliefs: Tensor | None, environment: Environment, walk: Walk
) -> dict[str, float | None]:
    """Cross-entropy of P̂ under the true dynamics, if there is a P̂, and its floor, at states and intentions of a policy.

    Args:
        log_beliefs: log P̂, in the shape of `Environment.dynamics` or broadcastable to it.
    """
    visits = policy.visits(walk.ordered if environment.ordered else walk, environment)
    truth = environment.dynamics_along(walk.intentions, walk.outcomes)

    def cross_entropy(log_believed: Tensor) -> float:
        return float((visits * -(truth * log_believed).sum(dim=-1)).sum())

    return {
        "dynamics_ce": None if log_beliefs is None else cross_entropy(log_beliefs),
        "dynamics_ce_floor": cross_entropy(safe_log(truth)),
    }


def samples_frame(
    sampled: Sampled, environment: Environment, reward: Reward, threshold: float | None = None
) -> pd.DataFrame:
    """One row per object: what came, what was intended, score, log R and log P_π; under constraints, feasible too.

    Orders are there with their `prospects`. Where scores are predicted, they are on the scale of the measurements, and
    what these say of the object, or of the order, is there too.

    Args:
        threshold: score above which the outcomes of orders are counted; the task's own unless given.
    """
    walk, feasible = sampled.walk, environment.feasible(sampled.made)
    figures = {
        "score": sampled.scores.numpy(),
        "log_reward": environment.log_reward(sampled.made, sampled.scores, reward).numpy(),
        "log_prob": sampled.log_probs.numpy(),
        **({} if feasible is None else {"feasible": feasible.numpy()}),
    }
    frame = environment.frame(walk.intentions, walk.outcomes, walk.valid).assign(**figures)
    if _orders_in(environment):
        threshold = environment.mode_threshold if threshold is None else threshold
        frame = pd.concat([frame, prospects(walk.intentions, environment, sampled.draws, threshold)], axis=1)
    evidence, column = environment.evidence, environment.object_column
    if evidence is None:
        return frame
    for name in frame.columns.intersection(["score", "expected_score"]):
        frame[name] = evidence.own_scale(torch.tensor(frame[name].to_numpy())).numpy()
    return frame.join(evidence.remarks(list(frame[column])))
