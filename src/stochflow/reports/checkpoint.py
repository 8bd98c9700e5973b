"""What a checkpoint says when it is asked exactly: P_π(x) of every sequence, and the channel it has learned."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.errors import StochflowError
from stochflow.environments.factory import configured_channel, configured_task
from stochflow.environments.graphs import is_graph
from stochflow.environments.sequences.task import Reward
from stochflow.evaluation.summary import Truth
from stochflow.experiments.build import Experiment, restore
from stochflow.experiments.graph_build import restore_graph_experiment
from stochflow.reports.reader import RunRecord
from stochflow.runs.directory import RunDirectory
from stochflow.truth.dag import terminal_log_probs
from stochflow.truth.prefix_tree import unbalanced_share

_MAX_PREFIX_SOURCES = 256
# the settings that decide what is true, whatever is learned
_WORLD = {"task", "table", "lengths", "reward_noise", "oracle", "constraints", "channel", "reward"}


@dataclass(frozen=True)
class Landscape:
    """Every design of an enumerable task; all [num_designs].

    Attributes:
        log_z: log Σ R(x).
        unbalanced: per depth, the share of prefixes that no policy can balance; None for a channel without an inverse
            and where lengths vary.
    """

    log_rewards: np.ndarray
    log_probs: np.ndarray
    attainable: np.ndarray
    log_z: float
    unbalanced: list[float] | None


@dataclass(frozen=True)
class Channels:
    """P(outcome | intention) at every position, true and, if anything was, learned; [L, K, K] each."""

    letters: list[str]
    truth: np.ndarray
    learned: np.ndarray | None
    is_known: bool


@dataclass(frozen=True)
class Examined:
    """What could be computed from a checkpoint; None for what could not."""

    landscape: Landscape | None = None
    channels: Channels | None = None
    num_letters: int | None = None
    problems: tuple[str, ...] = ()


def examine(record: RunRecord) -> Examined:
    """Restore a run and ask it. A run that cannot be restored gives one sentence instead."""
    # where it was trained and what it was compared with need not exist any more
    evaluation = record.config.evaluation.model_copy(update={"reference": None})
    config = record.config.model_copy(update={"device": "cpu", "evaluation": evaluation})
    if is_graph(config.task):
        return _examine_graph(record, config)
    try:
        experiment = restore(RunDirectory(record.path), config)
    except StochflowError as error:
        return Examined(problems=(f"The sampler cannot be restored, so nothing is computed from it: {error}.",))
    landscape = None if experiment.truth is None else _landscape(experiment)
    return Examined(landscape, _channels(experiment, record), experiment.task.num_letters)


def _examine_graph(record: RunRecord, config: Config) -> Examined:
    """The same of a run on a graph, which has no channel over letters to draw."""
    try:
        experiment = restore_graph_experiment(RunDirectory(record.path), config)
    except StochflowError as error:
        return Examined(problems=(f"The sampler cannot be restored, so nothing is computed from it: {error}.",))
    truth = experiment.truth
    landscape = Landscape(
        log_rewards=truth.log_rewards.numpy(),
        log_probs=terminal_log_probs(experiment.graph, experiment.log_policy).numpy(),
        attainable=truth.attainable.log_probs.numpy(),
        log_z=truth.attainable.log_z,
        unbalanced=None,
    )
    return Examined(landscape)


@torch.no_grad()
def _landscape(experiment: Experiment) -> Landscape:
    truth, unbalanced = _truth(experiment.config.model_dump_json(include=_WORLD))
    log_probs = truth.log_probs(experiment.policy)
    return Landscape(
        log_rewards=truth.log_rewards.numpy(),
        log_probs=log_probs.numpy(),
        attainable=truth.attainable.log_probs.numpy(),
        log_z=truth.attainable.log_z,
        unbalanced=unbalanced,
    )


@lru_cache(maxsize=8)
def _truth(world: str) -> tuple[Truth, list[float] | None]:
    """The truth that all runs of one task, channel and reward share, solved once."""
    config = Config.model_validate_json(world)
    task = configured_task(config)
    channel = configured_channel(config.channel, task)
    truth = Truth(task, channel, Reward(**config.reward.model_dump()))
    # where lengths vary, many prefixes have one child, and a share of all of them would say little
    unbalanced = None if truth.histories else unbalanced_share(truth.log_rewards, channel, task.length)
    return truth, unbalanced


@torch.no_grad()
def _channels(experiment: Experiment, record: RunRecord) -> Channels:
    """The learned channel, averaged over the prefixes of the designs where it depends on them."""
    task, config = experiment.task, experiment.config
    truth, learned = experiment.channel.log_matrices(task.length).exp().numpy(), None
    if experiment.dynamics is not None:
        log_matrices = experiment.dynamics.log_matrices(_tokens(experiment, record))
        learned = log_matrices.double().exp().mean(dim=0).numpy()
    return Channels(task.alphabet.labels, truth, learned, config.dynamics.kind == "known")


def _tokens(experiment: Experiment, record: RunRecord) -> Tensor:
    """Designs of the run as tokens, [num, L]; the first letter repeated when there are none to go by."""
    task = experiment.task
    try:
        tokens = task.alphabet.encode(record.samples["sequence"].head(_MAX_PREFIX_SOURCES).tolist())
    except StochflowError:
        tokens = torch.empty(0, 0, dtype=torch.int64)
    if tokens.shape[1] != task.length:
        return torch.zeros(1, task.length, dtype=torch.int64)
    return tokens


def thinned(landscape: Landscape, num: int, seed: int = 0) -> np.ndarray:
    """Indices of `num` sequences drawn without replacement, ascending; all of them when there are no more."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(len(landscape.log_rewards), generator=generator)[:num].sort().values.numpy()
