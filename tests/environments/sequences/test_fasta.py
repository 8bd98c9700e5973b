"""Sequences from FASTA, CSV and plain text."""

from pathlib import Path

import pytest

from stochflow.core.errors import DataError
from stochflow.environments.sequences.fasta import read_sequences, read_written


def read(content: str | bytes, tmp_path: Path, name: str = "file.txt") -> list[str]:
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return read_sequences(path)


@pytest.mark.parametrize(
    "content",
    [
        ">first\nACGT\nACGT\n>second entry\nTTTT\nGG\nGG\n",
        ">first\nacgtacgt\n>second\nttttgggg",
        ">first\r\nACGT\r\nACGT\r\n>second\r\nTTTTGGGG\r\n",
        "\n\n>first\nACGTACGT\n\n>second\nTTTTGGGG\n\n",
        ">first\nACGT ACGT\n>second\nTTTT\tGGGG \n",
        ">\nACGTACGT\n>\nTTTTGGGG\n",
        ">first A>G at 4\nACGTACGT\n>second >> third\nTTTTGGGG\n",
        "\ufeff>first\nACGTACGT\n>second\nTTTTGGGG\n",
    ],
    ids=["lines", "lower", "windows", "blanks", "spaces", "nameless", "arrows", "byte-order-mark"],
)
def test_fasta_entries_are_joined_over_their_lines(content: str, tmp_path: Path) -> None:
    assert read(content, tmp_path, "file.fasta") == ["ACGTACGT", "TTTTGGGG"]


@pytest.mark.parametrize(
    "content",
    [
        "name,sequence,score\na,ACGTACGT,1\nb,ttttgggg,2\n",
        "word,score\nACGTACGT,1\nTTTTGGGG,2\n",
        'sequence\n"ACGTACGT"\n" TTTTGGGG "\n',
        "sequence\nACGTACGT\n\nTTTTGGGG\n",
        "sequence,score\r\nACGTACGT,1\r\nTTTTGGGG,2\r\n",
        "\ufeffscore,sequence\n1,ACGTACGT\n2,TTTTGGGG\n",
        "\ufeffsequence,score\nACGTACGT,1\nTTTTGGGG,2\n",
    ],
    ids=["named", "first", "quoted", "blank", "windows", "byte-order-mark", "byte-order-mark-first"],
)
def test_a_csv_gives_its_column_sequence_or_else_its_first(content: str, tmp_path: Path) -> None:
    assert read(content, tmp_path, "file.csv") == ["ACGTACGT", "TTTTGGGG"]


@pytest.mark.parametrize(
    "content", ["ACGTACGT\nTTTTGGGG\n", "acgtacgt\r\nTTTTGGGG", "\n ACGTACGT \n\n\tTTTTGGGG", "ACGTACGT TTTTGGGG"]
)
def test_plain_text_is_one_sequence_per_line(content: str, tmp_path: Path) -> None:
    assert read(content, tmp_path) == ["ACGTACGT", "TTTTGGGG"]


def test_a_tsv_is_a_table_and_its_column_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "file.tsv"
    path.write_text("id\tsequence\tmade\n1\tACGT\tTTTT\n2\tAAAA\t\n", encoding="utf-8")
    assert read_sequences(path) == ["ACGT", "AAAA"]
    assert read_written(path, "made") == ["TTTT"]
    with pytest.raises(DataError, match=r"file\.tsv has no column 'x', only id, sequence, made"):
        read_written(path, "x")


def test_only_tables_have_columns(tmp_path: Path) -> None:
    path = tmp_path / "file.fasta"
    path.write_text(">1\nACGT\n", encoding="utf-8")
    with pytest.raises(DataError, match="no column 'sequence'; leave that out"):
        read_written(path, "sequence")


def test_digits_are_read_as_letters(tmp_path: Path) -> None:
    assert read("sequence\n0101\n1110\n", tmp_path, "file.csv") == ["0101", "1110"]


def test_repeats_and_order_are_kept(tmp_path: Path) -> None:
    assert read("TT\nAA\nTT\n", tmp_path) == ["TT", "AA", "TT"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("", "file.txt"),
        ("\n \n", "file.txt"),
        ("sequence\n", "file.csv"),
        (">only a name\n", "file.fasta"),
        (">first\nACGT\n>second\n>third\nACGT\n", "file.fasta"),
        ('sequence\n" "\nACGT\n', "file.csv"),
    ],
)
def test_a_file_without_sequences_or_with_an_empty_one_is_refused(content: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sequences or an empty one; give one sequence per line, FASTA or CSV"):
        read(content, tmp_path, name)


def test_an_empty_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"file\.csv is empty; give a table"):
        read("", tmp_path, "file.csv")


def test_a_ragged_csv_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"file\.csv is not a CSV table .*; correct it") as caught:
        read("sequence,score\nACGT,1\nACGT,1,2,3\n", tmp_path, "file.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["file.txt", "file.csv", "file.fasta"])
def test_binary_garbage_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{name} cannot be read .*; check the path"):
        read(bytes(range(256)), tmp_path, name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.fasta", tmp_path):
        with pytest.raises(DataError, match=f"{path.name} cannot be read .*; check the path"):
            read_sequences(path)
