"""Runs that begin with a pre-trained sampler instead of from nothing."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stochflow.config.context import PretrainingConfig
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment
from stochflow.environments.registry import PRETRAINING_TASK
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Task
from stochflow.experiments.build import restore
from stochflow.experiments.experiment import Experiment
from stochflow.runs.directory import RunDirectory
from stochflow.training.conditional.pretraining import ConditionalKL
from stochflow.training.conditional.sampler import ConditionalSampler
from stochflow.training.conditional.support import Support, draw_sequences

_FREE = {"source": None, "support": None}  # what the settings of pre-training do not decide


@dataclass(frozen=True)
class Pretrained:
    """The sampler of a `pretrain` run.

    Attributes:
        path, config: its run directory and settings.
        task: one of its tasks, which all have one alphabet and length.
    """

    path: Path
    config: Config
    task: Task
    sampler: ConditionalSampler

    def check(self, config: Config, environment: Environment) -> None:
        """Refuse a run that cannot begin with it."""
        task = environment.task if isinstance(environment, SequenceEnvironment) else None
        if task is None or (task.alphabet, task.length) != (self.task.alphabet, self.task.length):
            raise ConfigError(
                f"the sampler in {self.path} was pre-trained on sequences of {self.task.length} letters of "
                f"{self.task.alphabet.letters}, and {environment.name} is another space; leave out --from, or "
                "pre-train on tasks of that space"
            )
        if config.context.reads != "support":
            raise ConfigError(
                f"a run that begins with a pre-trained sampler reads a support set; leave out --context "
                f"{config.context.reads}, or --from"
            )
        if config.model != self.config.model or _shape(config) != _shape(self.config):
            raise ConfigError(
                f"the network is that of {self.path}; leave out settings of model and pretraining, or pre-train with "
                "them"
            )
        if not config.objective.record.trains_policy:
            raise ConfigError(f"'{config.method}' trains no network; choose another --method, or leave out --from")
        if config.pretraining.support is None or config.pretraining.support > task.size:
            raise ConfigError(f"--support takes a number from 1 to {task.size}, all sequences of {task.name}")

    def begin(self, experiment: Experiment) -> None:
        """Draw a support set of the run's task, pay for it, and give the run the network for it."""
        num = experiment.config.pretraining.support
        assert num is not None, "checked before"
        generator = experiment.trainer.learner.generators["init"]
        begin_with(self.sampler, draw_sequences(self.task, num, generator), experiment)


def load_pretrained(path: Path) -> Pretrained:
    """The sampler of a `pretrain` run, as its newest checkpoint left it, on the CPU."""
    config = _config(path)
    experiment = restore(RunDirectory.open(path), config.model_copy(update={"device": "cpu"}))
    objective = experiment.trainer.objective
    assert isinstance(objective, ConditionalKL), "the objective of that task"
    if not experiment.trainer.finished:
        warnings.warn(
            f"pre-training in {path} stands at {experiment.trainer.progress:.0%} of its budget; finish it with "
            "`stochflow pretrain --resume`",
            stacklevel=2,
        )
    return Pretrained(path, config, objective.learner.environment.task, objective.conditional)


def settings_from(path: Path) -> dict[str, Any]:
    """Settings of a run that begins with that sampler: its network, and by default its noise and reward."""
    settings = _config(path).model_dump(mode="json", include={"model", "channel", "reward", "pretraining"})
    source = {"pretraining": settings["pretraining"] | {"source": str(path)}}
    return settings | source | {"context": {"reads": "support"}}


def begin_with(sampler: ConditionalSampler, tokens: Tensor, experiment: Experiment) -> None:
    """Let a run that has not begun start from the sampler given the scores of some sequences, [num, L].

    They are paid for and remembered, and no part of the budget. The run's settings must describe the same network.
    """
    scores = experiment.trainer.prepay(tokens)
    experiment.network.load_state_dict(sampler.given(Support(tokens, scores)).state_dict())


def _config(path: Path) -> Config:
    config = RunDirectory.open(path).config()
    if config.task != PRETRAINING_TASK:
        raise ConfigError(f"{path} is a run on '{config.task}'; give --from the --out of a `stochflow pretrain`")
    return config


def _shape(config: Config) -> PretrainingConfig:
    return config.pretraining.model_copy(update=_FREE)
