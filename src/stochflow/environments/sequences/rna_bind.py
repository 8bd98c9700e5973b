"""RNA binding: sequences that form a stable duplex with a target RNA, scored by ViennaRNA."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from types import ModuleType

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.environments.registry import BIND_LENGTHS, BIND_TARGETS, FORMS, binding_description
from stochflow.environments.sequences.packed import read_verified
from stochflow.environments.sequences.task import Alphabet, Task

FORM = FORMS["rna-bind"]
_COMPLEMENT = str.maketrans("ACGU", "UGCA")
_REMEMBERED = 2**18


class RnaBind(Task):
    """RNA of length L that shall bind M target RNAs (Sinai et al. 2020).

    With E(x, y) the energy of the best duplex of x and y at 37 °C, ViennaRNA's default energies, and t' the reverse
    complement of a target t,

        score(x) = max(0, 1/M · Σ_t E(t, x) / (E(t', t)·L/|t|)).

    Per nucleotide, 1 is as stable as the target with its own complement; the best L nucleotides of a target can be
    bound a little better. A duplex of the design with itself does not count. Scores are deterministic and cached: the
    time of one grows as L times the length of the target.

    Attributes:
        targets: RNA by name.
    """

    alphabet = Alphabet("ACGU")
    mode_threshold = 0.9
    source = "Sinai 2020"

    def __init__(self, names: Sequence[str], length: int) -> None:
        self.name = f"rna-bind:{'+'.join(names)},{length}"
        self.length, self.targets = length, {name: binding_targets()[name] for name in names}
        self.description = binding_description(*names)
        library = extra("RNA", "rna")
        scales = [
            _duplex_energy(library, reverse_complement(target), target) * length / len(target)
            for target in self.targets.values()
        ]
        self._remembered = lru_cache(_REMEMBERED)(lambda sequence: self._stability(library, sequence, scales))

    def score(self, tokens: Tensor) -> Tensor:
        sequences = self.alphabet.decode(tokens)
        return torch.tensor([self._remembered(sequence) for sequence in sequences], dtype=torch.float64)

    def _stability(self, library: ModuleType, sequence: str, scales: Sequence[float]) -> float:
        """Mean energy over the targets, each as a share of its scale; not below zero, where nothing binds."""
        energies = [_duplex_energy(library, target, sequence) for target in self.targets.values()]
        return max(0.0, sum(energy / scale for energy, scale in zip(energies, scales, strict=True)) / len(scales))


def rna_bind(parameters: str) -> RnaBind:
    """The task `rna-bind:<parameters>`: names of targets with a plus between them, a comma, and the length."""
    match = re.fullmatch(r"([^,]+),([1-9][0-9]{0,8})", parameters)
    if match is None:
        raise ConfigError(
            f"task 'rna-bind:{parameters}' is not understood; write {FORM} with names of targets and a length, as in "
            "rna-bind:RNA1,14"
        )
    names, length = match[1].split("+"), int(match[2])
    unknown = next((name for name in names if name not in BIND_TARGETS), None)
    if unknown is not None:
        raise ConfigError(f"there is no target RNA '{unknown}'; choose from {', '.join(BIND_TARGETS)}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"task 'rna-bind:{parameters}' has {twice} twice; name each target once")
    if length not in BIND_LENGTHS:
        raise ConfigError(
            f"task 'rna-bind:{parameters}' cannot have length {length}; choose L in {FORM} from: "
            f"{', '.join(map(str, BIND_LENGTHS))}"
        )
    return RnaBind(names, length)


@cache
def binding_targets() -> dict[str, str]:
    """The target RNAs of the package by name.

    >>> {name: len(target) for name, target in binding_targets().items()}
    {'RNA1': 100, 'RNA2': 100, 'RNA3': 100, 'RNA4': 100}
    """
    lines = read_verified("rna_targets.fasta", "build_rna_targets.py").decode("ascii").split()
    return {name.removeprefix(">"): target for name, target in zip(lines[::2], lines[1::2], strict=True)}


def reverse_complement(sequence: str) -> str:
    """The RNA that pairs with every nucleotide of a sequence, in 5′ to 3′ direction.

    >>> reverse_complement("GGAU")
    'AUCC'
    """
    return sequence.translate(_COMPLEMENT)[::-1]


def _duplex_energy(library: ModuleType, first: str, second: str) -> float:
    """kcal/mol of the most stable duplex with pairs between the two RNAs only; positive where none is stable."""
    return float(library.duplexfold(first, second).energy)
