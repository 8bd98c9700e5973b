"""Alphabets by name."""

from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.task import Alphabet

ALPHABETS = {"dna": "ACGT", "rna": "ACGU", "protein": "ACDEFGHIKLMNPQRSTVWY"}
_MAX_LETTERS = 128


def named_alphabet(text: str) -> Alphabet:
    """The alphabet `dna`, `rna` or `protein`, or one of the given letters in token order.

    >>> named_alphabet("rna")
    Alphabet(letters='ACGU')
    >>> named_alphabet("HP")
    Alphabet(letters='HP')
    """
    letters = ALPHABETS.get(text.lower(), text)
    if not 2 <= len(letters) <= _MAX_LETTERS:
        raise ConfigError(
            f"the alphabet '{text}' has {len(letters)} letters; give dna, rna, protein, or 2 to {_MAX_LETTERS} letters"
        )
    twice = next((letter for letter in letters if letters.count(letter) > 1), None)
    if twice is not None:
        raise ConfigError(f"the alphabet '{text}' has the letter '{twice}' twice; give each letter once")
    if not letters.isprintable() or any(letter.isspace() for letter in letters):
        raise ConfigError(f"the alphabet {text!r} has letters that cannot be seen; give printable ones without spaces")
    return Alphabet(letters)
