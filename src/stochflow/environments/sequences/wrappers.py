"""Base class of tasks that wrap another task and change part of its behaviour."""

from pathlib import Path

import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import Task


class WrappedTask(Task):
    """A task that forwards every method to the wrapped task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.name, self.alphabet, self.length = task.name, task.alphabet, task.length
        self.mode_threshold, self.description = task.mode_threshold, task.description
        self.source, self.num_measured, self.noisy = task.source, task.num_measured, task.noisy

    @property
    def enumerable(self) -> bool:
        return self._task.enumerable

    def score(self, tokens: Tensor) -> Tensor:
        return self._task.score(tokens)

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        return self._task.measure(tokens, generator)

    def log_reward(self, tokens: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        return self._task.log_reward(tokens, scores, reward)

    def known(self, tokens: Tensor) -> Tensor:
        return self._task.known(tokens)

    def free(self, tokens: Tensor) -> Tensor:
        return self._task.free(tokens)

    def feasible(self, tokens: Tensor) -> Tensor | None:
        return self._task.feasible(tokens)

    def modes_reached(self, tokens: Tensor) -> Tensor | None:
        return self._task.modes_reached(tokens)

    def check(self) -> None:
        self._task.check()

    def open(self, directory: Path) -> None:
        self._task.open(directory)

    def close(self) -> None:
        self._task.close()
