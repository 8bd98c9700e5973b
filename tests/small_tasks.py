"""Environments that are small enough to enumerate by hand."""

from typing import Any

import torch
from torch import Tensor

from stochflow.config.environment import Feedback
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.objectives.learners import GraphLearner


class Scored(Task):
    """Sequences with given scores, in lexicographic order; one everywhere without them."""

    name = "scored"
    mode_threshold = 0.5
    description = "scores from a list"

    def __init__(self, num_tokens: int, length: int, scores: Tensor | None = None) -> None:
        self.alphabet, self.length = Alphabet("ABCDEFGH"[:num_tokens]), length
        self._scores = torch.ones(num_tokens**length, dtype=torch.float64) if scores is None else scores

    def score(self, tokens: Tensor) -> Tensor:
        return self._scores[(tokens * self.num_tokens ** torch.arange(self.length - 1, -1, -1)).sum(dim=-1)]


def scored_environment(
    channel: Channel, length: int, scores: Tensor | None = None, feedback: Feedback = "step"
) -> SequenceEnvironment:
    """Sequences of so many letters of a channel."""
    return SequenceEnvironment(Scored(channel.num_tokens, length, scores), channel, feedback)


def graph_experiment(task: str = "hypergrid:2,4", **settings: Any) -> Experiment:
    """A run on a graph, freshly initialised, with a small network."""
    small = {"task": task, "model": {"width": 32, "num_layers": 1}, "optimiser": {"batch_size": 64}}
    return build(resolve_config([small, settings]))


def graph_learner(experiment: Experiment) -> GraphLearner:
    learner = experiment.trainer.learner
    assert isinstance(learner, GraphLearner)
    return learner
