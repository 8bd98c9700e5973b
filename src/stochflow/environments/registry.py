"""Tasks by name. What `stochflow tasks` prints of them stands here; a class is imported when its task is built."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stochflow.config.objectives import load_class
from stochflow.core.errors import ConfigError
from stochflow.core.plugins import plugins, reason_of, unusable

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
        task: Task = load_class(f"{_SEQUENCES}.{self.place}")(self.argument)
        return task


# computed tasks with parameters in their names: what makes the task of what stands after the colon
FAMILIES = {
    "bits": "bits:bit_sequences",
    "ehrlich": "ehrlich:ehrlich",
    "motifs": "motifs.task:motif_task",
    "rna-bind": "rna_bind:rna_bind",
    "rna-fold": "rna_fold:rna_fold",
}
# how names of a family look
FORMS = {
    "bits": "bits:n,k",
    "ehrlich": "ehrlich:v,L,c,k[,q]",
    "motifs": "motifs:NAME[+NAME…],L",
    "rna-bind": "rna-bind:NAME[+NAME…],L",
    "rna-fold": "rna-fold:L",
    "hypergrid": "hypergrid:DIMENSIONS,SIDE",
    "gym": "gym:ENVIRONMENT[:horizon=STEPS][:option=value…]",
}
# of TFBind8: every factor whose replicates correlate by 0.9 or more
FACTORS = ("SIX6", "ARX", "HOXB7", "HOXC4", "ISX", "MSX2", "PAX4", "PAX6", "PBX4", "PITX2", "VAX2", "ZNF655")
_PROTEIN = "ACDEFGHIKLMNPQRSTVWY"
# letters, length, description, source, number of measured sequences
LANDSCAPES = {
    "gb1": (_PROTEIN, 4, "protein G at four sites; log enrichment by binding, with variances", "Wu 2016", 149_361),
    "dmsc": ("ACGU", 9, "Shine–Dalgarno RNA before dmsC; expression, with variances", "Kuo 2020", 257_565),
    "mpsa": ("ACGU", 9, "5′ splice sites NNNGYNNNN of BRCA2; log10 PSI, two replicates", "Wong 2018", 31_587),
    "smn1": ("ACGU", 8, "5′ splice sites NNN(G)YNNNN of SMN1; PSI in percent, with variances", "Wong 2018", 30_732),
    "intron30c": (
        "ACGT",
        8,
        "Tetrahymena intron at eight sites of P1ex, 30 °C; fitness, with variances",
        "Soo 2021",
        4**8,
    ),
}
# of RNA by length: hairpin; hairpin with an interior loop; three-way junction; cloverleaf
FOLDS = {
    14: "((((......))))",
    30: "(((((..((((....))))...)))))...",
    50: "((((((..(((((....)))))..(((((....)))))..))))))....",
    100: "(((((((((..((((((((......))))))))..((((((((.......))))))))....((((((((.......))))))))..)))))))))....",
}
# of RNA binding
BIND_TARGETS = ("RNA1", "RNA2", "RNA3", "RNA4")
BIND_LENGTHS = (14, 50, 100)


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


def binding_description(*targets: str) -> str:
    """What `stochflow tasks` says of RNA that binds targets."""
    return f"RNA that binds {' and '.join(targets)}; energy of the duplex over that of the complement, near 1 at best"


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
        for factor in FACTORS
    },
    **{
        name: TaskEntry("landscapes:make_landscape", name, len(letters), length, description, letters, source, measured)
        for name, (letters, length, description, source, measured) in LANDSCAPES.items()
    },
    **{f"bits:120,{word_length}": _bits(120, word_length) for word_length in (1, 8)},
    "ehrlich:20,15,2,4": _ehrlich(20, 15, 2, 4),
    "ehrlich:32,32,4,4": _ehrlich(32, 32, 4, 4),
    "motifs:CTCF+SP1,50": _motifs("CTCF", "SP1", length=50),
    "motifs:GATA1+SP1+TBP,100": _motifs("GATA1", "SP1", "TBP", length=100),
    **{
        f"rna-bind:{target},{length}": TaskEntry(
            "rna_bind:rna_bind",
            f"{target},{length}",
            4,
            length,
            binding_description(target),
            "ACGU",
            "Sinai 2020",
            extra=("RNA", "rna"),
        )
        for length in BIND_LENGTHS
        for target in BIND_TARGETS
    },
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
        for length, target in FOLDS.items()
    },
}
# tasks whose states form a graph, one of each family
GRAPHS = ("hypergrid", "gym:FrozenLake-v1")
# what they have by default; a Gymnasium world is noisy already, and what scores nothing there must stay reachable
_BY_STATE = {"dynamics": {"depends_on": "state"}}
GRAPH_SETTINGS: dict[str, dict[str, Any]] = {
    "hypergrid": {"reward": {"beta": 1.0}, **_BY_STATE},
    "gym": {"reward": {"beta": 1.0, "floor": 0.01}, **_BY_STATE, "channel": {"kind": "none"}},
}
# a table of the user's own; it needs a file, so it is not in the list
TABLE_TASK = "table"
# promoters for motif matrices of the user's own; it needs a file too
MOTIF_TASK = "motif-matrix"
# a site of many letters is rare, and no score may end at the floor
_OF_MOTIFS: dict[str, Any] = {"reward": {"beta": 60.0, "floor": 1e-40}}
# max(score, 0.001)^8, as published for GFlowNets at L = 14 (arXiv:2310.02710)
_OF_BINDING: dict[str, Any] = {"reward": {"beta": 8.0, "floor": 1e-24}}
# several tasks at once; `pretraining.tasks` names them
PRETRAINING_TASK = "pretraining"
# a score function of the user's own
ORACLE_PREFIX = "oracle:"
# noise that nobody asked for would be a claim about somebody's own laboratory, where whole designs are ordered
_OF_YOUR_OWN: dict[str, Any] = {"channel": {"kind": "none"}, "feedback": "none"}
# what tasks have by default, by family
TASK_SETTINGS = GRAPH_SETTINGS | {
    "motifs": _OF_MOTIFS,
    MOTIF_TASK: _OF_MOTIFS,
    "rna-bind": _OF_BINDING,
    TABLE_TASK: _OF_YOUR_OWN,
    ORACLE_PREFIX.removesuffix(":"): _OF_YOUR_OWN,
}
# that no design of a family exceeds: of bits it is e, of the others one
_SCORE_BOUNDS = {"bits": math.e, "ehrlich": 1.0, "motifs": 1.0, MOTIF_TASK: 1.0, "rna-fold": 1.0}


def names_graph(task: str) -> bool:
    """True for the name of a task whose states form a graph."""
    return task.partition(":")[0] in GRAPH_SETTINGS


def noise_is_asked_for(task: str) -> bool:
    """True for the name of a task that has no noise unless some is given: a table, an oracle, a Gymnasium world.

    >>> noise_is_asked_for("oracle:lab:score"), noise_is_asked_for("tfbind8")
    (True, False)
    """
    channel: dict[str, Any] = TASK_SETTINGS.get(task.partition(":")[0], {}).get("channel", {})
    return channel.get("kind") == "none"


def score_bound(task: str) -> float | None:
    """A score that no design of a task exceeds; None where none is known.

    >>> score_bound("ehrlich:32,32,4,4"), score_bound("rna-bind:RNA1,50")
    (1.0, None)
    """
    return _SCORE_BOUNDS.get(task.partition(":")[0])


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
        names = ", ".join([*TASKS, *others, *(FORMS[family] for family in FAMILIES)])
        raise ConfigError(f"unknown task '{name}'; choose one of: {names}, or give a --table or --oracle of your own")


def make_task(name: str) -> Task:
    """The task of that name, of this package or another, or an error that lists the names there are."""
    check_task_name(name)
    if name in TASKS:
        return TASKS[name]()
    family, _, parameters = name.partition(":")
    if family in FAMILIES:
        task: Task = load_class(f"{_SEQUENCES}.{FAMILIES[family]}")(parameters)
        return task
    return load_task(other_tasks()[name])


def other_tasks() -> dict[str, EntryPoint]:
    """Entry points of other packages' tasks by name; names of our own cannot be taken."""
    others = plugins(GROUP, {*TASKS, TABLE_TASK, MOTIF_TASK, PRETRAINING_TASK})
    return {name: point for name, point in others.items() if name.partition(":")[0] not in FAMILIES}


def numbers_in(parameters: str, family: str, least: int, most: int) -> list[int]:
    """Whole numbers of at least one after the colon of a task's name: 120 and 8 of `bits:120,8`.

    Args:
        least, most: how many numbers there may be.
    """
    parts = parameters.split(",")
    if not least <= len(parts) <= most or not all(re.fullmatch(r"[1-9][0-9]{0,8}", part) for part in parts):
        raise ConfigError(
            f"task '{family}:{parameters}' is not understood; write {FORMS[family]} with whole numbers of at least one"
        )
    return [int(part) for part in parts]


def load_task(point: EntryPoint) -> Task:
    """The task of another package, an entry point of a factory, or an error that names the package."""
    from stochflow.environments.sequences.task import Task  # which knows what a task must have, and with it torch

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
