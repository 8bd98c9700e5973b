"""Rules over tokens from the settings of constraints, validated against the alphabet and the length."""

import itertools
import math
from dataclasses import dataclass

from stochflow.config.environment import ConstraintConfig
from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.aho_corasick import Word
from stochflow.environments.sequences.task import Alphabet

ANY = "."
_NUCLEIC = ("ACGT", "ACGU")
_COMPLEMENTS = {"A": "TU", "C": "G", "G": "C", "T": "A", "U": "A"}
# ambiguity codes of nucleic acids; T stands for U in RNA
_CODES = {
    **{"R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC"},
    **{"B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT"},
}
_MAX_WORDS = 20_000
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Rules:
    """Constraints on designs of one length, in tokens.

    Attributes:
        forbidden: words that no design contains.
        forbidden_at_end: words that no design ends with.
        choices: allowed tokens per position.
        counted: tokens whose number in a design is bounded (G and C).
        least, most: bounds of that number, inclusive.
        complement: token of the complementary letter, for designs that equal their reverse complement; otherwise empty.
    """

    forbidden: frozenset[Word]
    forbidden_at_end: frozenset[Word]
    choices: tuple[frozenset[int], ...]
    counted: frozenset[int]
    least: int
    most: int
    complement: Word

    @property
    def length(self) -> int:
        return len(self.choices)

    def half(self) -> "Rules":
        """Rules for the first half w of a design such that w and its reverse complement together satisfy these rules.

        A word occurs in the second half if its reverse complement occurs in w. A word occurs across the middle if w
        ends with its first part and with the reverse complement of its second part; this is possible when the longer
        of the two ends with the shorter, and is excluded by forbidding w to end with the longer.
        """
        half = self.length // 2
        words = self.forbidden | {self.reversed(word) for word in self.forbidden}
        at_end = set()
        for word in self.forbidden:
            for cut in range(1, len(word)):
                first, second = word[:cut], self.reversed(word[cut:])
                longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
                if longer[len(longer) - len(shorter) :] == shorter and len(longer) <= half:
                    at_end.add(longer)
        mirrored = [frozenset(self.complement[token] for token in choice) for choice in reversed(self.choices)]
        choices = tuple(left & right for left, right in zip(self.choices, mirrored, strict=True))[:half]
        return Rules(
            forbidden=frozenset(words),
            forbidden_at_end=frozenset(at_end),
            choices=choices,
            counted=self.counted,
            least=math.ceil(self.least / 2),
            most=self.most // 2,
            complement=(),
        )

    def reversed(self, word: Word) -> Word:
        """The reverse complement of a word."""
        return tuple(self.complement[token] for token in reversed(word))


def make_rules(config: ConstraintConfig, alphabet: Alphabet, length: int) -> Rules:
    """Rules of the settings; a ConfigError names a setting that does not apply to the alphabet or length."""
    letters = _letter_sets(alphabet)
    complement = _complement(alphabet)
    for name, given in (("gc", config.gc), ("symmetric", config.symmetric), ("both_strands", config.both_strands)):
        if given and not complement:
            raise ConfigError(
                f"constraints.{name} is about nucleic acids, and the alphabet is {alphabet.letters}; remove it"
            )
    if config.symmetric and length % 2:
        raise ConfigError(
            f"no sequence of the odd length {length} is its own reverse complement; choose an even length or leave out "
            "--symmetric"
        )
    forbidden = {word for motif in config.forbid for word in _words(motif, letters, length)}
    if config.both_strands:
        forbidden |= {tuple(complement[token] for token in reversed(word)) for word in forbidden}
    if config.max_homopolymer is not None and config.max_homopolymer < length:
        forbidden |= {(token,) * (config.max_homopolymer + 1) for token in range(len(alphabet))}
    low, high = config.gc or (0.0, 1.0)
    counted = frozenset(alphabet.letters.index(letter) for letter in "GC") if config.gc else frozenset()
    return Rules(
        forbidden=frozenset(forbidden),
        forbidden_at_end=frozenset(),
        choices=_choices(config.fixed, letters, length),
        counted=counted,
        least=math.ceil(low * length - _ROUNDING) if counted else 0,
        most=math.floor(high * length + _ROUNDING) if counted else length,
        complement=complement if config.symmetric else (),
    )


def _letter_sets(alphabet: Alphabet) -> dict[str, frozenset[int]]:
    """Tokens of each symbol of a motif: a letter, a dot for any letter, or an IUPAC ambiguity code of nucleic acids."""
    tokens = {letter: frozenset([token]) for token, letter in enumerate(alphabet.letters)}
    sets = {ANY: frozenset(range(len(alphabet)))}
    if set(alphabet.letters) in map(set, _NUCLEIC):
        uracil = "U" in tokens
        for code, meaning in _CODES.items():
            spelled = meaning.replace("T", "U") if uracil else meaning
            sets[code] = frozenset().union(*(tokens[letter] for letter in spelled))
    return sets | tokens


def _complement(alphabet: Alphabet) -> Word:
    """Token of each letter's complement; empty for alphabets other than DNA and RNA."""
    if set(alphabet.letters) not in map(set, _NUCLEIC):
        return ()
    letters = alphabet.letters
    return tuple(
        next(letters.index(partner) for partner in _COMPLEMENTS[letter] if partner in letters) for letter in letters
    )


def _words(motif: str, letters: dict[str, frozenset[int]], length: int) -> list[Word]:
    """All words that match a motif; none for a motif longer than a design."""
    sets = _sets(motif, letters, "forbid")
    if not sets:
        raise ConfigError("constraints.forbid holds an empty motif; remove it")
    if len(sets) > length:
        return []
    if math.prod(map(len, sets)) > _MAX_WORDS:
        raise ConfigError(f"the motif '{motif}' stands for more than {_MAX_WORDS} words; write a more definite one")
    return list(itertools.product(*map(sorted, sets)))


def _choices(fixed: str | None, letters: dict[str, frozenset[int]], length: int) -> tuple[frozenset[int], ...]:
    if fixed is None:
        return (letters[ANY],) * length
    choices = _sets(fixed, letters, "fixed")
    if len(choices) != length:
        raise ConfigError(
            f"constraints.fixed '{fixed}' has {len(choices)} positions but a design has {length}; "
            f"write one letter per position and {ANY} where any may stand"
        )
    return tuple(choices)


def _sets(text: str, letters: dict[str, frozenset[int]], name: str) -> list[frozenset[int]]:
    unknown = next((letter for letter in text if letter not in letters), None)
    if unknown is not None:
        raise ConfigError(
            f"constraints.{name}: '{unknown}' in '{text}' is no letter here; use {', '.join(letters)} ({ANY} is any)"
        )
    return [letters[letter] for letter in text]
