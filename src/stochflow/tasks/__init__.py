"""Tasks by name."""

from collections.abc import Callable
from functools import partial

from stochflow.errors import ConfigError
from stochflow.tasks.base import Alphabet, Reward, Task
from stochflow.tasks.plugins import load_plugin, package_of, plugin_tasks
from stochflow.tasks.tfbind8 import FACTORS, TFBind8, task_name

__all__ = ["TASKS", "Alphabet", "Reward", "Task", "load_plugin", "make_task", "package_of", "plugin_tasks"]

TASKS: dict[str, Callable[[], Task]] = {task_name(factor): partial(TFBind8, factor) for factor in FACTORS}


def make_task(name: str) -> Task:
    """The task of that name, of this package or another, or an error that lists the names there are."""
    if name in TASKS:
        return TASKS[name]()
    plugins = plugin_tasks(TASKS)
    if name not in plugins:
        raise ConfigError(f"unknown task '{name}'; choose one of: {', '.join(sorted([*TASKS, *plugins]))}")
    return load_plugin(plugins[name])
