"""What is true of an environment and a reward, computed once and then compared against."""

import math
from abc import ABC, abstractmethod
from functools import cached_property, singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stochflow.environments.base import Environment
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.memory_channels import MemoryChannel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment
from stochflow.environments.sequences.variable_length import VariableTask
from stochflow.truth import dag, prefix_tree
from stochflow.truth.automaton import (
    AutomatonOptimum,
    AutomatonReward,
    automaton_optimum,
    automaton_reward,
    refuse_list,
)
from stochflow.truth.histories import Histories, all_histories, attainable_designs
from stochflow.truth.information import Information, InformedOptimum, from_pairs, informed_optimum, revealed
from stochflow.truth.orders import Orders, best_orders, ordered_log_probs
from stochflow.truth.prefix_tree import entropy, infeasible_share, kl_to_target, tv_to_target, unbalanced_share


class JointOptimum(NamedTuple):
    """The best that one policy per task can do: log P(task, x), and means over the tasks."""

    log_probs: Tensor
    min_kl: float
    log_z: float


class OrdersOptimum(NamedTuple):
    """The best that orders of whole sequences can do, and the orders themselves with their certificate."""

    log_probs: Tensor
    min_kl: float
    log_z: float
    orders: Orders


# the best that any policy can do: log P(x) of every object, the KL to the target, log Z
Optimum = prefix_tree.Attainable | InformedOptimum | dag.GraphOptimum | JointOptimum | OrdersOptimum | AutomatonOptimum


class Truth(ABC):
    """Scores, rewards and the attainable optimum of everything that an environment can make.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> environment = SequenceEnvironment(TFBind8("SIX6"), uniform_slip(4, alpha=0.5))
    >>> truth = truth_of(environment, Reward(beta=3.0, floor=1e-6, ramp=0.0))
    >>> round(truth.optimum()["min_kl"], 5)
    0.02455

    Attributes:
        exact_evaluation: False where log Z and the smallest KL are known but objects are too many to be listed: then a
            policy is evaluated by `estimated` from draws, and of `attainable` only `min_kl` and `log_z` are read.
    """

    environment: Environment
    reward: Reward
    exact_evaluation: bool = True

    @property
    @abstractmethod
    def scores(self) -> Tensor:
        """Score of every object, float64, [num_objects]."""

    @property
    @abstractmethod
    def log_rewards(self) -> Tensor:
        """log R, or log E[R] where measurements are noisy, of every object, [num_objects]."""

    @property
    @abstractmethod
    def attainable(self) -> Optimum:
        """The policy of the smallest KL to R/Z under this noise, and what it makes."""

    def log_probs(self, policy: Any) -> Tensor:
        """log P(x) of every object under a policy and the true dynamics, [num_objects]."""
        found: Tensor = policy.terminal_log_probs(self.environment)
        return found

    def infeasible_share(self) -> list[float] | None:
        """Per depth, the share of prefixes that no policy can balance under uniform slip; None under other noise."""
        return None

    def unbalanced_share(self) -> list[float] | None:
        """The same under any noise that can be inverted; None where it cannot, and where states are no prefixes."""
        return None

    @cached_property
    def attainable_entropy(self) -> float:
        """Entropy of the objects of the policy that attains `min_kl`, in nats."""
        return entropy(self.attainable.log_probs)

    def optimum(self) -> dict[str, float]:
        """The best that any policy can do in this environment."""
        best = self.attainable
        return {
            "min_kl": best.min_kl,
            "min_tv": tv_to_target(best.log_probs, self.log_rewards),
            "attainable_score": float(best.log_probs.exp() @ self.scores),
            "log_z_true": best.log_z,
        }

    def estimated(self, j: float, j_se: float | None) -> dict[str, float | None]:
        """KL and regret of a policy from J = log Z − KL, with the standard error of both.

        Args:
            j, j_se: mean of log R(x) − log P_π(x) over draws from the policy, and its standard error.
        """
        kl = self.attainable.log_z - j
        return {"kl": kl, "regret": kl - self.attainable.min_kl, "regret_se": j_se}

    def evaluate(self, policy: Any) -> dict[str, float]:
        """KL, regret, TV, expected score and missing entropy of a policy under the true dynamics."""
        log_probs = self.log_probs(policy)
        kl = kl_to_target(log_probs, self.log_rewards)
        return {
            "kl": kl,
            "regret": kl - self.attainable.min_kl,
            "tv": tv_to_target(log_probs, self.log_rewards),
            "mean_score": float(log_probs.exp() @ self.scores),
            "entropy_gap": self.attainable_entropy - entropy(log_probs),
        }


