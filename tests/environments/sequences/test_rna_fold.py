"""RNA folding against values that follow from the physics, not from the code."""

import importlib

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import FOLDS, make_task
from stochflow.environments.sequences.rna_fold import RnaFold


@pytest.mark.parametrize("length", FOLDS)
def test_every_target_is_a_structure_of_its_length(length: int) -> None:
    target = FOLDS[length]
    depths = torch.tensor([{"(": 1, ")": -1, ".": 0}[symbol] for symbol in target]).cumsum(dim=0)
    assert len(target) == length
    assert int(depths.min()) >= 0
    assert int(depths[-1]) == 0


def test_an_rna_that_cannot_pair_agrees_where_the_target_is_unpaired() -> None:
    # poly-A has no base pairs at all: exactly the unpaired positions are right
    for length, target in FOLDS.items():
        task = RnaFold(length)
        score = task.score(torch.zeros(1, length, dtype=torch.int64))
        assert score.item() == pytest.approx(target.count(".") / length, abs=1e-6)


def test_a_strong_hairpin_scores_near_one_and_a_broken_one_less() -> None:
    task = RnaFold(14)
    scores = task.score(task.alphabet.encode(["GCGCGAAAGAGCGC", "GCGCGAAAGAGAGC", "GCGCGAAAGAAAAA"]))
    assert scores[0] > 0.9 > scores[1] > scores[2]
    assert scores.dtype == torch.float64


def test_the_defect_is_one_minus_the_mean_agreement_of_the_pairing_probabilities() -> None:
    library = importlib.import_module("RNA")
    task = RnaFold(30)
    sequence = "GGGACAAGCGCAAAAGCGCAAAGUCCCAAA"
    molecule = library.fold_compound(sequence)
    molecule.pf()
    pairs = torch.tensor(molecule.bpp(), dtype=torch.float64)[1:, 1:]
    pairs = pairs + pairs.T
    table = library.ptable(task.target)[1:]
    expected = [pairs[i, j - 1] if j else 1.0 - pairs[i].sum() for i, j in enumerate(table)]
    score = task.score(task.alphabet.encode([sequence])).item()
    assert score == pytest.approx(float(sum(expected)) / 30, abs=1e-6)


def test_a_sequence_is_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = importlib.import_module("RNA")
    folded: list[str] = []
    original = library.fold_compound

    def counted(sequence: str) -> object:
        folded.append(sequence)
        return original(sequence)

    monkeypatch.setattr(library, "fold_compound", counted)
    task = RnaFold(14)
    tokens = torch.tensor([[0] * 14, [1] * 14, [0] * 14])
    first = task.score(tokens)
    assert torch.equal(task.score(tokens.flip(0)), first.flip(0))
    assert sorted(folded) == ["A" * 14, "C" * 14]


def test_without_the_extra_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("stochflow.core.extras.import_module", missing)
    with pytest.raises(ConfigError, match=r"RNA is not installed; run `pip install 'stochflow\[rna\]'`"):
        make_task("rna-fold:14")


@pytest.mark.parametrize("name", ["rna-fold", "rna-fold:20", "rna-fold:x"])
def test_a_length_without_a_target_names_those_that_have_one(name: str) -> None:
    with pytest.raises(ConfigError, match="14, 30, 50, 100"):
        make_task(name)
