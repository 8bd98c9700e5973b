"""RNA binding against scores that follow from the targets and the physics, not from the code."""

import importlib

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import BIND_LENGTHS, BIND_TARGETS, make_task
from stochflow.environments.sequences import packed
from stochflow.environments.sequences.rna_bind import RnaBind, binding_targets

PAIRS = {"A": "U", "U": "A", "C": "G", "G": "C"}


def windows(target: str, length: int) -> list[str]:
    """Complements of all stretches of a target."""
    complement = "".join(PAIRS[letter] for letter in reversed(target))
    return [complement[start : start + length] for start in range(len(target) - length + 1)]


def scores_of(task: RnaBind, *designs: str) -> list[float]:
    scores: list[float] = task.score(task.alphabet.encode(designs)).tolist()
    return scores


def test_the_targets_are_those_that_names_can_have() -> None:
    assert tuple(binding_targets()) == BIND_TARGETS
    assert {len(target) for target in binding_targets().values()} == {max(BIND_LENGTHS)}
    assert {letter for target in binding_targets().values() for letter in target} == set("ACGU")


@pytest.mark.parametrize(
    ("name", "length", "best"),
    [("RNA1", 14, 1.0545), ("RNA2", 14, 1.0147), ("RNA3", 14, 1.1165), ("RNA1", 50, 1.0880), ("RNA3", 100, 1.0)],
)
def test_the_best_complement_of_a_stretch_has_the_published_score(name: str, length: int, best: float) -> None:
    found = windows(binding_targets()[name], length)
    assert max(scores_of(RnaBind([name], length), *found)) == pytest.approx(best, abs=5e-5)


def test_the_score_is_the_mean_energy_over_the_targets_as_a_share_of_their_scales() -> None:
    library = importlib.import_module("RNA")
    design = "GGAUAACAAUUCAU"
    shares = []
    for name in ("RNA2", "RNA4"):
        target = binding_targets()[name]
        scale = library.duplexfold(windows(target, 100)[0], target).energy * 14 / 100
        shares.append(library.duplexfold(target, design).energy / scale)
    assert scores_of(RnaBind(["RNA2", "RNA4"], 14), design) == pytest.approx([sum(shares) / 2])
    assert scores_of(RnaBind(["RNA2"], 14), design) == pytest.approx([shares[0]])
    assert shares[0] != pytest.approx(shares[1], abs=1e-3)


def test_a_design_that_binds_nothing_scores_zero() -> None:
    # poly-A finds no two adjacent U that would pay for a duplex in these targets
    for name in BIND_TARGETS:
        assert scores_of(RnaBind([name], 14), "A" * 14) == [0.0]


def test_a_mismatch_in_the_middle_costs_energy() -> None:
    task = RnaBind(["RNA3"], 14)
    whole = max(windows(binding_targets()["RNA3"], 14), key=lambda design: scores_of(task, design))
    broken = whole[:7] + PAIRS[whole[7]] + whole[8:]
    assert scores_of(task, broken)[0] < scores_of(task, whole)[0]


def test_a_design_meets_its_target_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = importlib.import_module("RNA")
    task = RnaBind(["RNA1"], 14)
    met: list[str] = []
    original = library.duplexfold

    def counted(first: str, second: str) -> object:
        met.append(second)
        return original(first, second)

    monkeypatch.setattr(library, "duplexfold", counted)
    tokens = torch.tensor([[0] * 14, [1] * 14, [0] * 14])
    first = task.score(tokens)
    assert torch.equal(task.score(tokens.flip(0)), first.flip(0))
    assert sorted(met) == ["A" * 14, "C" * 14]


def test_it_is_named_and_cannot_be_enumerated() -> None:
    task = make_task("rna-bind:RNA2+RNA3,14")
    assert (task.name, task.length, task.enumerable) == ("rna-bind:RNA2+RNA3,14", 14, False)
    assert task.alphabet.letters == "ACGU"


def test_without_the_extra_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("stochflow.core.extras.import_module", missing)
    with pytest.raises(ConfigError, match=r"RNA is not installed; run `pip install 'stochflow\[rna\]'`"):
        make_task("rna-bind:RNA1,14")


def test_damaged_targets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packed.checksums(), "rna_targets.fasta", "0" * 64)
    with pytest.raises(packed.DataError, match=r"rna_targets\.fasta is damaged.*build_rna_targets\.py"):
        binding_targets.__wrapped__()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rna-bind", "write rna-bind:NAME[+NAME…],L"),
        ("rna-bind:RNA1", "as in rna-bind:RNA1,14"),
        ("rna-bind:RNA1,14,14", "is not understood"),
        ("rna-bind:RNA1,0", "is not understood"),
        ("rna-bind:RNA9,14", "no target RNA 'RNA9'; choose from RNA1, RNA2, RNA3, RNA4"),
        ("rna-bind:RNA1+,14", "no target RNA ''"),
        ("rna-bind:RNA1+RNA1,14", "has RNA1 twice"),
        ("rna-bind:RNA1,20", "cannot have length 20; choose L in rna-bind:NAME[+NAME…],L from: 14, 50, 100"),
        ("rna-bind:RNA1,101", "14, 50, 100"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_those_that_do(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_task(name)
    assert words in str(caught.value)
