"""Judging a policy on a graph: exact, at temperature one and without exploration."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.sequences.task import Reward
from stochflow.evaluation.summary import TOP
from stochflow.models.dynamics.counted import GraphDynamics
from stochflow.sampling.graph_rollout import objects_of, walk
from stochflow.sampling.rollout import Walk
from stochflow.truth.dag import Attainable, attainable_optimum, node_visits, outcome_marginals, terminal_log_probs
from stochflow.truth.prefix_tree import entropy, kl_to_target, tv_to_target


@dataclass(frozen=True)
class GraphTruth:
    """What is computed once per graph and reward, and then compared against."""

    graph: Graph
    reward: Reward

    @cached_property
    def log_rewards(self) -> Tensor:
        """log R of every object, [X]."""
        return self.reward.log_reward(self.graph.scores)

    @cached_property
    def attainable(self) -> Attainable:
        return attainable_optimum(self.graph, self.log_rewards)

    @cached_property
    def attainable_entropy(self) -> float:
        """Entropy of the objects of the policy that attains `min_kl`, in nats."""
        return entropy(self.attainable.log_probs)

    def optimum(self) -> dict[str, float]:
        """The best that any policy can do on this graph."""
        best = self.attainable
        return {
            "min_kl": best.min_kl,
            "min_tv": tv_to_target(best.log_probs, self.log_rewards),
            "attainable_score": float(best.log_probs.exp() @ self.graph.scores),
            "log_z_true": best.log_z,
        }

    def judge(self, log_policy: Tensor) -> dict[str, float]:
        """KL, regret, TV, expected score and missing entropy of a policy under the true dynamics; [S, A]."""
        log_probs = terminal_log_probs(self.graph, log_policy)
        kl = kl_to_target(log_probs, self.log_rewards)
        return {
            "kl": kl,
            "regret": kl - self.attainable.min_kl,
            "tv": tv_to_target(log_probs, self.log_rewards),
            "mean_score": float(log_probs.exp() @ self.graph.scores),
            "entropy_gap": self.attainable_entropy - entropy(log_probs),
        }


@dataclass(frozen=True)
class GraphSampled:
    """Objects drawn from a policy.

    Attributes:
        walk: what was intended and what came.
        objects: what each episode made, [num].
        log_probs: exact log P_π(x), [num].
    """

    walk: Walk
    objects: Tensor
    log_probs: Tensor


def draw_objects(graph: Graph, log_policy: Tensor, num: int, generator: torch.Generator) -> GraphSampled:
    """Episodes of the policy itself."""
    made = walk(graph, log_policy, num, {"policy": generator, "channel": generator})
    objects = objects_of(graph, made.outcomes, made.valid)
    return GraphSampled(made, objects, terminal_log_probs(graph, log_policy)[objects])


def object_metrics(sampled: GraphSampled, graph: Graph, mode_threshold: float | None) -> dict[str, Any]:
    """Quality and variety of drawn objects; distances between them are not defined on every graph."""
    threshold = graph.mode_threshold if mode_threshold is None else mode_threshold
    distinct = sampled.objects.unique()
    scores = graph.scores[distinct]
    return {
        "top100_mean": float(scores.topk(min(TOP, len(scores))).values.mean()),
        "top100_hamming": None,
        "top100_edit": None,
        "num_modes": int((scores > threshold).sum()),
        "unique_fraction": len(distinct) / len(sampled.objects),
        "novelty": None,
    }


def graph_dynamics_metrics(graph: Graph, log_policy: Tensor, dynamics: GraphDynamics) -> dict[str, float]:
    """Cross-entropy of P̂ under the true dynamics, and its floor, where the policy goes and at its intentions."""
    policies = log_policy.double().exp() * graph.valid_actions
    visits = node_visits(graph, outcome_marginals(graph.dynamics, policies))[: graph.num_states]
    weights = (visits / visits.sum()).unsqueeze(-1) * policies
    truth, learned = graph.dynamics, dynamics.table()
    return {
        "dynamics_ce": float((weights * -(truth * safe_log(learned)).sum(dim=-1)).sum()),
        "dynamics_ce_floor": float((weights * -(truth * safe_log(truth)).sum(dim=-1)).sum()),
    }


def objects_frame(sampled: GraphSampled, graph: Graph, reward: Reward) -> pd.DataFrame:
    """One row per episode: the object, what was intended step by step, score, log R and log P_π."""
    scores = graph.scores[sampled.objects]
    names = list(graph.actions)
    intended = [
        " ".join(names[action] for action, going in zip(actions, steps, strict=True) if going)
        for actions, steps in zip(sampled.walk.intentions.tolist(), sampled.walk.valid.tolist(), strict=True)
    ]
    return pd.DataFrame(
        {
            "object": [graph.labels[number] for number in sampled.objects.tolist()],
            "intended": intended,
            "score": scores.numpy(),
            "log_reward": reward.log_reward(scores).numpy(),
            "log_prob": sampled.log_probs.numpy(),
        }
    )
