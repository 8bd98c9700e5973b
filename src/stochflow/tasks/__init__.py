"""Tasks by name."""

from collections.abc import Callable

from stochflow.errors import ConfigError
from stochflow.tasks.base import Alphabet, Reward, Task
from stochflow.tasks.tfbind8 import TFBind8

__all__ = ["TASKS", "Alphabet", "Reward", "Task", "make_task"]

TASKS: dict[str, Callable[[], Task]] = {TFBind8.name: TFBind8}


def make_task(name: str) -> Task:
    """The task of that name, or an error that lists the names there are."""
    if name not in TASKS:
        raise ConfigError(f"unknown task '{name}'; choose one of: {', '.join(sorted(TASKS))}")
    return TASKS[name]()
