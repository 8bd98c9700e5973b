"""Judging a sampler: exact where the task can be enumerated, at temperature one and without exploration."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import pandas as pd
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from stochflow.channels import Channel
from stochflow.config import EvaluationConfig
from stochflow.enumerated.tree import (
    Attainable,
    attainable_optimum,
    kl_to_target,
    tv_to_target,
)
from stochflow.logmath import safe_log
from stochflow.metrics import designs
from stochflow.models.dynamics import Dynamics
from stochflow.models.flow_network import FlowNetwork
from stochflow.planning.memory import checked_scores
from stochflow.policies import Policy, as_policy
from stochflow.rollout import Walk, rollout
from stochflow.tasks.base import Reward, Task

TOP = 100
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Summary(BaseModel):
    """What `summary.json` and `--json` hold; `docs/metrics.md` defines every key. None: cannot be computed."""

    task: str
    method: str
    noise: float | str
    beta: float
    seed: Count
    steps: Count
    trajectories: Count
    oracle_calls: Count
    kl: float | None
    min_kl: float | None
    regret: float | None
    tv: float | None
    min_tv: float | None
    mean_score: float | None
    attainable_score: float | None
    top100_mean: float | None
    top100_hamming: float
    num_modes: Count
    log_z: float
    log_z_true: float | None
    dynamics_ce: float
    dynamics_ce_floor: float
    seconds: float
    top100_edit: float
    unique_fraction: float
    novelty: float | None
    scored_fraction: float = 1.0
    feasible_fraction: float | None = None
    status: str
    reward_noise: str = "none"
    reward_mean: str | None = None
    known_modes: Count | None = None


@dataclass(frozen=True)
class Truth:
    """What is computed once per task, channel and reward, and then compared against."""

    task: Task
    channel: Channel
    reward: Reward

    @cached_property
    def log_rewards(self) -> Tensor:
        """log R, or log E[R] where the oracle is noisy, of every sequence in lexicographic order, [K^L]."""
        return self.task.log_reward(self.task.all_sequences, self.task.all_scores, self.reward)

    @cached_property
    def attainable(self) -> Attainable:
        return attainable_optimum(self.log_rewards, self.channel, self.task.length)

    def optimum(self) -> dict[str, float]:
        """The best that any policy can do under this channel."""
        best = self.attainable
        return {
            "min_kl": best.min_kl,
            "min_tv": tv_to_target(best.log_probs, self.log_rewards),
            "attainable_score": float(best.log_probs.exp() @ self.task.all_scores),
            "log_z_true": best.log_z,
        }

    def judge(self, policy: Policy | FlowNetwork) -> dict[str, float]:
        """KL, regret, TV and expected score of a policy under the true channel."""
        log_probs = as_policy(policy).terminal_log_probs(self.channel)
        kl = kl_to_target(log_probs, self.log_rewards)
        return {
            "kl": kl,
            "regret": kl - self.attainable.min_kl,
            "tv": tv_to_target(log_probs, self.log_rewards),
            "mean_score": float(log_probs.exp() @ self.task.all_scores),
        }


@dataclass(frozen=True)
class Sampled:
    """Designs drawn from a sampler.

    Attributes:
        walk: what was intended and what came.
        scores: score of each design, NaN where it was never paid for, float64, [num].
        log_probs: exact log P_π(x) under the true channel, [num].
    """

    walk: Walk
    scores: Tensor
    log_probs: Tensor


@torch.no_grad()
def draw(
    policy: Policy | FlowNetwork,
    task: Task,
    channel: Channel,
    num: int,
    generator: torch.Generator,
    pay: bool = False,
) -> Sampled:
    """Designs from the policy itself, through the channel; scores that cost something only with `pay`."""
    policy = as_policy(policy)
    streams = {"policy": generator, "channel": generator}
    walk = rollout(policy.sampler(num, generator), channel, (num, task.length), streams)
    known = torch.ones(num, dtype=torch.bool) if pay else task.known(walk.outcomes)
    scores = torch.full((num,), torch.nan, dtype=torch.float64)
    if bool(known.any()):
        scores[known] = checked_scores(task.score(walk.outcomes[known]), int(known.sum()))
    return Sampled(walk, scores, policy.log_probs(walk.outcomes, channel))


def design_metrics(sampled: Sampled, task: Task, config: EvaluationConfig, reference: Tensor | None) -> dict[str, Any]:
    """Quality, diversity and novelty of a set of designs; quality among those with a score."""
    tokens = sampled.walk.outcomes
    scored = ~sampled.scores.isnan()
    feasible, reached = task.feasible(tokens), task.modes_reached(tokens)
    top_tokens, top_scores = designs.top_k(tokens[scored], sampled.scores[scored], TOP)
    threshold = task.mode_threshold if config.mode_threshold is None else config.mode_threshold
    return {
        "top100_mean": float(top_scores.mean()) if len(top_scores) else None,
        "top100_hamming": designs.mean_pairwise_hamming(top_tokens),
        "top100_edit": designs.mean_pairwise_edit(top_tokens),
        "num_modes": designs.num_modes(tokens[scored], sampled.scores[scored], threshold, config.mode_distance),
        "known_modes": None if reached is None else int(reached.sum()),
        "unique_fraction": designs.unique_fraction(tokens),
        "novelty": None if reference is None else designs.novelty(tokens, reference),
        "scored_fraction": float(scored.double().mean()),
        "feasible_fraction": None if feasible is None else float(feasible.double().mean()),
    }


@torch.no_grad()
def dynamics_metrics(
    policy: Policy | FlowNetwork, dynamics: Dynamics, channel: Channel, walk: Walk
) -> dict[str, float]:
    """Cross-entropy of P̂ under the true channel, and its floor, at visited states and the policy's intentions."""
    intentions = as_policy(policy).intended(walk)
    log_learned = dynamics.log_matrices(walk.outcomes.to(dynamics.device)).double().cpu()
    truth = channel.log_matrices(walk.outcomes.shape[1]).exp()
    per_intention = -(truth * log_learned).sum(dim=-1)
    floor = -(truth * safe_log(truth)).sum(dim=-1)
    return {
        "dynamics_ce": float((intentions * per_intention).sum(dim=-1).mean()),
        "dynamics_ce_floor": float((intentions * floor).sum(dim=-1).mean()),
    }


def samples_frame(sampled: Sampled, task: Task, reward: Reward) -> pd.DataFrame:
    """One row per design: what came, what was intended, score, log R and log P_π; under constraints, feasible too."""
    feasible = task.feasible(sampled.walk.outcomes)
    return pd.DataFrame(
        {
            "sequence": task.alphabet.decode(sampled.walk.outcomes),
            "intended": task.alphabet.decode(sampled.walk.intentions),
            "score": sampled.scores.numpy(),
            "log_reward": task.log_reward(sampled.walk.outcomes, sampled.scores, reward).numpy(),
            "log_prob": sampled.log_probs.numpy(),
            **({} if feasible is None else {"feasible": feasible.numpy()}),
        }
    )
