"""Tasks by name. What `stochflow tasks` prints of them stands here; a class is imported when its task is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stochflow.core.errors import ConfigError
from stochflow.core.plugins import plugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from stochflow.environments.sequences.task import Task

GROUP = "stochflow.tasks"
_SEQUENCES = "stochflow.environments.sequences"


@dataclass(frozen=True)
class TaskEntry:
    """A task that is built when it is called; the rest is what a list of tasks says of it.

    Attributes:
        place: of what builds it, "module:name" below the package of sequences.
        argument: that it is built with.
        num_tokens, length: K and L.
        description: one sentence.
        letters: all of them; None where they are too many to be listed.
        source, num_measured: as in `Task`.
        extra: module and extra of this package that it needs.
    """

    place: str
    argument: Any
    num_tokens: int
    length: int
    description: str
    letters: str | None = None
    source: str = "computed"
    num_measured: int | None = None
    extra: tuple[str, str] | None = None

    def __call__(self) -> Task:
        task: Task = _found(self.place)(self.argument)
        return task


def _found(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"{_SEQUENCES}.{module}"), name)
    return found


# computed tasks with parameters in their names: what makes the task of what stands after the colon, and how names look
FAMILIES = {
    "bits": ("bits:bit_sequences", "bits:n,k"),
    "ehrlich": ("ehrlich:ehrlich", "ehrlich:v,L,c,k[,q]"),
    "motifs": ("motifs.task:motif_task", "motifs:NAME[+NAME…],L"),
    "rna-fold": ("rna_fold:rna_fold", "rna-fold:L"),
}
_FACTORS = ("SIX6", "ARX", "HOXB7", "HOXC4", "ISX", "MSX2", "PAX4", "PAX6", "PBX4", "PITX2", "VAX2", "ZNF655")
_LANDSCAPES = {
    "gb1": (20, 4, None, "protein G at four sites; log enrichment by binding, with variances", "Wu 2016", 149_361),
    "dmsc": (4, 9, "ACGU", "Shine–Dalgarno RNA before dmsC; expression, with variances", "Kuo 2020", 257_565),
    "mpsa": (4, 9, "ACGU", "5′ splice sites NNNGYNNNN of BRCA2; log10 PSI, two replicates", "Wong 2018", 31_587),
}
_FOLDS = {
    14: "((((......))))",
    30: "(((((..((((....))))...)))))...",
    50: "((((((..(((((....)))))..(((((....)))))..))))))....",
    100: "(((((((((..((((((((......))))))))..((((((((.......))))))))....((((((((.......))))))))..)))))))))....",
}


def _bits(num_bits: int, word_length: int) -> TaskEntry:
    return TaskEntry(
        "bits:bit_sequences",
        f"{num_bits},{word_length}",
        2**word_length,
        num_bits // word_length,
        f"{num_bits} bits, {word_length} per step, near one of 60 modes; bits:n,k for others",
        "01" if word_length == 1 else None,
    )


def _ehrlich(num_letters: int, length: int, num_motifs: int, motif_length: int) -> TaskEntry:
    return TaskEntry(
        "ehrlich:ehrlich",
        f"{num_letters},{length},{num_motifs},{motif_length}",
        num_letters,
        length,
        f"{num_motifs} spaced motifs, banned transitions, best score 1; ehrlich:v,L,c,k[,q] for others",
    )


def _motifs(*factors: str, length: int) -> TaskEntry:
    return TaskEntry(
        "motifs.task:motif_task",
        f"{'+'.join(factors)},{length}",
        4,
        length,
        f"promoters with binding sites of {' and '.join(factors)} on both strands; motifs:NAME[+NAME…],L for others",
        "ACGT",
        "JASPAR 2024",
    )


# what `stochflow tasks` lists; of the families a few members
TASKS: dict[str, Callable[[], Task]] = {
    **{
        "tfbind8" if factor == "SIX6" else f"tfbind8:{factor}": TaskEntry(
            "tfbind8:TFBind8",
            factor,
            4,
            8,
            f"DNA 8-mers bound by the transcription factor {factor}; two replicates",
            "ACGT",
            "Barrera 2016",
            4**8,
        )
        for factor in _FACTORS
    },
    **{
        name: TaskEntry("landscapes:make_landscape", name, num_tokens, length, description, letters, source, measured)
        for name, (num_tokens, length, letters, description, source, measured) in _LANDSCAPES.items()
    },
    **{f"bits:120,{word_length}": _bits(120, word_length) for word_length in (1, 8)},
    "ehrlich:20,15,2,4": _ehrlich(20, 15, 2, 4),
    "ehrlich:32,32,4,4": _ehrlich(32, 32, 4, 4),
    "motifs:CTCF+SP1,50": _motifs("CTCF", "SP1", length=50),
    "motifs:GATA1+SP1+TBP,100": _motifs("GATA1", "SP1", "TBP", length=100),
    **{
        f"rna-fold:{length}": TaskEntry(
            "rna_fold:RnaFold",
            length,
            4,
            length,
            f"RNA that folds into {target}; score 1 − ensemble defect in [0, 1]",
            "ACGU",
            extra=("RNA", "rna"),
        )
        for length, target in _FOLDS.items()
    },
}
# tasks whose states form a graph: one of each family, and how names look
GRAPHS = {
    "hypergrid": "hypergrid:DIMENSIONS,SIDE",
    "gym:FrozenLake-v1": "gym:ENVIRONMENT[:horizon=STEPS][:option=value…]",
}
_GRAPH_FAMILIES = {name.partition(":")[0] for name in GRAPHS}
# a table of the user's own; it needs a file, so it is not in the list
TABLE_TASK = "table"
# promoters for motif matrices of the user's own; it needs a file too
MOTIF_TASK = "motif-matrix"
# several tasks at once; `pretraining.tasks` names them
PRETRAINING_TASK = "pretraining"
# a score function of the user's own
ORACLE_PREFIX = "oracle:"


def names_graph(task: str) -> bool:
    """True for the name of a task whose states form a graph."""
    return task.partition(":")[0] in _GRAPH_FAMILIES


def check_task_name(name: str) -> None:
    """Refuse a name that nothing is known by, with the names there are; numbers in it are not read."""
    if name == TABLE_TASK:
        raise ConfigError("the task 'table' needs a file; give one with --table or the setting table.file")
    if name == MOTIF_TASK:
        raise ConfigError("the task 'motif-matrix' needs a file; give one with --motif-matrix, and a --length")
    if name == PRETRAINING_TASK:
        raise ConfigError("the task 'pretraining' stands for several; name them: `stochflow pretrain --tasks A,B`")
    if name in TASKS or name.partition(":")[0] in FAMILIES:
        return
    others = other_tasks()
    if name not in others:
        names = ", ".join([*TASKS, *others, *(form for _, form in FAMILIES.values())])
        raise ConfigError(f"unknown task '{name}'; choose one of: {names}, or give a --table or --oracle of your own")


def make_task(name: str) -> Task:
    """The task of that name, of this package or another, or an error that lists the names there are."""
    check_task_name(name)
    if name in TASKS:
        return TASKS[name]()
    family, _, parameters = name.partition(":")
    if family in FAMILIES:
        task: Task = _found(FAMILIES[family][0])(parameters)
        return task
    from stochflow.environments.plugins import load_plugin  # which knows what a task must have, and with it torch

    return load_plugin(other_tasks()[name])


def other_tasks() -> dict[str, EntryPoint]:
    """Entry points of other packages' tasks by name; names of our own cannot be taken."""
    others = plugins(GROUP, {*TASKS, TABLE_TASK, MOTIF_TASK, PRETRAINING_TASK})
    return {name: point for name, point in others.items() if name.partition(":")[0] not in FAMILIES}
