"""Base class of tasks that wrap another task and change part of its behaviour."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
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
        self.evidence = task.evidence

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


class RestrictedTask(WrappedTask):
    """A task of which only some designs are allowed. The others score zero, and no oracle is asked for them."""

    @abstractmethod
    def allowed(self, tokens: Tensor) -> Tensor:
        """True for allowed designs; [num_sequences, length] → [num_sequences]."""

    def inner(self, tokens: Tensor) -> Tensor:
        """Allowed designs as the wrapped task writes them; the same tokens by default."""
        return tokens

    def score(self, tokens: Tensor) -> Tensor:
        return self._filled(torch.zeros(len(tokens), dtype=torch.float64), tokens, self._task.score)

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        measure = partial(self._task.measure, generator=generator)
        return self._filled(torch.zeros(len(tokens), dtype=torch.float64), tokens, measure)

    def log_reward(self, tokens: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        log_rewards = reward.log_reward(torch.zeros(len(tokens), dtype=torch.float64))
        allowed = self.allowed(tokens)
        log_rewards[allowed] = self._task.log_reward(self.inner(tokens[allowed]), scores[allowed], reward).double()
        return log_rewards

    def known(self, tokens: Tensor) -> Tensor:
        return self._filled(torch.ones(len(tokens), dtype=torch.bool), tokens, self._task.known)

    def free(self, tokens: Tensor) -> Tensor:
        return self._filled(torch.ones(len(tokens), dtype=torch.bool), tokens, self._task.free)

    def _filled(self, values: Tensor, tokens: Tensor, evaluate: Callable[[Tensor], Tensor]) -> Tensor:
        """Values of allowed designs from the wrapped task, the others as they are; [num_sequences]."""
        allowed = self.allowed(tokens)
        if bool(allowed.any()):
            values[allowed] = evaluate(self.inner(tokens[allowed])).to(values.dtype)
        return values
