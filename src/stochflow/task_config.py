"""From settings to a task."""

from collections.abc import Callable
from typing import Any

from stochflow.config import Config, ConstraintConfig
from stochflow.constraints import ConstrainedTask
from stochflow.oracles.task import PREFIX, OracleTask
from stochflow.tasks import Task, make_task


def configured_task(config: Config, function: Callable[..., Any] | None = None) -> Task:
    """The task that a config names; nothing of a user's own code is imported here.

    Args:
        function: the oracle itself, where it cannot be imported by its name.
    """
    if config.task.startswith(PREFIX):
        task: Task = OracleTask(config.task.removeprefix(PREFIX), config.oracle, function)
    else:
        task = make_task(config.task)
    unconstrained = config.constraints == ConstraintConfig()
    return task if unconstrained else ConstrainedTask(task, config.constraints)
