"""Exact results of a checkpoint: P_π(x) of every sequence, and the learned channel."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.arrays import Array
from stochflow.core.errors import StochflowError
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Task
from stochflow.experiments.build import restore
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.world import configured_world
from stochflow.reports.reader import RunRecord
from stochflow.runs.directory import RunDirectory
from stochflow.truth.truth import MultiTaskTruth, Truth, truth_of

_MAX_PREFIX_SOURCES = 256
# settings that determine target and optimum, independent of training
_TASK = {"task", "table", "motifs", "lengths", "reward_noise", "oracle", "constraints"}
_WORLD = _TASK | {"channel", "feedback", "reward"}


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
    try:
        experiment = restore(RunDirectory(record.path), config)
    except StochflowError as error:
        return ExactResults(problems=(f"The sampler cannot be restored, so nothing is computed from it: {error}.",))
    listed = experiment.truth is not None and experiment.truth.exact_evaluation
    listed = listed and not experiment.network.reads_history
    distribution = _distribution(experiment) if listed else None
    environment = experiment.environment
    if not isinstance(environment, SequenceEnvironment):  # without letters there is no channel over them to draw
        return ExactResults(distribution)
    return ExactResults(distribution, _channels(experiment, environment, record), environment.task.num_letters)


@torch.no_grad()
def _distribution(experiment: Experiment) -> DesignDistribution:
    truth = experiment.truth
    unbalanced: list[float] | None = None
    if not isinstance(truth, MultiTaskTruth):  # which no other run shares
        truth, unbalanced = _truth(experiment.config.model_dump_json(include=_WORLD))
    assert truth is not None, "only what can be enumerated is drawn"
    log_probs = truth.log_probs(experiment.policy)
    return DesignDistribution(
        log_rewards=truth.log_rewards.numpy(),
        log_probs=log_probs.numpy(),
        attainable=truth.attainable.log_probs.numpy(),
        log_z=float(truth.log_rewards.logsumexp(dim=0)),
        unbalanced=unbalanced,
    )


@lru_cache(maxsize=8)
@torch.enable_grad()  # of a measured table surrogates are fitted
def _truth(world: str) -> tuple[Truth, list[float] | None]:
    """Target and optimum of one task, channel and reward, cached since runs of a sweep share them."""
    config = Config.model_validate_json(world)
    truth = truth_of(configured_world(config).environment, Reward(**config.reward.model_dump()))
    assert truth is not None, "only what can be enumerated is drawn"
    return truth, truth.unbalanced_share()


@torch.no_grad()
def _channels(experiment: Experiment, environment: SequenceEnvironment, record: RunRecord) -> Channels:
    """The learned channel, averaged over the prefixes of the designs where it depends on them."""
    task, config = environment.task, experiment.config
    log_beliefs = experiment.log_beliefs(_tokens(task, record))
    learned = None if log_beliefs is None else log_beliefs.exp().mean(dim=0).numpy()
    return Channels(task.alphabet.labels, environment.dynamics.numpy(), learned, config.dynamics.kind == "known")


def _tokens(task: Task, record: RunRecord) -> Tensor:
    """Designs of the run as tokens, [num, L]; the first letter repeated when there are none to go by."""
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
