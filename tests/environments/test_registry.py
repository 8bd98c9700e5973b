"""What is written down of a task agrees with the task that is built."""

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.graphs.factory import FAMILIES as GRAPH_FAMILIES
from stochflow.environments.registry import (
    BIND_LENGTHS,
    BIND_TARGETS,
    FACTORS,
    FAMILIES,
    FOLDS,
    FORMS,
    GRAPHS,
    TASKS,
    TaskEntry,
    make_task,
    names_graph,
    score_bound,
)
from stochflow.environments.sequences import landscapes, tfbind8


@pytest.mark.parametrize("name", TASKS)
def test_a_list_of_tasks_says_what_the_task_says_of_itself(name: str) -> None:
    entry, task = TASKS[name], make_task(name)
    assert isinstance(entry, TaskEntry)
    assert task.name == name
    assert (entry.num_tokens, entry.length) == (task.num_tokens, task.length)
    assert entry.letters in (None, task.alphabet.letters)
    assert (entry.description, entry.source, entry.num_measured) == (task.description, task.source, task.num_measured)


def test_every_factor_landscape_fold_and_target_has_a_name() -> None:
    expected = {tfbind8.task_name(factor) for factor in FACTORS} | set(landscapes.DECODERS)
    expected |= {f"rna-fold:{length}" for length in FOLDS}
    expected |= {f"rna-bind:{target},{length}" for target in BIND_TARGETS for length in BIND_LENGTHS}
    assert expected == {name for name in TASKS if name.partition(":")[0] not in ("bits", "ehrlich", "motifs")}


def test_names_look_as_their_families_say() -> None:
    assert {*FAMILIES, *GRAPH_FAMILIES} == set(FORMS)
    assert all(form.startswith(f"{family}:") for family, form in FORMS.items())
    assert {name.partition(":")[0] for name in GRAPHS} == set(GRAPH_FAMILIES)
    assert all(names_graph(family) for family in GRAPH_FAMILIES)
    assert not any(names_graph(name) for name in TASKS)


def test_an_unknown_task_lists_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown task 'tfbind9'.*tfbind8"):
        make_task("tfbind9")


# one design each that reaches it; no fold is perfect
@pytest.mark.parametrize("name", ["bits:24,4", "ehrlich:20,15,2,4", "motifs:GATA1+TBP,30", "rna-fold:14"])
def test_no_design_exceeds_the_bound_of_its_task(name: str) -> None:
    task, bound = make_task(name), score_bound(name)
    assert bound is not None
    some = torch.randint(task.num_tokens, (200, task.length), generator=torch.Generator().manual_seed(0))
    assert float(task.score(some).max()) <= bound
    best = {
        "bits:24,4": lambda: task.modes[:1].view(1, task.length, -1) @ torch.tensor([8, 4, 2, 1]),  # type: ignore[attr-defined]
        "ehrlich:20,15,2,4": lambda: task.optimum.unsqueeze(0),  # type: ignore[attr-defined]
        "motifs:GATA1+TBP,30": lambda: task.alphabet.encode(["GTATAAAAGGCACTTATCTGCACGCACGCA"]),
    }
    if name in best:
        assert float(task.score(best[name]())) == pytest.approx(bound, rel=1e-12)
    assert score_bound("tfbind8") is None
