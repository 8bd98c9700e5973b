"""Tasks of other packages: entry points of the group `stochflow.tasks`, each a factory that returns a Task."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.task import Task

GROUP = "stochflow.tasks"


def plugin_tasks(taken: Iterable[str] = ()) -> dict[str, EntryPoint]:
    """Entry points by task name, in alphabetical order; names that are `taken` stay with their owners."""
    found = sorted(entry_points(group=GROUP), key=lambda point: (point.name, package_of(point)))
    return {point.name: point for point in found if point.name not in set(taken)}


def package_of(point: EntryPoint) -> str:
    """The distribution that registers a task."""
    return "unknown" if point.dist is None else point.dist.name


def load_plugin(point: EntryPoint) -> Task:
    """The task of another package, or an error that names the package."""
    try:
        task = point.load()()
    # whatever the code of another package does wrong, the user hears which package it is
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"the task '{point.name}' of the package {package_of(point)} cannot be used ({reason}); "
            "update or uninstall that package"
        ) from None
    missing = [name for name in Task.__annotations__ if not hasattr(task, name)]
    if not isinstance(task, Task) or missing:
        what = f"without {', '.join(missing)}" if isinstance(task, Task) else "which is no stochflow Task"
        raise ConfigError(
            f"the task '{point.name}' of the package {package_of(point)} cannot be used: {point.value} returned "
            f"{type(task).__name__}, {what}; update or uninstall that package"
        )
    return task
