"""Several tasks over one alphabet and length as one environment."""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment
from stochflow.environments.channels import Channel
from stochflow.environments.registry import PRETRAINING_TASK
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment, configured_channel
from stochflow.environments.sequences.task import Task


class MultiTaskEnvironment(SequenceEnvironment):
    """The world draws one of several tasks, each equally likely, and sequences are written for it.

    An object is a task and a sequence, a row of 1 + L numbers. Rows of a batch are shared out among the tasks evenly
    and in order, by `tasks_of_rows`, so the truth is that of the joint distribution: means over the tasks.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> environment = MultiTaskEnvironment([TFBind8("SIX6"), TFBind8("ARX")], uniform_slip(4, alpha=0.25))
    >>> outcomes = torch.zeros(4, 8, dtype=torch.int64)
    >>> environment.made(outcomes, torch.ones_like(outcomes, dtype=torch.bool))[:, 0]
    tensor([0, 0, 1, 1])

    Attributes:
        tasks: enumerable, of one alphabet and length.
        task: the first of them; it stands for alphabet and length.
    """

    # as where there is no task: whole tables are known, and the tasks share neither constraints nor modes
    known, feasible, modes_reached = Environment.known, Environment.feasible, Environment.modes_reached

    def __init__(self, tasks: Sequence[Task], channel: Channel) -> None:
        if len({(task.alphabet, task.length) for task in tasks}) != 1 or not tasks[0].enumerable:
            raise ConfigError("pre-training needs enumerable tasks of one alphabet and length; choose others")
        super().__init__(tasks[0], channel)
        self.tasks = list(tasks)
        self.name = PRETRAINING_TASK
        self.noisy = any(task.noisy for task in tasks)
        self.mode_threshold = max(task.mode_threshold for task in tasks)

    def under(self, config: Config) -> "MultiTaskEnvironment":
        return MultiTaskEnvironment(self.tasks, configured_channel(config.channel, self.task))

    def made(self, outcomes: Tensor, valid: Tensor) -> Tensor:
        return torch.cat([tasks_of_rows(len(outcomes), len(self.tasks)).unsqueeze(-1), outcomes], dim=1)

    def measure(self, made: Tensor, generator: torch.Generator) -> Tensor:
        return self._by_task(made, lambda task, rows: task.measure(made[rows, 1:], generator))

    def score(self, made: Tensor) -> Tensor:
        return self._by_task(made, lambda task, rows: task.score(made[rows, 1:]))

    def log_reward(self, made: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        return self._by_task(made, lambda task, rows: task.log_reward(made[rows, 1:], scores[rows], reward))

    def log_share(self, made: Tensor) -> Tensor:
        """Every task has an equal share of the joint target."""
        return torch.full((len(made),), -math.log(len(self.tasks)), dtype=torch.float64)

    def designs(self, made: Tensor) -> Tensor:
        return made[:, 1:]

    def frame(self, intentions: Tensor, outcomes: Tensor, valid: Tensor) -> pd.DataFrame:
        numbers = tasks_of_rows(len(outcomes), len(self.tasks)).tolist()
        names = [self.tasks[number].name for number in numbers]
        return super().frame(intentions, outcomes, valid).assign(task=names)

    def _by_task(self, made: Tensor, figure: Callable[[Task, Tensor], Tensor]) -> Tensor:
        """A figure of every object as its own task has it, float64; the rows of a task at once."""
        found = torch.empty(len(made), dtype=torch.float64)
        for number, task in enumerate(self.tasks):
            rows = made[:, 0] == number
            found[rows] = figure(task, rows).double()
        return found


def tasks_of_rows(num_rows: int, num_tasks: int) -> Tensor:
    """The task of every row of a batch: equal shares, in order, [num_rows]."""
    return torch.arange(num_rows) * num_tasks // max(num_rows, 1)
