"""Tasks by name."""

from collections.abc import Callable
from functools import partial

from stochflow.errors import ConfigError
from stochflow.tasks import bits, ehrlich, rna_fold
from stochflow.tasks.base import Alphabet, Reward, Task
from stochflow.tasks.tfbind8 import FACTORS, TFBind8, task_name

__all__ = ["FAMILIES", "TASKS", "Alphabet", "Reward", "Task", "make_task"]

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
    **{name: partial(bits.bit_sequences, name.partition(":")[2]) for name in ("bits:120,1", "bits:120,8")},
    **{name: partial(ehrlich.ehrlich, name.partition(":")[2]) for name in ("ehrlich:20,15,2,4", "ehrlich:32,32,4,4")},
    **{f"rna-fold:{length}": partial(rna_fold.RnaFold, length) for length in rna_fold.TARGETS},
}


def make_task(name: str) -> Task:
    """The task of that name, or an error that lists the names there are."""
    if name in TASKS:
        return TASKS[name]()
    family, _, parameters = name.partition(":")
    if family in FAMILIES:
        return FAMILIES[family](parameters)
    raise ConfigError(
        f"unknown task '{name}'; choose one of: {', '.join(TASKS)}; or other numbers in {', '.join(_FORMS)}"
    )
