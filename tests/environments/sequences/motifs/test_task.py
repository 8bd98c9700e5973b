"""Promoters and their scores."""

import numpy as np
import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.motifs import Motif, MotifTask, motif_task, task
from stochflow.environments.sequences.motifs.words import binding_sites


def certain(name: str, word: str) -> Motif:
    """A motif of one word."""
    return Motif(name, np.eye(4)[["ACGT".index(letter) for letter in word]])


@pytest.fixture
def two() -> MotifTask:
    return MotifTask("two", [certain("one", "AAC"), certain("other", "GGT")], length=9)


def test_a_score_is_the_geometric_mean_of_occupancies() -> None:
    # GGT is no word of the other strand of ACC, but ACC itself reads GGT there
    found = MotifTask("two", [certain("one", "AAC"), certain("other", "GGA")], length=9)
    designs = ["TTTTTTTTT", "TAACTTTTT", "TGTTTTTTT", "TAACTTCCT", "TAACTGGAT", "AACAACAAC"]
    expected = [1 / 3, (1 / 3) ** 0.5, (1 / 3) ** 0.5, 1.0, 1.0, (1 / 3) ** 0.5]
    assert found.score(found.alphabet.encode(designs)).tolist() == pytest.approx(expected)


def test_scores_are_those_of_counting_words_one_by_one() -> None:
    generator = np.random.default_rng(1)
    motifs = [Motif(str(width), generator.dirichlet(np.full(4, 0.3), size=width)) for width in (3, 4)]
    found = MotifTask("own", motifs, length=12)
    tokens = torch.randint(4, (200, 12), generator=torch.Generator().manual_seed(0))

    def occupancy(row: list[int], motif: Motif) -> int:
        sites, width = binding_sites(motif.probabilities), len(motif)
        return min(sum(sites.get(tuple(row[at : at + width]), 0) for at in range(len(row) - width + 1)), 2)

    expected = [float(np.prod([(1 + occupancy(row, motif)) / 3 for motif in motifs]) ** 0.5) for row in tokens.tolist()]
    assert len(set(expected)) > 4
    assert found.score(tokens).tolist() == pytest.approx(expected)


def test_a_design_and_its_reverse_complement_score_alike(two: MotifTask) -> None:
    tokens = torch.randint(4, (500, 9), generator=torch.Generator().manual_seed(0))
    assert len(two.score(tokens).unique()) > 1
    torch.testing.assert_close(two.score(tokens), two.score(3 - tokens.flip(dims=(1,))), rtol=0, atol=0)


def test_only_full_occupancy_is_a_mode(two: MotifTask) -> None:
    assert two.automaton.scores.unique().tolist()[-1] == 1.0
    assert two.automaton.scores.unique().tolist()[-2] < two.mode_threshold < 1.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("", "write motifs:NAME[+NAME…],L"),
        ("CTCF", "write motifs:NAME[+NAME…],L"),
        ("CTCF,0", "write motifs:NAME[+NAME…],L"),
        ("CTCF,SP1,50", "write motifs:NAME[+NAME…],L"),
        ("CTCF+XYZ1,50", "there is no motif 'XYZ1'; choose from CREB1, CTCF"),
        ("CTCF+,50", "there is no motif ''"),
        ("CTCF+SP1+CTCF,50", "has CTCF twice"),
        ("SP1+CTCF,14", "the motif 'CTCF' has 15 columns; choose a length from 15"),
        ("SP1,4097", "to 4096"),
    ],
)
def test_names_that_are_not_understood_are_refused(parameters: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        motif_task(parameters)
    assert words in str(caught.value)


def test_what_is_too_large_to_solve_says_how_large_it_is_and_what_to_shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_MAX_ENTRIES", 10_000)
    states = motif_task("MAX,10").automaton.num_states
    most = 10_000 // (4 * states)
    motif_task(f"MAX,{most}")
    with pytest.raises(ConfigError, match=rf"automaton of {states} states.*length {most + 1}; .* to {most} letters"):
        motif_task(f"MAX,{most + 1}")
    monkeypatch.setattr(task, "_MAX_STATES", 100)
    with pytest.raises(ConfigError, match=r"up to .* states, too many.*leave out a motif"):
        motif_task("MAX+TBP,10")


def test_a_motif_without_preferences_is_refused() -> None:
    with pytest.raises(ConfigError, match="'flat' prefers no word"):
        MotifTask("flat", [Motif("flat", np.full((3, 4), 0.25))], length=5)
