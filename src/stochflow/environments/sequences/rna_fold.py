"""Inverse folding of RNA: sequences whose molecules take a wanted shape, judged by ViennaRNA."""

from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.environments.sequences.task import Alphabet, Task

FORM = "rna-fold:L"
# hairpin; hairpin with an interior loop; three-way junction; cloverleaf
TARGETS = {
    14: "((((......))))",
    30: "(((((..((((....))))...)))))...",
    50: "((((((..(((((....)))))..(((((....)))))..))))))....",
    100: "(((((((((..((((((((......))))))))..((((((((.......))))))))....((((((((.......))))))))..)))))))))....",
}
_REMEMBERED = 2**18


class RnaFold(Task):
    """RNA of length L that should fold into a given secondary structure S*.

    score(x) = 1 − n(x, S*)/L, where n is the ensemble defect (Zadeh et al. 2011): the number of nucleotides that are
    not paired as in S* (or not unpaired as in S*), in expectation over the Boltzmann ensemble of all structures of x
    at 37 °C with ViennaRNA's default energies (Lorenz et al. 2011). It lies in [0, 1]: 1 means that the molecule is
    certainly in the wanted shape. Nothing is random. A fold takes time that grows as L³, so scores are remembered.

    Attributes:
        target: S* in dot-bracket notation.
    """

    alphabet = Alphabet("ACGU")
    mode_threshold = 0.9

    def __init__(self, length: int) -> None:
        self.name = f"rna-fold:{length}"
        self.length, self.target = length, TARGETS[length]
        self.description = f"RNA that folds into {self.target}; score 1 − ensemble defect in [0, 1]"
        library = extra("RNA", "rna")
        self._remembered = lru_cache(_REMEMBERED)(lambda sequence: _agreement(library, sequence, self.target))

    def score(self, tokens: Tensor) -> Tensor:
        sequences = self.alphabet.decode(tokens)
        return torch.tensor([self._remembered(sequence) for sequence in sequences], dtype=torch.float64)


def rna_fold(parameters: str) -> RnaFold:
    """The task of `rna-fold:<parameters>`, a length."""
    lengths = {str(length): length for length in TARGETS}
    if parameters not in lengths:
        raise ConfigError(
            f"task 'rna-fold:{parameters}' has no target structure; choose L in {FORM} from: {', '.join(lengths)}"
        )
    return RnaFold(lengths[parameters])


def _agreement(library: ModuleType, sequence: str, target: str) -> float:
    """1 − ensemble defect per nucleotide; rounding must not lead out of [0, 1]."""
    molecule = library.fold_compound(sequence)
    molecule.pf()
    return min(max(1.0 - float(molecule.ensemble_defect(target)), 0.0), 1.0)
