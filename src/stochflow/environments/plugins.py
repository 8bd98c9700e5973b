"""Tasks of other packages: entry points of the group `stochflow.tasks`, each a factory that returns a Task."""

from importlib.metadata import EntryPoint

from stochflow.core.plugins import reason_of, unusable
from stochflow.environments.sequences.task import Task


def load_plugin(point: EntryPoint) -> Task:
    """The task of another package, or an error that names the package."""
    try:
        task = point.load()()
    # whatever the code of another package does wrong, the user hears which package it is
    except Exception as error:
        raise unusable("task", point, f" ({reason_of(error)})") from None
    missing = [name for name in Task.__annotations__ if not hasattr(task, name)]
    if not isinstance(task, Task) or missing:
        what = f"without {', '.join(missing)}" if isinstance(task, Task) else "which is no stochflow Task"
        raise unusable("task", point, f": {point.value} returned {type(task).__name__}, {what}")
    return task
