"""Tasks by name."""

from collections.abc import Callable
from functools import partial

from stochflow.errors import ConfigError
from stochflow.tasks.base import Alphabet, Reward, Task
from stochflow.tasks.tfbind8 import FACTORS, TFBind8, task_name

__all__ = ["TASKS", "Alphabet", "Reward", "Task", "make_task"]

TASKS: dict[str, Callable[[], Task]] = {task_name(factor): partial(TFBind8, factor) for factor in FACTORS}


def make_task(name: str) -> Task:
    """The task of that name, or an error that lists the names there are."""
    if name not in TASKS:
        raise ConfigError(f"unknown task '{name}'; choose one of: {', '.join(sorted(TASKS))}")
    return TASKS[name]()
