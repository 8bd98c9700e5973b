"""Motif matrices: the shipped ones, and files of several formats."""

from pathlib import Path

import numpy as np
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.sequences.motifs import motifs_of, read_motifs, shipped_motifs

EXPECTED = np.array([[0.8, 0.0, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 1.0]])
MEME = """MEME version 5.5

ALPHABET= ACGT
strands: + -
Background letter frequencies
A 0.25 C 0.25 G 0.25 T 0.25

MOTIF M0001.1 mine
letter-probability matrix: alength= 4 w= 3 nsites= 20 E= 0
0.8 0.0 0.1 0.1
0.25 0.25 0.25 0.25
0.0 0.0 0.0 1.0
URL http://example.org
"""
FORMATS = {
    "meme": MEME,
    "jaspar": ">M0001.1\tmine\nA [ 8 5 0 ]\nC [ 0 5 0 ]\nG [ 1 5 0 ]\nT [ 1 5 20 ]\n",
    "jaspar in another order": ">M0001.1 mine\nT  [1 5 20]\nG  [1 5 0]\nC  [0 5 0]\nA  [8 5 0]\n",
    "rows without letters": ">mine\n8 5 0\n0 5 0\n1 5 0\n1 5 20\n",
    "csv": "motif,A,C,G,T\nmine,0.8,0.0,0.1,0.1\nmine,0.25,0.25,0.25,0.25\nmine,0,0,0,1\n",
    "csv of counts": "motif;t;g;c;a\nmine;1;1;0;8\nmine;5;5;5;5\nmine;20;0;0;0\n",
    "tsv with a byte-order mark": "\ufeffmotif\tA\tC\tG\tT\nmine\t8\t0\t1\t1\nmine\t2\t2\t2\t2\nmine\t0\t0\t0\t3\n",
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_a_file_is_recognised_by_its_content(text: str, tmp_path: Path) -> None:
    path = tmp_path / "motif.data"
    path.write_text(text, encoding="utf-8")
    (motif,) = read_motifs(path)
    assert motif.name == "mine"
    np.testing.assert_allclose(motif.probabilities, EXPECTED, atol=1e-12)


def test_a_file_may_hold_several_matrices(tmp_path: Path) -> None:
    texts = {
        "two.meme": MEME + MEME.partition("MOTIF")[1] + MEME.partition("MOTIF")[2].replace("mine", "other"),
        "two.jaspar": FORMATS["jaspar"] + FORMATS["jaspar"].replace("mine", "other"),
        "two.csv": FORMATS["csv"] + "other,1,0,0,0\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert [motif.name for motif in read_motifs(tmp_path / name)] == ["mine", "other"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  \n\n", "is empty"),
        ("sequence,score\nACGT,1\n", "names no columns A, C, G and T"),
        ("A,C,G,T\n0.2,0.2,0.2,0.2\n", "column 1 of 'motif' sums to 0.8, not to 1"),
        ("A,C,G,T\n1.5,-0.5,0,0\n", "negative or not finite"),
        ("A,C,G,T\nnan,0.5,0.5,0\n", "negative or not finite"),
        ("A,C,G,T\n0,0,0,0\n", "sums to 0"),
        ("A,C,G,T\n1,0,0\n", "more or fewer entries"),
        ("A,C,G,T\na,b,c,d\n", "no numbers"),
        ("A,C,G,T,U\n1,0,0,0,0\n", "a column 'U'"),
        ("A,C,G,T\n", "it has no matrix"),
        (MEME.replace("= ACGT", "= ACDEFGHIKLMNPQRSTVWY"), "its alphabet is ACDEFGHIKLMNPQRSTVWY"),
        (MEME.replace("w= 3", ""), "how many columns"),
        (MEME.replace("w= 3", "w= 4"), "no numbers"),
        (MEME.replace("0.8 0.0", "0.8 0.3"), "sums to 1.3"),
        (MEME.replace("0.8 0.0", "0.8"), "an entry for each"),
        ("MEME version 4\n", "it has no matrix"),
        (FORMATS["jaspar"].replace("G [", "U ["), "a row 'U'"),
        (FORMATS["jaspar"].replace("G [ 1 5 0 ]\n", ""), "four rows"),
        (FORMATS["jaspar"].replace("G [ 1 5 0 ]", "G [ 1 5 ]"), "four rows of one length"),
        (FORMATS["jaspar"] * 2, "two motifs 'mine'"),
        (">mine\n" + "1 " * 65 + "\n" + ("0 " * 65 + "\n") * 3, "65 columns"),
        (">mine\n1e308 1\n1e308 1\n1e308 1\n1e308 1\n", "sums to inf"),
    ],
)
def test_what_is_no_motif_matrix_is_refused_in_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "motif.data"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_motifs(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_motifs(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not text"):
        read_motifs(tmp_path / "bytes")


def test_matrices_of_settings_are_checked_too() -> None:
    (motif,) = motifs_of(["mine"], [EXPECTED.tolist()])
    np.testing.assert_allclose(motif.probabilities, EXPECTED)
    with pytest.raises(ConfigError, match=r"motifs\.matrices cannot be used"):
        motifs_of(["mine"], [[[1.0, 1.0, 0.0, 0.0]]])
    with pytest.raises(ConfigError, match="two motifs 'mine'"):
        motifs_of(["mine", "mine"], [EXPECTED.tolist()] * 2)


def test_the_shipped_matrices_are_those_of_jaspar() -> None:
    motifs = shipped_motifs()
    consensus = {
        name: "".join("ACGT"[token] for token in motif.probabilities.argmax(axis=1)) for name, motif in motifs.items()
    }
    assert consensus["SP1"] == "GGGGCGGGG"
    assert consensus["MAX"] == "CACGTG"
    assert consensus["TBP"] == "TATAAAA"
    assert consensus["STAT3"] == "TTCTGGGAA"
    # counts 281, 49, 449 and 134 in the first column of MA0139.2
    np.testing.assert_allclose(motifs["CTCF"].probabilities[0], np.array([281, 49, 449, 134]) / 913)
    for motif in motifs.values():
        np.testing.assert_allclose(motif.probabilities.sum(axis=1), 1.0)
