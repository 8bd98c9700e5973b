"""RNA inverse folding: sequences that fold into a target structure, scored by ViennaRNA."""

from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.environments.registry import FOLDS, FORMS
from stochflow.environments.sequences.task import Alphabet, Task

FORM = FORMS["rna-fold"]
_REMEMBERED = 2**18


class RnaFold(Task):
    """RNA of length L with a target secondary structure S*.

    score(x) = 1 − n(x, S*)/L, where n is the ensemble defect (Zadeh et al. 2011): the expected number of nucleotides
    whose pairing differs from S*, over the Boltzmann ensemble of the structures of x at 37 °C with ViennaRNA's default
    energies (Lorenz et al. 2011). The score lies in [0, 1] and is deterministic; 1 means that the molecule is in S*
    with certainty. Folding takes time that grows as L³, so scores are cached.

    Attributes:
        target: S* in dot-bracket notation.
    """

    alphabet = Alphabet("ACGU")
    mode_threshold = 0.9

    def __init__(self, length: int) -> None:
        self.name = f"rna-fold:{length}"
        self.length, self.target = length, FOLDS[length]
        self.description = f"RNA that folds into {self.target}; score 1 − ensemble defect in [0, 1]"
        library = extra("RNA", "rna")
        self._remembered = lru_cache(_REMEMBERED)(lambda sequence: _agreement(library, sequence, self.target))

    def score(self, tokens: Tensor) -> Tensor:
        sequences = self.alphabet.decode(tokens)
        return torch.tensor([self._remembered(sequence) for sequence in sequences], dtype=torch.float64)


def rna_fold(parameters: str) -> RnaFold:
    """The task `rna-fold:<parameters>`, where the parameter is a length."""
    lengths = {str(length): length for length in FOLDS}
    if parameters not in lengths:
        raise ConfigError(
            f"task 'rna-fold:{parameters}' has no target structure; choose L in {FORM} from: {', '.join(lengths)}"
        )
    return RnaFold(lengths[parameters])


def _agreement(library: ModuleType, sequence: str, target: str) -> float:
    """1 − ensemble defect per nucleotide, clipped to [0, 1] because of rounding."""
    molecule = library.fold_compound(sequence)
    molecule.pf()
    return min(max(1.0 - float(molecule.ensemble_defect(target)), 0.0), 1.0)