class SequenceTruth(Truth):
    """By the backward recursion on the prefix tree; over histories where deletions let several write one design."""

    environment: SequenceEnvironment

    def __init__(self, environment: SequenceEnvironment, reward: Reward) -> None:
        self.environment, self.reward, self._task = environment, reward, environment.task

    @cached_property
    def histories(self) -> Histories | None:
        """How rows of tokens write designs; None where a row is a design."""
        return all_histories(self._task) if isinstance(self._task, VariableTask) else None

    @cached_property
    def designs(self) -> Tensor:
        """One row of tokens for every design, in lexicographic order, [num_designs, L]."""
        everything = self._task.all_sequences
        return everything if self.histories is None else everything[self.histories.examples]

    @cached_property
    def scores(self) -> Tensor:
        return self._task.all_scores if self.histories is None else self._task.score(self.designs).double()

    @cached_property
    def log_rewards(self) -> Tensor:
        return self._task.log_reward(self.designs, self.scores, self.reward)

    @cached_property
    def attainable(self) -> prefix_tree.Attainable | InformedOptimum:
        channel, length = self.environment.channel, self._task.length
        if self.histories is not None:
            return attainable_designs(self.log_rewards, self.histories, channel, length)
        return prefix_tree.attainable_optimum(self.log_rewards, channel, length)

    def infeasible_share(self) -> list[float] | None:
        slip = self.environment.channel.slip
        return None if slip is None else infeasible_share(self.log_rewards, slip, self.environment.num_actions)

    def unbalanced_share(self) -> list[float] | None:
        # where lengths vary, many prefixes have one child, and a share of all of them would say little
        if self.environment.rules is not None or isinstance(self.environment.channel, MemoryChannel):
            return None
        return unbalanced_share(self.log_rewards, self.environment.channel, self.environment.max_steps)

    def log_probs(self, policy: Any) -> Tensor:
        log_probs = super().log_probs(policy)
        return log_probs if self.histories is None else self.histories.collected(log_probs)


class MemoryTruth(SequenceTruth):
    """Under a channel with memory: of policies that read the pairs so far, by optimisation over (prefix, belief).

    Every policy is evaluated against the best one with history, whether it reads history or not.

    >>> from stochflow.environments.memory_channels import mixture
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> environment = SequenceEnvironment(TFBind8("SIX6"), mixture(4, [0.0, 0.5]))
    >>> truth = truth_of(environment, Reward(beta=3.0, floor=1e-6, ramp=0.0))
    >>> truth.revealed.min_kl < truth.attainable.min_kl < truth.without_history.min_kl
    True
    """

    @cached_property
    def attainable(self) -> InformedOptimum:
        found = from_pairs(self.environment.channel, self.environment.max_steps)
        assert found is not None, "small enough, or there is no MemoryTruth"
        return self._best(found)

    @cached_property
    def without_history(self) -> InformedOptimum:
        """The best policy that was found among those that read outcomes alone."""
        return self._best(self._hidden, blind=True)

    @cached_property
    def revealed(self) -> InformedOptimum:
        """The best policy that is told the hidden state before every letter."""
        return self._best(self._hidden)

    @property
    def _hidden(self) -> Information:
        assert isinstance(self.environment.channel, MemoryChannel)
        return revealed(self.environment.channel, self.environment.max_steps)

    def _best(self, information: Information, blind: bool = False) -> InformedOptimum:
        return informed_optimum(self.log_rewards, information, blind)


class OrdersTruth(Truth):
    """Of orders of whole sequences, without feedback, by convex optimisation over them.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> environment = SequenceEnvironment(TFBind8("SIX6"), uniform_slip(4, alpha=0.1), feedback="none")
    >>> found = truth_of(environment, Reward(beta=3.0, floor=1e-6, ramp=0.0)).optimum()
    >>> round(found["min_kl"], 4), round(found["value_of_feedback"], 4)
    (0.0188, 0.0186)

    Attributes:
        with_feedback: the truth of the same environment for policies that see each outcome.
    """

    environment: SequenceEnvironment

    def __init__(self, environment: SequenceEnvironment, reward: Reward) -> None:
        self.environment, self.reward = environment, reward
        self.with_feedback = SequenceTruth(SequenceEnvironment(environment.task, environment.channel), reward)

    @property
    def scores(self) -> Tensor:
        return self.with_feedback.scores

    @property
    def log_rewards(self) -> Tensor:
        return self.with_feedback.log_rewards

    @cached_property
    def attainable(self) -> OrdersOptimum:
        best = best_orders(self.log_rewards, self.environment.channel, self.environment.max_steps)
        return OrdersOptimum(best.log_probs, best.kl, float(torch.logsumexp(self.log_rewards, dim=0)), best)

    def optimum(self) -> dict[str, float]:
        # whoever orders is a policy that does not look: only rounding could bring this below zero
        worth = max(self.attainable.min_kl - self.with_feedback.attainable.min_kl, 0.0)
        return super().optimum() | {"value_of_feedback": worth}

    def log_probs(self, policy: Any) -> Tensor:
        """What comes of the orders of a policy, which are what it would make without noise."""
        log_orders = policy.terminal_log_probs(self.environment.without_noise)
        return ordered_log_probs(log_orders, self.environment.channel, self.environment.max_steps)


