"""The objective of pre-training: one sampler fitted to the plans of several tasks whose tables are known."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.config.context import PretrainingConfig
from stochflow.core.errors import ConfigError
from stochflow.core.logspace import log_marginal
from stochflow.core.random import RandomStreams
from stochflow.environments.memory_channels import MemoryChannel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment
from stochflow.models.evaluation import AtPrefixes
from stochflow.objectives.base import Objective, TensorTerms
from stochflow.objectives.divergence import state_kl
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.planning.plan import Plan, make_plan
from stochflow.objectives.planning.plan_states import draw_states
from stochflow.sampling.policies import Policy
from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.conditional.sampler import ConditionalPolicy, ConditionalSampler
from stochflow.training.conditional.support import Support, draw_support


class ConditionalKL(Objective):
    """KL of the conditional sampler to the plans of several tasks, from a fresh support set of each.

    The plans are exact, for tables and channel are known; nothing is sampled and no oracle is asked. The policy is
    evaluated on the same tasks, given a support of each that is drawn once, from the seed.

    Attributes:
        conditional: the sampler; its network is the learner's, its encoder the objective's own.
    """

    learner: SequenceLearner
    samples = False

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        environment, self._settings = learner.environment, learner.config.pretraining
        assert isinstance(environment, MultiTaskEnvironment), "pre-training is on several tasks"
        if isinstance(environment.channel, MemoryChannel):
            raise ConfigError(
                f"plans for several tasks know no memory; pre-train under another --noise than '{environment.noise}', "
                "and fine-tune under it"
            )
        if self._settings.relabelled and environment.channel.slip is None:
            raise ConfigError(
                "letters can be renamed only under uniform slip, which treats all alike; set pretraining.relabelled to "
                "0"
            )
        self._environment, self._network = environment, learner.network
        self.conditional = ConditionalSampler(learner.network, self._settings)
        self.conditional.encoder.initialise(learner.generators["init"])
        self.own["encoder"] = self.conditional.encoder.to(learner.device)
        self._log_dynamics = environment.channel.log_matrices(environment.max_steps).float().to(learner.device)
        # from the seed alone: evaluating again gives the same numbers
        generator = RandomStreams(learner.config.seed)["evaluation"]
        size = self._settings.support_size
        self._supports = stacked([draw_support(task, size, generator) for task in environment.tasks])

    @cached_property
    def planned(self) -> "PlannedTasks":
        """The plans of all tasks; made before the first update."""
        return PlannedTasks(self._environment, self.learner.reward)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[TensorTerms]:
        batch = draw_batch(self.planned, self._settings, self.learner.generators["replay"]).to(self.learner.device)
        weight = self.learner.config.objective.flow_weight
        yield conditional_terms(self.conditional, batch, self._log_dynamics, weight)

    @torch.no_grad()
    def log_z(self) -> float:
        """Mean over the tasks of log F(root|c)."""
        return float(self._network.log_z(self.conditional.context(self._supports)).mean())

    @torch.no_grad()
    def policy(self) -> Policy:
        return ConditionalPolicy(self._network, self.conditional.context(self._supports))


class PlannedTasks:
    """Tasks over one enumerable space with their plans on the whole tree, under a known channel."""

    def __init__(self, environment: MultiTaskEnvironment, reward: Reward) -> None:
        self.channel, self.tasks = environment.channel, environment.tasks
        everything = environment.task.all_sequences
        self.trie = PrefixTrie(environment.num_actions, environment.max_steps)
        self.trie.insert(everything)
        self.plans = [self._plan(task.log_reward(everything, task.all_scores, reward)) for task in self.tasks]

    def _plan(self, log_rewards: Tensor) -> Plan:
        def no_frontier(prefixes: Tensor) -> Tensor:
            raise AssertionError("the trie holds the whole tree")

        return make_plan(self.trie, log_rewards, no_frontier, lambda _, depth: self.channel.matrix(depth))


class States(NamedTuple):
    """Prefixes with their planned values.

    Attributes:
        tokens, depths: the first `depths` tokens count, [rows, L] and [rows].
        child_values, values: V of the children and of the prefix, [rows, K] and [rows].
        weights: [rows]; those of one task sum to one.
    """

    tokens: Tensor
    depths: Tensor
    child_values: Tensor
    values: Tensor
    weights: Tensor


class Batch(NamedTuple):
    """A support and some states of several tasks.

    Attributes:
        support: tokens [tasks, num, L] and scores [tasks, num].
        states: of all tasks, one task after the other.
        rows_per_task: [tasks].
    """

    support: Support
    states: States
    rows_per_task: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        support, states = (tuple(column.to(device) for column in part) for part in (self.support, self.states))
        return Batch(Support(*support), States(*states), self.rows_per_task.to(device))


def draw_plan_states(trie: PrefixTrie, plan: Plan, rows_per_level: int, generator: torch.Generator) -> States:
    """States in proportion to the plan's own visits, every depth with equal weight."""
    levels = []
    for depth, visits in enumerate(plan.visits):
        nodes, shares = draw_states(visits, rows_per_level, generator)
        tokens = trie.sequences[trie.examples[depth][nodes]]
        depths = torch.full_like(nodes, depth)
        values = plan.child_values[depth][nodes], plan.values[depth][nodes]
        levels.append(States(tokens, depths, *values, shares / len(plan.visits)))
    return States(*(torch.cat(column) for column in zip(*levels, strict=True)))


