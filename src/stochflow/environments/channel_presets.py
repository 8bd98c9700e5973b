"""Channels of real ways to make libraries, by name; docs/how-to/your-own-task.md says where their numbers come from."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import Channel, confusion, dna_synthesis, uniform_slip
from stochflow.environments.sequences.alphabets import ALPHABETS

# residues of the 31 sense codons of NNK, in the order of the protein alphabet
_NNK = [2, 1, 1, 1, 1, 2, 1, 1, 1, 3, 1, 1, 2, 1, 3, 3, 2, 2, 1, 1]
# % of the mutations that error-prone PCR made (Bloom et al. 2007, table 1), of either strand, in the order ACGT
_PCR_SPECTRUM = [[0.0, 1.5, 64.2, 19.4], [1.5, 0.0, 0.0, 4.5], [4.5, 0.0, 0.0, 1.5], [19.4, 64.2, 1.5, 0.0]]


def doped(share: float = 0.79) -> Channel:
    """Doped oligonucleotides: a base comes with this share of the mixture, and each of the others with an equal part.

    79/7/7/7 is the uniform slip α = (1 − 0.79)·4/3 = 0.28.

    >>> doped(0.79).slip
    0.28
    """
    if not 0.25 < share <= 1.0:
        raise ConfigError(f"doped:{share:g} is no share of the wanted base; it is above 0.25 and at most 1, as in 0.79")
    channel = uniform_slip(4, round((1.0 - share) * 4 / 3, 12))
    channel.name = f"doped:{share:g}"
    return channel


def nnk(share: float) -> Channel:
    """Residues of which this share has an NNK codon in place of their own, as in a library of partial saturation.

    Such a residue is drawn from the 31 sense codons of NNK, the intended one included; what stops is never made.

    >>> nnk(0.31).matrix(0)[0, :3].tolist()  # alanine has two of the codons, and cysteine and aspartate one
    [0.71, 0.01, 0.01]
    """
    if not 0.0 <= share < 1.0:
        raise ConfigError(f"nnk:{share:g} is no share of NNK codons; it is at least 0 and below 1, as in nnk:0.1")
    drawn = torch.tensor(_NNK, dtype=torch.float64) / sum(_NNK)
    return confusion((1.0 - share) * torch.eye(len(_NNK), dtype=torch.float64) + share * drawn, f"nnk:{share:g}")


def error_prone_pcr(rate: float = 0.002) -> Channel:
    """Substitutions of error-prone PCR with Taq polymerase: `rate` per base, where all bases are equally frequent.

    >>> error_prone_pcr(0.01).matrix(0).diagonal().mean()  # A and T change fourteen times as often as C and G
    tensor(0.9900, dtype=torch.float64)
    """
    if not 0.0 <= rate <= 0.5:
        raise ConfigError(f"error-prone-pcr:{rate:g} is no rate of errors per base; it is between 0 and 0.5")
    spectrum = torch.tensor(_PCR_SPECTRUM, dtype=torch.float64)
    matrix: Tensor = 4.0 * rate * spectrum / spectrum.sum()
    return confusion(matrix + torch.diag(1.0 - matrix.sum(dim=-1)), f"error-prone-pcr:{rate:g}")


def array_synthesis(deletion: float = 0.0005695) -> Channel:
    """Pools of oligonucleotides from an array: `deletion` per base, and no substitutions by the synthesis itself.

    >>> array_synthesis().deletion
    0.0005695
    """
    if not 0.0 <= deletion < 1.0:
        raise ConfigError(f"array-synthesis:{deletion:g} is no rate of deletions; it is at least 0 and below 1")
    channel = confusion(torch.eye(4, dtype=torch.float64), f"array-synthesis:{deletion:g}")
    channel.deletion = deletion
    return channel


# channel and its letters by name; dna-synthesis takes any four
PRESETS: dict[str, tuple[Callable[[float], Channel], str | None]] = {
    "array-synthesis": (array_synthesis, ALPHABETS["dna"]),
    "dna-synthesis": (dna_synthesis, None),
    "doped": (doped, ALPHABETS["dna"]),
    "error-prone-pcr": (error_prone_pcr, ALPHABETS["dna"]),
    "nnk": (nnk, ALPHABETS["protein"]),
}


def preset(kind: str, number: float, letters: str | None) -> tuple[Channel, str | None]:
    """A channel by name, and its letters: those of RNA for a task of RNA, whose template is DNA."""
    build, own = PRESETS[kind]
    if own == ALPHABETS["dna"] and letters is not None and "U" in letters:
        own = ALPHABETS["rna"]
    return build(number), own
