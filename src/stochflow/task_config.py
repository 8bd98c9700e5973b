"""From settings to a task."""

from collections.abc import Callable
from typing import Any

from stochflow.config import Config
from stochflow.oracles.task import PREFIX, OracleTask
from stochflow.tasks import Task, make_task


def configured_task(config: Config, function: Callable[..., Any] | None = None) -> Task:
    """The task that a config names; nothing of a user's own code is imported here.

    Args:
        function: the oracle itself, where it cannot be imported by its name.
    """
    if config.task.startswith(PREFIX):
        return OracleTask(config.task.removeprefix(PREFIX), config.oracle, function)
    return make_task(config.task)
