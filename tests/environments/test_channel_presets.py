"""Channels by name: their matrices from first principles, and the tasks they are for."""

import itertools

import pytest
import torch

from stochflow.config.layers import resolve
from stochflow.config.noise import PRESETS, parse_noise
from stochflow.core.errors import ConfigError
from stochflow.environments import channel_presets
from stochflow.environments.channel_factory import make_channel
from stochflow.environments.channels import Channel

DNA, PROTEIN = "ACGT", "ACDEFGHIKLMNPQRSTVWY"
# residues of the 64 codons, bases in the order TCAG
CODE = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"


def channel(noise: str, letters: str) -> Channel:
    return make_channel(resolve([{"channel": parse_noise(noise)}]).channel, len(letters), 8, letters)


def test_every_name_has_a_channel() -> None:
    assert set(PRESETS) == set(channel_presets.PRESETS)


@pytest.mark.parametrize("letters", [DNA, "ACGU", "TGCA"])
def test_doped_oligonucleotides_slip(letters: str) -> None:
    found = channel("doped", letters)
    expected = torch.full((4, 4), 0.07, dtype=torch.float64).fill_diagonal_(0.79)
    torch.testing.assert_close(found.matrix(0), expected, atol=1e-12, rtol=0)
    assert found.slip == found.noise == 0.28


def test_nnk_codons_have_the_residues_of_the_genetic_code() -> None:
    codons = ["".join(codon) for codon in itertools.product("TCAG", repeat=3)]
    residues = [residue for codon, residue in zip(codons, CODE, strict=True) if codon[2] in "GT" and residue != "*"]
    assert len(residues) == 31
    row = channel("nnk:0.31", PROTEIN).matrix(0)[PROTEIN.index("W")]
    expected = [0.01 * residues.count(letter) + 0.69 * (letter == "W") for letter in PROTEIN]
    torch.testing.assert_close(row, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)


def test_error_prone_pcr_has_the_published_spectrum() -> None:
    matrix = channel("error-prone-pcr:0.01", DNA).matrix(0)
    rates = matrix - torch.diag(matrix.diagonal())
    assert float(rates.sum() / 4) == pytest.approx(0.01)
    # A→G and T→C together are 64.2 of the 91.1 % that are substitutions
    share = (rates[0, 2] + rates[3, 1]) / rates.sum()
    assert float(share) == pytest.approx(64.2 / 91.1, abs=1e-12)
    torch.testing.assert_close(rates[0, 2], rates[3, 1])
    assert float(rates[1, 2]) == 0.0
    backwards = channel("error-prone-pcr:0.01", "TGCA").matrix(0)
    assert float(backwards[0, 2]) == pytest.approx(float(matrix[3, 1]))


def test_arrays_delete() -> None:
    found = channel("array-synthesis:0.01", "ACGU")
    assert torch.equal(found.matrix(0), torch.eye(4, dtype=torch.float64))
    assert (found.deletion, found.duplication) == (0.01, 0.0)


@pytest.mark.parametrize("noise", ["doped", "error-prone-pcr", "array-synthesis", "nnk:0.1"])
def test_a_channel_for_other_letters_is_refused(noise: str) -> None:
    letters = DNA if noise.startswith("nnk") else PROTEIN
    with pytest.raises(ConfigError, match="give those of a channel of the same letters"):
        channel(noise, letters)


@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        ("doped:0.25", "above 0.25"),
        ("doped:1.1", "at most 1"),
        ("nnk", "needs a number"),
        ("nnk:1", "below 1"),
        ("error-prone-pcr:0.6", "between 0 and 0.5"),
        ("array-synthesis:1", "below 1"),
    ],
)
def test_numbers_out_of_range_are_refused(noise: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        channel(noise, PROTEIN if noise.startswith("nnk") else DNA)
