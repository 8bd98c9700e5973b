"""Promoters that bind several transcription factors, scored by an automaton that reads both strands."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import FORMS
from stochflow.environments.sequences.aho_corasick import Word, aho_corasick
from stochflow.environments.sequences.motifs.matrices import LETTERS, Motif, shipped_motifs
from stochflow.environments.sequences.motifs.words import STRONG, binding_sites
from stochflow.environments.sequences.score_automaton import ScoreAutomaton
from stochflow.environments.sequences.task import Alphabet, Task

FORM = FORMS["motifs"]
_LEVELS = STRONG + 1  # occupancy 0, 1 or 2
_MAX_LENGTH = 4096
_MAX_STATES = 2**20  # before the automaton is minimised
_MAX_ENTRIES = 2**25  # states × letters × positions


class MotifTask(Task):
    """DNA of L letters on which each of M factors shall find its binding sites.

    The sites of a factor are the best words of its matrix and their reverse complements (`binding_sites`). A strong
    site counts two and a weak one one; the occupancy o_m of a factor is the sum over all its occurrences, overlapping
    ones too, and at most two. The score is the geometric mean

        score(x) = (Π_m (1 + o_m(x))/3)^(1/M),

    from 1/3 without any site to 1 where every factor has a strong site or two weak ones. It is a function of the last
    state of an automaton, so that the truth is exact at any length (`truth.automaton`).

    >>> task = motif_task("GATA1+TBP,30")
    >>> task.score(task.alphabet.encode(["ACGTACGTACGTACGTACGTACGTACGTAC", "GTATAAAAGGCACTTATCTGCACGCACGCA"]))
    tensor([0.3333, 1.0000], dtype=torch.float64)

    Attributes:
        motifs: of the factors.
    """

    alphabet = Alphabet(LETTERS)
    automaton: ScoreAutomaton

    def __init__(self, name: str, motifs: Sequence[Motif], length: int, source: str = "JASPAR 2024") -> None:
        self.name, self.motifs, self.length, self.source = name, tuple(motifs), length, source
        self.mode_threshold = (1.0 + (STRONG / _LEVELS) ** (1.0 / len(motifs))) / 2.0
        factors = " and ".join(motif.name for motif in motifs)
        self.description = f"promoters with binding sites of {factors} on both strands; {FORM} for others"
        _check_length(motifs, length)
        self.automaton = occupancy_automaton([_sites(motif) for motif in motifs])
        _check_solvable(self.automaton.num_states, len(motifs), length)

    def score(self, tokens: Tensor) -> Tensor:
        return self.automaton.score(tokens)


def motif_task(parameters: str) -> MotifTask:
    """The task `motifs:<parameters>`: names of shipped matrices with a plus between them, a comma, and the length."""
    match = re.fullmatch(r"([^,]+),([1-9][0-9]{0,8})", parameters)
    if match is None:
        raise ConfigError(
            f"task 'motifs:{parameters}' is not understood; write {FORM} with names of factors and a length, as in "
            "motifs:CTCF+SP1,50"
        )
    names, known = match[1].split("+"), shipped_motifs()
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise ConfigError(
            f"there is no motif '{unknown}'; choose from {', '.join(known)}, or give a --motif-matrix of your own"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"task 'motifs:{parameters}' has {twice} twice; name each factor once")
    return MotifTask(f"motifs:{parameters}", [known[name] for name in names], int(match[2]))


def occupancy_automaton(sites: Sequence[dict[Word, int]]) -> ScoreAutomaton:
    """The automaton of `MotifTask`: its state is what was read of a site that may come, and the occupancies so far.

    Args:
        sites: words of each factor, and how much each counts.
    """
    words = sorted({word for found in sites for word in found})
    trie = aho_corasick(words, len(LETTERS))
    num_nodes, num_levels = len(trie.moves), _LEVELS ** len(sites)
    if num_nodes * num_levels > _MAX_STATES:
        raise ConfigError(
            f"{len(sites)} motifs need an automaton of up to {num_nodes * num_levels:,} states, too many to be "
            "solved; leave out a motif"
        )
    marks = torch.zeros(num_nodes, len(sites), dtype=torch.int64)
    for factor, found in enumerate(sites):
        for word, end in zip(words, trie.ends, strict=True):
            marks[end, factor] = found.get(word, 0)
    hits = trie.spread(marks)
    places = _LEVELS ** torch.arange(len(sites))
    occupancies = torch.arange(num_levels).unsqueeze(-1) // places % _LEVELS  # [num_levels, M]
    # [num_nodes, num_levels]: occupancies, as one number, after arriving at a node
    after = ((occupancies + hits.unsqueeze(1)).clamp_max(STRONG) * places).sum(dim=-1)
    arriving = trie.moves.unsqueeze(1) * num_levels + after[trie.moves].transpose(1, 2)  # [num_nodes, num_levels, K]
    scores = ((1.0 + occupancies.double()) / _LEVELS).log().mean(dim=-1).exp()
    return ScoreAutomaton(arriving.flatten(0, 1), scores.repeat(num_nodes)).minimised()


def _sites(motif: Motif) -> dict[Word, int]:
    sites = binding_sites(motif.probabilities)
    if not sites:
        raise ConfigError(f"the motif '{motif.name}' prefers no word to any other; leave it out")
    return sites


def _check_length(motifs: Sequence[Motif], length: int) -> None:
    longest = max(motifs, key=len)
    if not len(longest) <= length <= _MAX_LENGTH:
        raise ConfigError(
            f"designs of {length} letters do not fit: the motif '{longest.name}' has {len(longest)} columns; choose a "
            f"length from {len(longest)} to {_MAX_LENGTH}"
        )


def _check_solvable(num_states: int, num_factors: int, length: int) -> None:
    """Refuse what is too large for the exact truth, with the number of states."""
    most = _MAX_ENTRIES // (len(LETTERS) * num_states)
    if length > most:
        raise ConfigError(
            f"{num_factors} motifs need an automaton of {num_states:,} states, which is too large to be solved at "
            f"length {length}; shorten the designs to {most} letters, or leave out a motif"
        )
