"""What is written down of a task agrees with the task that is built."""

import pytest

from stochflow.core.errors import ConfigError
from stochflow.environments.graphs import gymnasium, hypergrid
from stochflow.environments.graphs.factory import FAMILIES as GRAPH_FAMILIES
from stochflow.environments.registry import FAMILIES, GRAPHS, TASKS, TaskEntry, make_task, names_graph
from stochflow.environments.sequences import bits, ehrlich, landscapes, rna_fold, tfbind8
from stochflow.environments.sequences.motifs import task as motifs


@pytest.mark.parametrize("name", TASKS)
def test_a_list_of_tasks_says_what_the_task_says_of_itself(name: str) -> None:
    entry, task = TASKS[name], make_task(name)
    assert isinstance(entry, TaskEntry)
    assert task.name == name
    assert (entry.num_tokens, entry.length) == (task.num_tokens, task.length)
    assert entry.letters in (None, task.alphabet.letters)
    assert (entry.description, entry.source, entry.num_measured) == (task.description, task.source, task.num_measured)


def test_every_factor_landscape_and_fold_has_a_name() -> None:
    expected = {tfbind8.task_name(factor) for factor in tfbind8.FACTORS} | set(landscapes.LANDSCAPES)
    expected |= {f"rna-fold:{length}" for length in rna_fold.TARGETS}
    assert expected == {name for name in TASKS if name.partition(":")[0] not in ("bits", "ehrlich", "motifs")}


def test_names_look_as_their_families_say() -> None:
    forms = {family: form for family, (_, form) in FAMILIES.items()}
    assert forms == {
        "bits": bits.FORM,
        "ehrlich": ehrlich.FORM,
        "motifs": motifs.FORM,
        "rna-fold": rna_fold.FORM,
    }
    assert GRAPHS == {"hypergrid": hypergrid.FORM, gymnasium.EXAMPLE: gymnasium.FORM}
    assert all(names_graph(family) for family in GRAPH_FAMILIES)
    assert not any(names_graph(name) for name in TASKS)


def test_an_unknown_task_lists_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown task 'tfbind9'.*tfbind8"):
        make_task("tfbind9")
