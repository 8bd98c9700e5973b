"""Exact results of a checkpoint: P_π(x) of every sequence, and the learned channel."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.arrays import Array
from stochflow.core.errors import StochflowError
from stochflow.environments.factory import configured_channel, configured_task
from stochflow.environments.graphs import is_graph
from stochflow.environments.registry import Reward
from stochflow.evaluation.summary import Truth
from stochflow.experiments.build import Experiment, restore
from stochflow.experiments.graph_build import restore_graph_experiment
from stochflow.reports.reader import RunRecord
from stochflow.runs.directory import RunDirectory
from stochflow.truth.dag import terminal_log_probs
from stochflow.truth.prefix_tree import unbalanced_share

_MAX_PREFIX_SOURCES = 256
# settings that determine target and optimum, independent of training
_WORLD = {"task", "table", "lengths", "reward_noise", "oracle", "constraints", "channel", "reward"}


@dataclass(frozen=True)
class DesignDistribution:
    """Distributions over all designs of an enumerable task; arrays of shape [num_designs].

    Attributes:
        log_rewards: log R(x).
        log_probs: log P_π(x) of the sampler.
        attainable: log P(x) of the attainable optimum.
        log_z: log Σ R(x).
        unbalanced: share of prefixes per depth that no policy can balance; None for a singular channel and where
            lengths vary.
    """

    log_rewards: Array
    log_probs: Array
    attainable: Array
    log_z: float
    unbalanced: list[float] | None


@dataclass(frozen=True)
class Channels:
    """P(outcome | intention) at every position, true and learned, [L, K, K]; `learned` is None without a P̂."""

    letters: list[str]
    truth: Array
    learned: Array | None
    is_known: bool


@dataclass(frozen=True)
class ExactResults:
    """Everything computed from a checkpoint; None for what cannot be computed."""

    distribution: DesignDistribution | None = None
    channels: Channels | None = None
    num_letters: int | None = None
    problems: tuple[str, ...] = ()


def exact_results(record: RunRecord) -> ExactResults:
    """Restore a run and compute its exact results; a run that cannot be restored has one sentence in `problems`."""
    # the device of training and the reference file may not exist here
    evaluation = record.config.evaluation.model_copy(update={"reference": None})
    config = record.config.model_copy(update={"device": "cpu", "evaluation": evaluation})
    if is_graph(config.task):
        return _graph_results(record, config)
    try:
        experiment = restore(RunDirectory(record.path), config)
    except StochflowError as error:
        return ExactResults(problems=(f"The sampler cannot be restored, so nothing is computed from it: {error}.",))
    distribution = None if experiment.truth is None else _distribution(experiment)
    return ExactResults(distribution, _channels(experiment, record), experiment.task.num_letters)


def _graph_results(record: RunRecord, config: Config) -> ExactResults:
    """Exact results of a run on a graph, which has no channel over letters."""
    try:
        experiment = restore_graph_experiment(RunDirectory(record.path), config)
    except StochflowError as error:
        return ExactResults(problems=(f"The sampler cannot be restored, so nothing is computed from it: {error}.",))
    truth = experiment.truth
    distribution = DesignDistribution(
        log_rewards=truth.log_rewards.numpy(),
        log_probs=terminal_log_probs(experiment.graph, experiment.log_policy).numpy(),
        attainable=truth.attainable.log_probs.numpy(),
        log_z=truth.attainable.log_z,
        unbalanced=None,
    )
    return ExactResults(distribution)


@torch.no_grad()
def _distribution(experiment: Experiment) -> DesignDistribution:
    truth, unbalanced = _truth(experiment.config.model_dump_json(include=_WORLD))
    log_probs = truth.log_probs(experiment.policy)
    return DesignDistribution(
        log_rewards=truth.log_rewards.numpy(),
        log_probs=log_probs.numpy(),
        attainable=truth.attainable.log_probs.numpy(),
        log_z=truth.attainable.log_z,
        unbalanced=unbalanced,
    )


@lru_cache(maxsize=8)
def _truth(world: str) -> tuple[Truth, list[float] | None]:
    """Target and optimum of one task, channel and reward, cached since runs of a sweep share them."""
    config = Config.model_validate_json(world)
    task = configured_task(config)
    channel = configured_channel(config.channel, task)
    truth = Truth(task, channel, Reward(**config.reward.model_dump()))
    # where lengths vary many prefixes have a single child, so that a share of all prefixes is not informative
    unbalanced = None if truth.histories else unbalanced_share(truth.log_rewards, channel, task.length)
    return truth, unbalanced


@torch.no_grad()
def _channels(experiment: Experiment, record: RunRecord) -> Channels:
    """True and learned channel; a P̂ that depends on the state is averaged over prefixes of the drawn designs."""
    task, config = experiment.task, experiment.config
    truth, learned = experiment.channel.log_matrices(task.length).exp().numpy(), None
    if experiment.dynamics is not None:
        log_matrices = experiment.dynamics.log_matrices(_tokens(experiment, record))
        learned = log_matrices.double().exp().mean(dim=0).numpy()
    return Channels(task.alphabet.labels, truth, learned, config.dynamics.kind == "known")


def _tokens(experiment: Experiment, record: RunRecord) -> Tensor:
    """Designs of the run as tokens, [num, L]; one row of the first letter where there are none."""
    task = experiment.task
    try:
        tokens = task.alphabet.encode(record.samples["sequence"].head(_MAX_PREFIX_SOURCES).tolist())
    except StochflowError:
        tokens = torch.empty(0, 0, dtype=torch.int64)
    if tokens.shape[1] != task.length:
        return torch.zeros(1, task.length, dtype=torch.int64)
    return tokens


def random_subset(distribution: DesignDistribution, num: int, seed: int = 0) -> Array:
    """Indices of `num` random sequences without replacement, ascending; all indices if there are fewer."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(len(distribution.log_rewards), generator=generator)[:num].sort().values.numpy()
