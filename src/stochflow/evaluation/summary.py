"""Judging a sampler: exact where the task can be enumerated, at temperature one and without exploration."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import pandas as pd
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from stochflow.config.schema import EvaluationConfig
from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.task import Reward, Task
from stochflow.environments.sequences.variable_length import LengthMask, VariableTask
from stochflow.evaluation import design_metrics as designs
from stochflow.models.dynamics.tabular import Dynamics
from stochflow.models.flow_network import FlowNetwork
from stochflow.sampling.policies import Policy, as_policy
from stochflow.sampling.rollout import Walk, rollout
from stochflow.sampling.score_memory import checked_scores
from stochflow.truth.histories import Histories, attainable_designs
from stochflow.truth.prefix_tree import Attainable, attainable_optimum, entropy, kl_to_target, tv_to_target

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
    top100_hamming: float | None
    num_modes: Count
    log_z: float
    log_z_true: float | None
    dynamics_ce: float | None
    dynamics_ce_floor: float
    seconds: float
    top100_edit: float | None
    unique_fraction: float
    novelty: float | None
    scored_fraction: float = 1.0
    feasible_fraction: float | None = None
    status: str
    reward_noise: str = "none"
    reward_mean: str | None = None
    known_modes: Count | None = None
    entropy_gap: float | None = None


@dataclass(frozen=True)
class Truth:
    """What is computed once per task, channel and reward, and then compared against."""

    task: Task
    channel: Channel
    reward: Reward

    @cached_property
    def histories(self) -> Histories | None:
        """How rows of tokens write designs; None where a row is a design."""
        return all_histories(self.task) if isinstance(self.task, VariableTask) else None

    @cached_property
    def designs(self) -> Tensor:
        """One row of tokens for every design, in lexicographic order, [num_designs, L]."""
        everything = self.task.all_sequences
        return everything if self.histories is None else everything[self.histories.examples]

    @cached_property
    def scores(self) -> Tensor:
        """Score of every design, float64, [num_designs]."""
        return self.task.all_scores if self.histories is None else self.task.score(self.designs).double()

    @cached_property
    def log_rewards(self) -> Tensor:
        """log R, or log E[R] where the oracle is noisy, of every design, [num_designs]."""
        return self.task.log_reward(self.designs, self.scores, self.reward)

    @cached_property
    def attainable(self) -> Attainable:
        if self.histories is not None:
            return attainable_designs(self.log_rewards, self.histories, self.channel, self.task.length)
        return attainable_optimum(self.log_rewards, self.channel, self.task.length)

    @cached_property
    def attainable_entropy(self) -> float:
        """Entropy of the designs of the policy that attains `min_kl`, in nats."""
        return entropy(self.attainable.log_probs)

    def log_probs(self, policy: Policy | FlowNetwork) -> Tensor:
        """log P(x) of every design under a policy and the true channel, [num_designs]."""
        log_probs = as_policy(policy).terminal_log_probs(self.channel)
        return log_probs if self.histories is None else self.histories.collected(log_probs)

    def optimum(self) -> dict[str, float]:
        """The best that any policy can do under this channel."""
        best = self.attainable
        return {
            "min_kl": best.min_kl,
            "min_tv": tv_to_target(best.log_probs, self.log_rewards),
            "attainable_score": float(best.log_probs.exp() @ self.scores),
            "log_z_true": best.log_z,
        }

    def judge(self, policy: Policy | FlowNetwork) -> dict[str, float]:
        """KL, regret, TV, expected score and missing entropy of a policy under the true channel."""
        log_probs = self.log_probs(policy)
        kl = kl_to_target(log_probs, self.log_rewards)
        return {
            "kl": kl,
            "regret": kl - self.attainable.min_kl,
            "tv": tv_to_target(log_probs, self.log_rewards),
            "mean_score": float(log_probs.exp() @ self.scores),
            "entropy_gap": self.attainable_entropy - entropy(log_probs),
        }


def all_histories(task: VariableTask) -> Histories:
    """Everything that can be built, and what it writes."""
    rows, rules, mask = task.all_sequences, task.rules, LengthMask(task.rules)
    possible = rules.possible(rows)
    numbers = torch.full((len(rows),), -1)
    numbers[possible] = task.designs(rows[possible]).unique(dim=0, return_inverse=True)[1]
    # in lexicographic order a new prefix begins after every so many rows
    strides = [task.num_tokens ** (task.length - depth) for depth in range(task.length)]
    allowed = [mask.next(rows[::stride, :depth]) for depth, stride in enumerate(strides)]
    return Histories(numbers, rules.log_shares(rows), allowed)


@dataclass(frozen=True)
class Sampled:
    """Designs drawn from a sampler.

    Attributes:
        walk: what was intended and what came.
        scores: score of each design, NaN where it was never paid for, float64, [num].
        log_probs: exact log P_π under the true channel, of the design or, where deletions and duplications let several
            histories write it, of the history that did, [num].
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
    tokens = task.designs(sampled.walk.outcomes)
    scored = ~sampled.scores.isnan()
    feasible = task.feasible(sampled.walk.outcomes)
    reached = task.modes_reached(sampled.walk.outcomes)
    top_tokens, top_scores = designs.top_k(tokens[scored], sampled.scores[scored], TOP)
    threshold = task.mode_threshold if config.mode_threshold is None else config.mode_threshold
    return {
        "top100_mean": float(top_scores.mean()) if len(top_scores) else None,
        "top100_hamming": designs.mean_pairwise_hamming(top_tokens),
        "top100_edit": designs.mean_pairwise_edit(top_tokens, task.padding),
        "num_modes": designs.num_modes(
            tokens[scored], sampled.scores[scored], threshold, config.mode_distance, task.padding
        ),
        "known_modes": None if reached is None else int(reached.sum()),
        "unique_fraction": designs.unique_fraction(tokens),
        "novelty": None if reference is None else designs.novelty(tokens, reference, task.padding),
        "scored_fraction": float(scored.double().mean()),
        "feasible_fraction": None if feasible is None else float(feasible.double().mean()),
    }


@torch.no_grad()
def dynamics_metrics(
    policy: Policy | FlowNetwork, dynamics: Dynamics | None, channel: Channel, walk: Walk
) -> dict[str, float | None]:
    """Cross-entropy of P̂ under the true channel, if there is a P̂, and its floor, at visited states and intentions."""
    intentions = as_policy(policy).intended(walk)
    truth = channel.log_matrices(walk.outcomes.shape[1]).exp()

    def cross_entropy(log_believed: Tensor) -> float:
        return float((intentions * -(truth * log_believed).sum(dim=-1)).sum(dim=-1).mean())

    learned = None if dynamics is None else dynamics.log_matrices(walk.outcomes.to(dynamics.device)).double().cpu()
    return {
        "dynamics_ce": None if learned is None else cross_entropy(learned),
        "dynamics_ce_floor": cross_entropy(safe_log(truth)),
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