def relabel(support: Support, states: States, letters: Tensor) -> tuple[Support, States]:
    """The same task with every letter b renamed to letters[b], [K]: another landscape of the same shape."""
    return support._replace(tokens=letters[support.tokens]), states._replace(
        tokens=letters[states.tokens], child_values=states.child_values[:, letters.argsort()]
    )


def draw_batch(planned: PlannedTasks, settings: PretrainingConfig, generator: torch.Generator) -> Batch:
    """Random tasks, each with a fresh support, some with renamed letters."""
    supports, states = [], []
    for index in torch.randint(len(planned.tasks), (settings.tasks_per_step,), generator=generator).tolist():
        support = draw_support(planned.tasks[index], settings.support_size, generator)
        rows = draw_plan_states(planned.trie, planned.plans[index], settings.rows_per_level, generator)
        if float(torch.rand((), generator=generator)) < settings.relabelled:
            support, rows = relabel(support, rows, torch.randperm(planned.trie.num_tokens, generator=generator))
        supports.append(support)
        states.append(rows)
    return Batch(
        stacked(supports),
        States(*(torch.cat(column) for column in zip(*states, strict=True))),
        torch.tensor([len(rows.depths) for rows in states]),
    )


def stacked(supports: list[Support]) -> Support:
    """Support sets of one size as one, tokens [tasks, num, L] and scores [tasks, num]."""
    return Support(*(torch.stack(column) for column in zip(*supports, strict=True)))


def conditional_terms(
    sampler: ConditionalSampler, batch: Batch, log_dynamics: Tensor, flow_weight: float
) -> TensorTerms:
    """Mean over tasks and depths of KL(M_θ(·|s,c)‖softmax V(children)) + flow_weight·(log F(s|c) − V(s))².

    Args:
        log_dynamics: log P(b|a) by position, [L, K, K].
    """
    states = batch.states
    context = sampler.context(batch.support).repeat_interleave(batch.rows_per_task, dim=0)
    heads = sampler.network.evaluate(AtPrefixes(states.tokens, states.depths, context)).heads()
    log_marginals = log_marginal(heads.log_policy, log_dynamics[states.depths])
    log_targets = torch.log_softmax(states.child_values, dim=-1).float()
    weights = states.weights.float() / len(batch.rows_per_task)
    divergence = (weights * state_kl(log_marginals, log_targets, torch.zeros_like(weights))).sum()
    flow_loss = (weights * (heads.log_flow - states.values.float()).square()).sum()
    return {"loss": divergence + flow_weight * flow_loss, "kl_loss": divergence, "flow_loss": flow_loss}
