"""Tasks by name."""

from collections.abc import Callable
from functools import partial

from stochflow.errors import ConfigError
from stochflow.tasks.base import Alphabet, Reward, Task
from stochflow.tasks.landscapes import LANDSCAPES, make_landscape
from stochflow.tasks.tfbind8 import FACTORS, TFBind8, task_name

__all__ = ["TABLE_TASK", "TASKS", "Alphabet", "Reward", "Task", "make_task"]

TASKS: dict[str, Callable[[], Task]] = {
    **{task_name(factor): partial(TFBind8, factor) for factor in FACTORS},
    **{name: partial(make_landscape, name) for name in LANDSCAPES},
}
# a table of the user's own; it needs a file, so it is not in the list
TABLE_TASK = "table"


def make_task(name: str) -> Task:
    """The task of that name, or an error that lists the names there are."""
    if name == TABLE_TASK:
        raise ConfigError("the task 'table' needs a file; give one with --table or the setting table.file")
    if name not in TASKS:
        raise ConfigError(f"unknown task '{name}'; choose one of: {', '.join(TASKS)}, or give a --table of your own")
    return TASKS[name]()
