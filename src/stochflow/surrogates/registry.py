"""Surrogates by name, of this package and of others."""

from collections.abc import Callable
from importlib.metadata import EntryPoint

from stochflow.core.errors import ConfigError
from stochflow.core.plugins import plugins, reason_of, unusable
from stochflow.surrogates.base import Surrogate
from stochflow.surrogates.calibrated import Calibrated
from stochflow.surrogates.convolution import ConvolutionEnsemble
from stochflow.surrogates.ensemble import Ensemble
from stochflow.surrogates.forest import Forest
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.kmer_ridge import KmerRidge
from stochflow.surrogates.letter_distances import LetterDistance, hamming
from stochflow.surrogates.position_pairs import PositionPairEnsemble

GROUP = "stochflow.surrogates"
Factory = Callable[[int, int, LetterDistance], Surrogate]  # from K, L and the distance of letters


def _ridge(num_tokens: int, length: int, distance: LetterDistance) -> Surrogate:
    return KmerRidge(num_tokens, length)


def _calibrated_process(num_tokens: int, length: int, distance: LetterDistance) -> Surrogate:
    return Calibrated(GaussianProcess(num_tokens, length, distance))


def _ensemble(num_tokens: int, length: int, distance: LetterDistance) -> Surrogate:
    names = ("kmer-ridge", "gaussian-process")
    return Ensemble({name: SURROGATES[name](num_tokens, length, distance) for name in names})


SURROGATES: dict[str, Factory] = {
    "kmer-ridge": _ridge,
    "gaussian-process": GaussianProcess,
    "calibrated-gaussian-process": _calibrated_process,
    "forest": Forest,
    "convolution": ConvolutionEnsemble,
    "position-pairs": PositionPairEnsemble,
    "ensemble": _ensemble,
}


def make_surrogate(name: str, num_tokens: int, length: int, distance: LetterDistance | None = None) -> Surrogate:
    """The surrogate of that name, of this package or another, or an error that lists the names there are.

    One of another package is an entry point of the group `stochflow.surrogates`: a function of K, L and the distance of
    letters that returns a `Surrogate`.

    >>> type(make_surrogate("gaussian-process", 4, 8)).__name__
    'GaussianProcess'

    Args:
        name: of the surrogate.
        num_tokens, length: K and L.
        distance: of letters; Hamming by default.
    """
    distance = distance or hamming(num_tokens)
    if name in SURROGATES:
        return SURROGATES[name](num_tokens, length, distance)
    others = plugins(GROUP, SURROGATES)
    if name not in others:
        raise ConfigError(f"unknown surrogate '{name}'; choose one of: {', '.join([*SURROGATES, *others])}")
    return _loaded(others[name], num_tokens, length, distance)


def _loaded(point: EntryPoint, num_tokens: int, length: int, distance: LetterDistance) -> Surrogate:
    try:
        found = point.load()(num_tokens, length, distance)
    # whatever the code of another package does wrong, the user hears which package it is
    except Exception as error:
        raise unusable("surrogate", point, f" ({reason_of(error)})") from None
    if not isinstance(found, Surrogate):
        raise unusable("surrogate", point, f": {point.value} returned {type(found).__name__}, which is no Surrogate")
    return found