class AutomatonTruth(Truth):
    """By the backward recursion over (position, state) of the automaton that computes the score, at any length.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.motifs import motif_task
    >>> environment = SequenceEnvironment(motif_task("GATA1+TBP,30"), uniform_slip(4, alpha=0.1))
    >>> truth = truth_of(environment, Reward(beta=60.0, floor=1e-40, ramp=0.0))
    >>> sorted(truth.optimum())
    ['attainable_score', 'log_z_true', 'min_kl']
    """

    environment: SequenceEnvironment
    exact_evaluation = False

    def __init__(self, environment: SequenceEnvironment, reward: Reward, rewards: AutomatonReward) -> None:
        self.environment, self.reward, self._rewards = environment, reward, rewards

    @property
    def scores(self) -> Tensor:
        """Not available: there are too many sequences to list them."""
        refuse_list()

    @property
    def log_rewards(self) -> Tensor:
        """Not available: there are too many sequences to list them."""
        refuse_list()

    def log_probs(self, policy: Any) -> Tensor:
        """Not available: there are too many sequences to list them."""
        refuse_list()

    @cached_property
    def attainable(self) -> AutomatonOptimum:
        return automaton_optimum(self._rewards, self.environment.channel, self.environment.max_steps)

    @cached_property
    def attainable_entropy(self) -> float:
        return self.attainable.entropy

    def optimum(self) -> dict[str, float]:
        best, automaton = self.attainable, self._rewards.automaton
        return {
            "min_kl": best.min_kl,
            "attainable_score": best.expected(automaton.scores, automaton.log_factors),
            "log_z_true": best.log_z,
        }


class MultiTaskTruth(Truth):
    """Of task and sequence together, [num_tasks · K^L], each task equally likely: KL and the like are means over tasks.

    Attributes:
        truths: of each task.
    """

    environment: MultiTaskEnvironment

    def __init__(self, environment: MultiTaskEnvironment, reward: Reward) -> None:
        self.environment, self.reward = environment, reward
        channel = environment.channel
        self.truths = [SequenceTruth(SequenceEnvironment(task, channel), reward) for task in environment.tasks]

    @cached_property
    def scores(self) -> Tensor:
        return torch.cat([truth.scores for truth in self.truths])

    @cached_property
    def log_rewards(self) -> Tensor:
        """log R/Z of every task: they count equally, whatever their Z."""
        return torch.cat([truth.log_rewards - truth.attainable.log_z for truth in self.truths])

    @cached_property
    def attainable(self) -> JointOptimum:
        best, num_tasks = [truth.attainable for truth in self.truths], len(self.truths)
        return JointOptimum(
            torch.cat([each.log_probs for each in best]) - math.log(num_tasks),
            sum(each.min_kl for each in best) / num_tasks,
            sum(each.log_z for each in best) / num_tasks,
        )


class GraphTruth(Truth):
    """By convex optimisation over the flow through a directed acyclic graph."""

    environment: GraphEnvironment

    def __init__(self, environment: GraphEnvironment, reward: Reward) -> None:
        self.environment, self.reward = environment, reward

    @property
    def scores(self) -> Tensor:
        return self.environment.graph.scores

    @cached_property
    def log_rewards(self) -> Tensor:
        return self.reward.log_reward(self.scores)

    @cached_property
    def attainable(self) -> dag.GraphOptimum:
        return dag.graph_optimum(self.environment.graph, self.log_rewards)


@singledispatch
def truth_of(environment: Environment, reward: Reward) -> Truth | None:
    """The truth of an environment; None where it cannot be enumerated and no automaton computes its score."""
    return None


@truth_of.register
def _(environment: SequenceEnvironment, reward: Reward) -> Truth | None:
    if environment.enumerable:
        if environment.ordered:
            return OrdersTruth(environment, reward)
        if not isinstance(environment.channel, MemoryChannel):
            return SequenceTruth(environment, reward)
        return MemoryTruth(environment, reward) if from_pairs(environment.channel, environment.max_steps) else None
    if isinstance(environment.channel, MemoryChannel):
        return None
    if environment.ordered:  # an automaton knows the best that policies do which look at each outcome
        return None
    automaton = environment.task.automaton
    rewards = None if automaton is None else automaton_reward(automaton, reward, environment.max_steps)
    return None if rewards is None else AutomatonTruth(environment, reward, rewards)


@truth_of.register
def _(environment: MultiTaskEnvironment, reward: Reward) -> Truth | None:
    return MultiTaskTruth(environment, reward)


@truth_of.register
def _(environment: GraphEnvironment, reward: Reward) -> Truth | None:
    return GraphTruth(environment, reward)
