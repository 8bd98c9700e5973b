"""Reads of a sequencer: what is read, which order they belong to, and what is refused."""

import gzip
from pathlib import Path

import pytest

from stochflow import ConfigError, DataError, fit_channel
from stochflow.environments.reads import AssignedReads, holds_reads, read_reads
from stochflow.environments.sequences.alphabets import named_alphabet

ORDERS = ["ACGTACGTAC", "TTTTGGGGCC"]
READS = ["ACGTACGTAC", "acgtacgtac", "ACGTACGTAA", "ACGTCGTAC", "TTTTGNGGCC", "CACACACACACA"]
FASTQ = "".join(f"@{number} lane 1\n{read}\n+\n{'I' * len(read)}\n" for number, read in enumerate(READS))
FASTA = "".join(f">{number}\n{read[:6]}\n{read[6:]}\n" for number, read in enumerate(READS))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("reads.fastq", FASTQ),
        ("reads.fq", "\n" + FASTQ + "\n\n"),
        ("reads.fastq.gz", gzip.compress(FASTQ.encode(), mtime=0)),
        ("reads.fasta", FASTA),
        ("reads.fa.gz", gzip.compress(FASTA.encode(), mtime=0)),
        ("reads.fastq", FASTQ.replace("\n", "\r\n")),
    ],
)
def test_reads_are_the_same_in_every_format(name: str, content: str | bytes, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    assert holds_reads(path)
    assert list(read_reads(path)) == READS


def test_reads_are_paired_with_their_orders(tmp_path: Path) -> None:
    path = write(tmp_path / "reads.fastq", FASTQ)
    source = AssignedReads(path, ORDERS, named_alphabet("dna"))
    (frame,) = source.frames()
    assert frame["intended"].tolist() == [ORDERS[0]] * 4 + [ORDERS[1]]
    assert frame["observed"].tolist() == [read.upper() for read in READS[:5]]
    assert (source.num_far, source.num_ambiguous) == (1, 0)


def test_a_channel_is_fitted_to_reads(tmp_path: Path) -> None:
    found = fit_channel(write(tmp_path / "reads.fastq", FASTQ), orders=ORDERS, model="global")
    assert (found.num_pairs, found.num_left_out, found.num_ambiguous) == (5, 1, 0)
    assert found.counts.sum() == 5 * 10 - 2  # one letter was deleted, and N is not counted
    assert found.counts[0, 1].tolist() == [1, 4 * 3 - 1 + 2, 0, 0]
    assert found.edits["deletion"].number == 1
    assert found.edits["deletion"].rate == 1 / 50


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("orders.csv", "id,order,sequence\n1,ACGTACGTAC,A\n2,ttttggggcc,A\n3,ACGTACGTAC,A\n"),
        ("orders.csv", "id,sequence\n1,ACGTACGTAC\n2,TTTTGGGGCC\n"),
        ("orders.fasta", ">a\nACGTAC\nGTAC\n>b\nTTTTGGGGCC\n"),
        ("orders.txt", "ACGTACGTAC\nTTTTGGGGCC\n"),
    ],
)
def test_orders_come_from_a_file(name: str, content: str, tmp_path: Path) -> None:
    source = AssignedReads(tmp_path / "reads.fq", write(tmp_path / name, content), named_alphabet("dna"))
    assert source.orders == ORDERS


def test_reads_of_rna_have_t_for_u(tmp_path: Path) -> None:
    path = write(tmp_path / "reads.fq", FASTQ)
    found = fit_channel(path, orders=[order.replace("T", "U") for order in ORDERS], alphabet="rna", model="global")
    assert found.counts.sum() == 48


def test_reads_as_near_to_two_orders_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "reads.fasta", ">1\nACGTAC\n>2\nACGTAA\n")
    found = fit_channel(path, orders=["ACGTAC", "ACGTAT"], model="global")
    assert (found.num_pairs, found.num_ambiguous) == (1, 1)


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "has no reads"),
    "a table": ("intended,observed\nA,A\n", "begins with 'intended,observed', not with @ or >"),
    "cut off in a record": (FASTQ[: len(FASTQ) // 2], "record 4 of .* is not whole .*; the file was cut off"),
    "cut off in the qualities": (FASTQ[:-3], "record 6 of .* is not whole"),
    "no plus": (FASTQ.replace("+", "-"), "record 1 of .* is not whole"),
    "no name": (FASTQ.replace("@1", "1"), "record 2 of .* is not whole"),
    "cut off gzip": (gzip.compress(FASTQ.encode() * 50)[:-20], "cannot be read as FASTQ or FASTA"),
    "damaged gzip": (b"\x1f\x8b" + b"x" * 40, "cannot be read as FASTQ or FASTA"),
    "no letters": (">1\n>2\nACGTACGTAC\n", "read 1 of .* has 0 letters"),
    "too long": (">1\n" + "A" * 1001 + "\n", "read 1 of .* has 1,001 letters"),
    "other letters": (">1\nACGTACGTXC\n", "has the letter X in ACGTACGTXC, outside the alphabet ACGT"),
    "bytes": (b"@\xff\n", "cannot be read as FASTQ or FASTA"),
    "strangers": (">1\nCACACACACA\n", "none of the 1 reads of .* is near to a single order"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_reads_are_refused_with_one_sentence(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        fit_channel(write(tmp_path / "reads.fastq", content), orders=ORDERS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "is empty; give a table"), ("order\n", "holds no sequences"), ("order\nACXT\n", "has the letter X in ACXT")],
)
def test_bad_orders_are_refused_with_one_sentence(content: str, message: str, tmp_path: Path) -> None:
    orders = write(tmp_path / "orders.csv", content)
    with pytest.raises(DataError, match=message):
        fit_channel(write(tmp_path / "reads.fastq", FASTQ), orders=orders)


def test_orders_belong_to_reads(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the orders with --orders"):
        fit_channel(write(tmp_path / "reads.fastq", FASTQ))
    with pytest.raises(ConfigError, match="leave --orders out"):
        fit_channel(write(tmp_path / "pairs.csv", "intended,observed\nA,A\n"), orders=ORDERS)
    with pytest.raises(DataError, match="there are no orders"):
        fit_channel(tmp_path / "reads.fastq", orders=[])
    with pytest.raises(DataError, match=r"reads\.fq does not exist"):
        fit_channel(tmp_path / "reads.fq", orders=ORDERS)
