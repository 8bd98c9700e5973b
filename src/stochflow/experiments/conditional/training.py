"""Pre-training on tasks whose tables are known, and fine-tuning on one whose table is not."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.core.logspace import log_marginal
from stochflow.environments.channels import Channel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import Task
from stochflow.experiments.build import build
from stochflow.experiments.conditional.sampler import ConditionalSampler, ConditionalSettings
from stochflow.experiments.conditional.support import Support, draw_support
from stochflow.experiments.experiment import Experiment
from stochflow.objectives.base import TensorTerms
from stochflow.objectives.divergence import state_kl
from stochflow.objectives.planning.plan import Plan, make_plan
from stochflow.objectives.planning.plan_states import draw_states
from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.training.optimizer import Descent, Record, learning_rate_factor, require_finite


class PlannedTasks:
    """Tasks over one enumerable space with their plans on the whole tree, under a known channel."""

    def __init__(self, tasks: Sequence[Task], channel: Channel, reward: Reward) -> None:
        if len({(task.alphabet, task.length) for task in tasks}) != 1 or not tasks[0].enumerable:
            raise ConfigError("conditional training needs enumerable tasks of one alphabet and length; choose others")
        self.channel, self.tasks = channel, list(tasks)
        self.trie = PrefixTrie(tasks[0].num_tokens, tasks[0].length)
        self.trie.insert(tasks[0].all_sequences)
        self.plans = [self._plan(reward.log_reward(task.all_scores)) for task in tasks]

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


def draw_batch(planned: PlannedTasks, settings: ConditionalSettings, generator: torch.Generator) -> Batch:
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
        Support(*(torch.stack(column) for column in zip(*supports, strict=True))),
        States(*(torch.cat(column) for column in zip(*states, strict=True))),
        torch.tensor([len(rows.depths) for rows in states]),
    )


def conditional_terms(
    sampler: ConditionalSampler, batch: Batch, log_dynamics: Tensor, flow_weight: float
) -> TensorTerms:
    """Mean over tasks and depths of KL(M_θ(·|s,c)‖softmax V(children)) + flow_weight·(log F(s|c) − V(s))².

    Args:
        log_dynamics: log P(b|a) by position, [L, K, K].
    """
    states = batch.states
    context = sampler.context(batch.support).repeat_interleave(batch.rows_per_task, dim=0)
    heads = sampler.network.at(states.tokens, states.depths, context)
    log_marginals = log_marginal(heads.log_policy, log_dynamics[states.depths])
    log_targets = torch.log_softmax(states.child_values, dim=-1).float()
    weights = states.weights.float() / len(batch.rows_per_task)
    divergence = (weights * state_kl(log_marginals, log_targets, torch.zeros_like(weights))).sum()
    flow_loss = (weights * (heads.log_flow - states.values.float()).square()).sum()
    return {"loss": divergence + flow_weight * flow_loss, "kl_loss": divergence, "flow_loss": flow_loss}


def train_conditional(
    sampler: ConditionalSampler, planned: PlannedTasks, settings: ConditionalSettings, generator: torch.Generator
) -> list[Record]:
    """Fit the sampler to the plans of all tasks; returns the loss terms of every update."""
    if settings.relabelled and planned.channel.slip is None:
        raise ConfigError("letters can be renamed only under uniform slip, which treats all alike; set relabelled to 0")
    descent = Descent(list(sampler.parameters()), settings.clip)
    log_dynamics = planned.channel.log_matrices(planned.trie.length).float()
    history = []
    for step in range(settings.steps):
        batch = draw_batch(planned, settings, generator)
        terms = conditional_terms(sampler, batch, log_dynamics, settings.flow_weight)
        require_finite(terms)
        rate = settings.learning_rate * learning_rate_factor((step + 0.5) / settings.steps, settings.warmup)
        descent.step(terms["loss"], rate)
        history.append({name: float(term.detach()) for name, term in terms.items()})
    return history


def fine_tuning(sampler: ConditionalSampler, support: Support, config: Config) -> Experiment:
    """The run that a config asks for, started from the sampler given a support set instead of from nothing.

    The support is remembered as paid for and is no part of the budget. The config's `model` settings do not count.
    """
    experiment = build(config, network=sampler.given(support))
    experiment.trainer.learner.memory.pay(support.tokens, experiment.environment.score)
    return experiment
