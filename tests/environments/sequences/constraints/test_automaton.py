"""Constraints against the definition: every sequence, every prefix, by hand and by the automaton."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.config.environment import ConstraintConfig
from stochflow.core.errors import ConfigError
from stochflow.environments.channels import confusion, noiseless, uniform_slip
from stochflow.environments.sequences.constraints import ConstrainedTask, PrefixMask
from stochflow.environments.sequences.constraints.task import Prefixes
from stochflow.environments.sequences.task import Alphabet, Task

PAIRS = {"A": "T", "C": "G", "G": "C", "T": "A"}


class Ones(Task):
    """Every sequence scores one."""

    name, description, mode_threshold = "ones", "", 0.5

    def __init__(self, length: int, letters: str = "ACGT") -> None:
        self.length, self.alphabet = length, Alphabet(letters)

    def score(self, tokens: Tensor) -> Tensor:
        return torch.ones(len(tokens), dtype=torch.float64)


def allowed_by_definition(sequence: str, given: dict[str, Any]) -> bool:
    reverse = "".join(PAIRS[letter] for letter in reversed(sequence))
    low, high = given.get("gc", (0.0, 1.0))
    share = sum(letter in "GC" for letter in sequence) / len(sequence)
    longest = max(len(list(run)) for _, run in itertools.groupby(sequence))
    fixed = given.get("fixed", "." * len(sequence))
    return (
        not any(motif in sequence for motif in given.get("forbid", ()))
        and not (given.get("both_strands") and any(motif in reverse for motif in given["forbid"]))
        and low - 1e-9 <= share <= high + 1e-9
        and longest <= given.get("max_homopolymer", len(sequence))
        and all(wanted in (".", letter) for wanted, letter in zip(fixed, sequence, strict=True))
        and (not given.get("symmetric") or sequence == reverse)
    )


CASES: list[tuple[int, dict[str, Any]]] = [
    (5, {"forbid": ["GA", "ACA", "TTT"]}),
    (5, {"forbid": ["AAC", "AC"], "both_strands": True}),
    (5, {"gc": [0.4, 0.6]}),
    (5, {"gc": [0.2, 0.2], "forbid": ["G"]}),
    (5, {"max_homopolymer": 1}),
    (5, {"fixed": "A..GT", "max_homopolymer": 2}),
    (6, {"symmetric": True}),
    (6, {"symmetric": True, "forbid": ["AT", "CAC"]}),
    (6, {"symmetric": True, "forbid": ["GAATTC", "CATG", "AATT"], "gc": [0.3, 0.7]}),
    (6, {"symmetric": True, "max_homopolymer": 2, "fixed": ".C...."}),
    (6, {"symmetric": True, "forbid": ["CCG", "TTAA", "GATC", "ACGT"], "max_homopolymer": 2, "gc": [0.5, 1.0]}),
    (6, {"forbid": ["GAATTC", "GC", "CATA"], "gc": [0.3, 0.5], "max_homopolymer": 2, "fixed": "..T..."}),
]


@pytest.mark.parametrize(("length", "given"), CASES)
def test_exactly_the_prefixes_that_can_be_completed_are_alive(length: int, given: dict[str, Any]) -> None:
    task = Ones(length)
    prefixes = Prefixes(ConstraintConfig(**given), task)
    feasible = [text for text in task.alphabet.decode(task.all_sequences) if allowed_by_definition(text, given)]
    assert 0 < len(feasible) < 4**length
    for depth in range(length + 1):
        live = {text[:depth] for text in feasible}
        shorter = Ones(depth) if depth else None
        tokens = torch.empty(1, 0, dtype=torch.int64) if shorter is None else shorter.all_sequences
        alive = prefixes.alive(tokens)
        assert [text in live for text in task.alphabet.decode(tokens)] == alive.tolist()
        if depth < length:
            children = prefixes.live_children(tokens)[1][:, -1]
            longer = {text[: depth + 1] for text in feasible}
            wanted = [[text + letter in longer for letter in "ACGT"] for text in task.alphabet.decode(tokens)]
            assert children.tolist() == wanted


@pytest.mark.parametrize(("length", "given"), CASES[::3])
def test_all_prefixes_of_a_sequence_agree_with_each_alone(length: int, given: dict[str, Any]) -> None:
    task = Ones(length)
    mask = PrefixMask(Prefixes(ConstraintConfig(**given), task), uniform_slip(4, 0.3))
    tokens = task.all_sequences[::7]
    together = mask.all_prefixes(tokens)
    assert together.shape == (len(tokens), length + 1, 4)
    for depth in range(length + 1):
        assert torch.equal(together[:, depth], mask.next(tokens[:, :depth]))
        assert torch.equal(together[:, depth], mask.at(tokens, torch.full((len(tokens),), depth)))
    assert bool(together.any(dim=-1).all())


def test_an_intention_is_judged_by_what_mostly_comes_of_it() -> None:
    prefixes = Prefixes(ConstraintConfig(forbid=["A"]), Ones(2))
    empty = torch.empty(1, 0, dtype=torch.int64)
    assert PrefixMask(prefixes, noiseless(4)).next(empty).tolist() == [[False, True, True, True]]
    # the world turns A into C, C into A and leaves the others alone
    swapped = confusion([[0.2, 0.8, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert PrefixMask(prefixes, swapped).next(empty).tolist() == [[True, False, True, True]]


def test_when_noise_has_broken_a_constraint_everything_is_allowed() -> None:
    mask = PrefixMask(Prefixes(ConstraintConfig(forbid=["A"]), Ones(3)), uniform_slip(4, 0.5))
    assert mask.next(torch.tensor([[0], [1]])).tolist() == [[True] * 4, [False, True, True, True]]


def test_ambiguity_codes_and_rna() -> None:
    dna = Prefixes(ConstraintConfig(forbid=["GANTC"]), Ones(5))
    tokens = Alphabet("ACGT").encode(["GAATC", "GATTC", "GAATT"])
    assert dna.alive(tokens).tolist() == [False, False, True]
    rna = Prefixes(ConstraintConfig(fixed="NRYN", symmetric=True), Ones(4, "ACGU"))
    assert rna.alive(Alphabet("ACGU").encode(["AGCU", "ACGU", "UAUA"])).tolist() == [True, False, True]
    # in a protein N is an amino acid and only the dot is any
    protein = Prefixes(ConstraintConfig(fixed="N."), Ones(2, "ACDEFGHIKLMNPQRSTVWY"))
    assert protein.alive(protein_tokens("NA", "AN")).tolist() == [True, False]


def protein_tokens(*sequences: str) -> Tensor:
    return Alphabet("ACDEFGHIKLMNPQRSTVWY").encode(sequences)


@pytest.mark.parametrize(
    ("length", "letters", "given", "sentence"),
    [
        (4, "ACGT", {"forbid": ["A", "C", "G", "T"]}, "no sequence of length 4 satisfies all constraints"),
        (4, "ACGT", {"gc": [0.6, 0.7]}, "no sequence of length 4 satisfies all constraints"),
        (6, "ACGT", {"symmetric": True, "fixed": "A....A"}, "no sequence of length 6"),
        (5, "ACGT", {"symmetric": True}, "odd length 5"),
        (4, "ACGT", {"fixed": "ACG"}, "has 3 positions but a design has 4"),
        (4, "ACGT", {"fixed": "AC!T"}, "'!' in 'AC!T' is no letter"),
        (4, "ACGT", {"forbid": ["gaattc"]}, "'g' in 'gaattc' is no letter"),
        (4, "ACGT", {"forbid": [""]}, "empty motif"),
        (9, "ACGT", {"forbid": ["NNNNNNNNN"]}, "more than 20000 words"),
        (4, "ABCD", {"gc": [0.0, 0.5]}, "about nucleic acids"),
        (4, "ABCD", {"symmetric": True}, "about nucleic acids"),
    ],
)
def test_what_makes_no_sense_is_refused(length: int, letters: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Prefixes(ConstraintConfig(**given), Ones(length, letters))


def test_a_motif_longer_than_a_design_forbids_nothing() -> None:
    prefixes = Prefixes(ConstraintConfig(forbid=["ACGTA"]), Ones(4))
    assert bool(prefixes.alive(Ones(4).all_sequences).all())


def test_a_constrained_score_is_zero_where_a_constraint_is_broken_and_nothing_there_is_paid_for() -> None:
    asked: list[Tensor] = []

    class Paid(Ones):
        def score(self, tokens: Tensor) -> Tensor:
            asked.append(tokens)
            return super().score(tokens)

        def known(self, tokens: Tensor) -> Tensor:
            return torch.zeros(len(tokens), dtype=torch.bool)

    task = ConstrainedTask(Paid(2), ConstraintConfig(forbid=["A"]))
    tokens = torch.tensor([[0, 1], [1, 1], [2, 0]])
    assert task.score(tokens).tolist() == [0.0, 1.0, 0.0]
    assert torch.cat(asked).tolist() == [[1, 1]]
    assert task.free(tokens).tolist() == task.known(tokens).tolist() == [True, False, True]
    assert int(task.all_scores.sum()) == 9


def test_long_sequences_cost_states_not_sequences() -> None:
    given = ConstraintConfig(forbid=["GAATTC", "GGTCTC", "GANTC"], both_strands=True, gc=[0.4, 0.6], max_homopolymer=4)
    task = Ones(100)
    mask = PrefixMask(Prefixes(given, task), noiseless(4))
    generator = torch.Generator().manual_seed(0)
    tokens = torch.empty(64, 0, dtype=torch.int64)
    for _ in range(100):
        allowed = mask.next(tokens).double()
        tokens = torch.cat([tokens, torch.multinomial(allowed, 1, generator=generator)], dim=1)
    designs = task.alphabet.decode(tokens)
    assert bool(mask.alive(tokens).all())
    for design in designs:
        assert 40 <= sum(letter in "GC" for letter in design) <= 60
        assert not any(motif in design for motif in ("GAATTC", "GGTCTC", "GAGACC", "GAATC", "GATTC", "AAAAA", "CCCCC"))
