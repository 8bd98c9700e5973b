"""Reward noise: tasks whose measurements are random, and their target E[R]."""

import math
from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.wrappers import WrappedTask

# Gauss–Hermite quadrature for normal expectations; many nodes, since clipping and the floor are not smooth
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(64))
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_ROWS_AT_A_TIME = 2**15


def with_noise(task: Task, noise: str) -> Task:
    """The task with reward noise: `none`, `replicate`, `gaussian` (deviations of the table) or `gaussian:σ`."""
    kind, _, size = noise.strip().partition(":")
    if kind == "none" and not size:
        return task
    if kind == "replicate" and not size:
        return ReplicateNoise(task)
    if kind == "gaussian":
        return GaussianNoise(task, _deviation(size) if size else None)
    raise ConfigError(f"reward noise '{noise}' is not understood; choose none, replicate, gaussian or gaussian:0.1")


def _deviation(text: str) -> float:
    try:
        sigma = float(text)
    except ValueError:
        sigma = math.nan
    if not 0.0 < sigma < math.inf:
        raise ConfigError(f"reward noise 'gaussian:{text}' needs a standard deviation above 0; write gaussian:0.1")
    return sigma


class NoisyTask(WrappedTask):
    """A task measured with noise. Its score is the expected measurement, its reward the expected reward."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.noisy = True

    @abstractmethod
    def possible(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Possible measurements, [num_sequences, cases], and their probabilities, [cases]."""

    def score(self, tokens: Tensor) -> Tensor:
        return torch.cat([self._expected(rows, None) for rows in tokens.split(_ROWS_AT_A_TIME)])

    def log_reward(self, tokens: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        return torch.cat([self._expected(rows, reward) for rows in tokens.split(_ROWS_AT_A_TIME)])

    def _expected(self, tokens: Tensor, reward: Reward | None) -> Tensor:
        """E[score] without a reward, log E[R] with one; [num_sequences]."""
        cases, weights = self.possible(tokens)
        if reward is None:
            return cases @ weights
        return torch.logsumexp(reward.log_reward(cases) + weights.log(), dim=-1)


class ReplicateNoise(NoisyTask):
    """A measurement is one of the replicates, drawn uniformly."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        if task.replicates(torch.zeros(1, task.length, dtype=torch.int64)) is None:
            raise ConfigError(
                f"'{task.name}' has no replicates to draw from; choose the reward noise none, gaussian or gaussian:0.1"
            )

    def possible(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        cases = self._replicates(tokens)
        return cases, torch.full(cases.shape[1:], 1.0 / cases.shape[1], dtype=torch.float64)

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        cases = self._replicates(tokens)
        drawn = torch.randint(cases.shape[1], (len(cases), 1), generator=generator)
        return cases.gather(1, drawn).squeeze(-1)

    def _replicates(self, tokens: Tensor) -> Tensor:
        found = self._task.replicates(tokens)
        assert found is not None  # checked in the constructor
        return found.double()


class GaussianNoise(NoisyTask):
    """A measurement is the score plus a normal error, clipped at zero."""

    def __init__(self, task: Task, sigma: float | None) -> None:
        super().__init__(task)
        self._sigma = sigma
        if sigma is None and task.deviations(torch.zeros(1, task.length, dtype=torch.int64)) is None:
            raise ConfigError(f"'{task.name}' has no variances; say how large the noise is, for example gaussian:0.1")

    def possible(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        means = self._task.score(tokens).double().unsqueeze(-1)
        return (means + self._deviations(tokens).unsqueeze(-1) * _NODES).clamp_min(0.0), _WEIGHTS

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        errors = torch.randn(len(tokens), generator=generator, dtype=torch.float64)
        return (self._task.score(tokens).double() + self._deviations(tokens) * errors).clamp_min(0.0)

    def _deviations(self, tokens: Tensor) -> Tensor:
        if self._sigma is not None:
            return torch.full((len(tokens),), self._sigma, dtype=torch.float64)
        found = self._task.deviations(tokens)
        assert found is not None  # checked in the constructor
        return found.double()
