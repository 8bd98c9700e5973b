"""Ehrlich functions: feasibility, motifs and the known optimum, against a plain definition."""

import itertools
import math

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import make_task
from stochflow.environments.sequences.ehrlich import Ehrlich

SHAPES = [(4, 8, 2, 3), (4, 9, 2, 2), (20, 15, 2, 4), (32, 32, 4, 4), (20, 100, 4, 4), (36, 128, 8, 8), (2, 5, 1, 2)]


def plain_score(task: Ehrlich, sequence: list[int]) -> float:
    """The definition read aloud, one sequence, one motif and one start at a time."""
    if any(not task.allowed[a, b] for a, b in itertools.pairwise(sequence)):
        return 0.0
    product = 1.0
    for motif, spacing in zip(task.motifs.tolist(), task.spacings.tolist(), strict=True):
        best = 0
        for start in range(len(sequence) - spacing[-1]):
            hits = sum(sequence[start + s] == letter for s, letter in zip(spacing, motif, strict=True))
            best = max(best, math.floor(task.levels * hits / len(motif)))
        product *= best / task.levels
    return product


@pytest.mark.parametrize("shape", SHAPES)
def test_the_known_optimum_is_feasible_and_scores_one(shape: tuple[int, int, int, int]) -> None:
    task = Ehrlich(*shape)
    assert task.optimum.shape == (shape[1],)
    assert task.score(task.optimum.unsqueeze(0)).tolist() == [1.0]


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_scores_are_those_of_the_definition(levels: int, generator: torch.Generator) -> None:
    task = Ehrlich(8, 16, 2, 4, levels)
    tokens = task.optimum.repeat(400, 1)
    changed = torch.rand(tokens.shape, generator=generator) < 0.1
    tokens = torch.where(changed, torch.randint(8, tokens.shape, generator=generator), tokens)
    scores = task.score(tokens)
    assert scores.tolist() == [plain_score(task, row) for row in tokens.tolist()]
    assert len(scores.unique()) >= 2


def test_nothing_scores_above_one_and_the_best_of_all_sequences_scores_one() -> None:
    task = Ehrlich(4, 8, 2, 3)
    assert task.enumerable
    assert float(task.all_scores.max()) == 1.0
    assert float(task.all_scores.min()) == 0.0


@pytest.mark.parametrize("shape", SHAPES)
def test_bans_leave_every_letter_within_reach(shape: tuple[int, int, int, int]) -> None:
    task = Ehrlich(*shape)
    assert bool(task.allowed.diagonal().all())
    assert ((~task.allowed).sum(dim=-1) == shape[0] // 4).all()
    reached = torch.linalg.matrix_power(task.allowed.double(), shape[0]) > 0
    assert bool(reached.all())


@pytest.mark.parametrize("shape", SHAPES)
def test_spacings_fit_side_by_side_and_motifs_have_different_letters(shape: tuple[int, int, int, int]) -> None:
    task = Ehrlich(*shape)
    assert (task.spacings[:, 0] == 0).all()
    assert (task.spacings.diff(dim=-1) > 0).all()
    assert (task.spacings[:, -1] < shape[1] // shape[2]).all()
    assert all(len(set(motif)) == shape[3] for motif in task.motifs.tolist())


def test_a_landscape_is_a_function_of_its_name() -> None:
    first, again = make_task("ehrlich:32,32,4,4"), make_task("ehrlich:32,32,4,4")
    coarse, other = make_task("ehrlich:32,32,4,4,2"), make_task("ehrlich:32,33,4,4")
    assert all(isinstance(task, Ehrlich) for task in (first, again, coarse, other))
    assert torch.equal(first.optimum, again.optimum)
    assert torch.equal(first.motifs, coarse.motifs)
    assert not torch.equal(first.motifs, other.motifs)
    assert first.alphabet.decode(first.optimum.unsqueeze(0)) == ["GGHHHIIO000FFV44ZZZZVLLTXXXPBBBY"]
    assert make_task("ehrlich").name == "ehrlich:32,32,4,4"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ehrlich:1,8,2,2", "from 2 to 36 letters"),
        ("ehrlich:37,80,2,2", "from 2 to 36 letters"),
        ("ehrlich:4,5000,2,2", "from 2 to 4096"),
        ("ehrlich:4,80,2,4", "at most 3 of 4"),
        ("ehrlich:20,15,4,4", "need a length L of 16"),
        ("ehrlich:20,16,4,4,5", "at most 4 levels"),
        ("ehrlich:20,16,4", "ehrlich:v,L,c,k"),
        ("ehrlich:20,16,4,4,4,4", "ehrlich:v,L,c,k"),
    ],
)
def test_a_landscape_that_cannot_be_is_refused_in_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_task(name)
