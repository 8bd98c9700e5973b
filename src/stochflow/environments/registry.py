"""Tasks by name."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint

from stochflow.core.errors import ConfigError
from stochflow.environments.plugins import load_plugin, package_of, plugin_tasks
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences import bits, ehrlich, rna_fold
from stochflow.environments.sequences.landscapes import LANDSCAPES, make_landscape
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.environments.sequences.tfbind8 import FACTORS, TFBind8, task_name

__all__ = [
    "FAMILIES",
    "TABLE_TASK",
    "TASKS",
    "Alphabet",
    "Reward",
    "Task",
    "load_plugin",
    "make_task",
    "other_tasks",
    "package_of",
]

# computed tasks with numbers in their names: what stands after the colon makes the task
FAMILIES: dict[str, Callable[[str], Task]] = {
    "bits": bits.bit_sequences,
    "ehrlich": ehrlich.ehrlich,
    "rna-fold": rna_fold.rna_fold,
}
_FORMS = (bits.FORM, ehrlich.FORM, rna_fold.FORM)

# what `stochflow tasks` lists; of the families a few members
TASKS: dict[str, Callable[[], Task]] = {
    **{task_name(factor): partial(TFBind8, factor) for factor in FACTORS},
    **{name: partial(make_landscape, name) for name in LANDSCAPES},
    **{name: partial(bits.bit_sequences, name.partition(":")[2]) for name in ("bits:120,1", "bits:120,8")},
    **{name: partial(ehrlich.ehrlich, name.partition(":")[2]) for name in ("ehrlich:20,15,2,4", "ehrlich:32,32,4,4")},
    **{f"rna-fold:{length}": partial(rna_fold.RnaFold, length) for length in rna_fold.TARGETS},
}
# a table of the user's own; it needs a file, so it is not in the list
TABLE_TASK = "table"


def make_task(name: str) -> Task:
    """The task of that name, of this package or another, or an error that lists the names there are."""
    if name == TABLE_TASK:
        raise ConfigError("the task 'table' needs a file; give one with --table or the setting table.file")
    if name in TASKS:
        return TASKS[name]()
    family, _, parameters = name.partition(":")
    if family in FAMILIES:
        return FAMILIES[family](parameters)
    others = other_tasks()
    if name not in others:
        names = ", ".join([*TASKS, *others, *_FORMS])
        raise ConfigError(f"unknown task '{name}'; choose one of: {names}, or give a --table or --oracle of your own")
    return load_plugin(others[name])


def other_tasks() -> dict[str, EntryPoint]:
    """Entry points of other packages' tasks by name; names of our own cannot be taken."""
    others = plugin_tasks({*TASKS, TABLE_TASK})
    return {name: point for name, point in others.items() if name.partition(":")[0] not in FAMILIES}
