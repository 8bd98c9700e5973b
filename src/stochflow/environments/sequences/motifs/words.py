"""Binding sites as words: those that a motif matrix prefers most to the background, on both strands."""

import numpy as np

from stochflow.core.arrays import Floats
from stochflow.environments.sequences.aho_corasick import Word
from stochflow.environments.sequences.motifs.matrices import LETTERS

NUM_WORDS = 24
STRONG, WEAK = 2, 1
_PSEUDO = 0.01  # added to every probability
_UNIT = 1000  # log-odds are whole thousandths of a bit, so that sums of them and ties are the same everywhere
_LEAST_SHARE = 0.5  # of the log-odds of the best word


def best_words(probabilities: Floats, num: int = NUM_WORDS) -> dict[Word, int]:
    """The words with the largest log-odds against a uniform background, in thousandths of a bit; best first.

    A prefix that `num` others surpass has no continuation among the best, because columns count separately.

    >>> best_words(np.array([[0.97, 0.01, 0.01, 0.01], [0.5, 0.5, 0.0, 0.0]]), num=2)
    {(0, 0): 2886, (0, 1): 2886}
    """
    smoothed = (probabilities + _PSEUDO) / (1.0 + len(LETTERS) * _PSEUDO)
    log_odds = np.rint(_UNIT * np.log2(smoothed * len(LETTERS))).astype(np.int64)
    best: dict[Word, int] = {(): 0}
    for column in log_odds.tolist():
        grown = [((*word, token), odds + more) for word, odds in best.items() for token, more in enumerate(column)]
        best = dict(sorted(grown, key=lambda found: (-found[1], found[0]))[:num])
    return best


def binding_sites(probabilities: Floats) -> dict[Word, int]:
    """Words that count as sites on either strand, and how much: two for strong sites, one for weak ones.

    Of the 24 best words those with at least half the log-odds of the best are sites. A site is strong if its log-odds
    lie in the upper half of the range that the sites span. Empty where no word is preferred to the background.
    """
    words = best_words(probabilities)
    best = max(words.values())
    sites = {word: odds for word, odds in words.items() if odds > 0 and odds >= _LEAST_SHARE * best}
    middle = (best + min(sites.values(), default=best)) / 2
    strengths: dict[Word, int] = {}
    for word, odds in sites.items():
        strength = STRONG if odds >= middle else WEAK
        for strand in (word, reverse_complement(word)):
            strengths[strand] = max(strength, strengths.get(strand, 0))
    return strengths


def reverse_complement(word: Word) -> Word:
    """The word on the other strand.

    >>> reverse_complement((0, 0, 1))
    (2, 3, 3)
    """
    return tuple(len(LETTERS) - 1 - token for token in reversed(word))
