"""Reads of a sequencer, FASTQ or FASTA, each with the known order that it is nearest to."""

import gzip
import itertools
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO, cast

import pandas as pd

from stochflow.core.errors import DataError
from stochflow.core.text_table import plain
from stochflow.environments.alignment import nearest
from stochflow.environments.sequences.fasta import read_sequences
from stochflow.environments.sequences.task import Alphabet

SUFFIXES = (".fastq", ".fq", ".fasta", ".fa", ".fna")
MAX_LENGTH = 1000
_CHUNK = 10_000
_MOST_DISTANCES = 2**22  # at a time
_MOST_IN_LINE = 2**20
_GZIP = b"\x1f\x8b"
_UNREAD = "N"


class AssignedReads:
    """Reads as pairs of what was ordered and what was read.

    Attributes:
        num_far: reads with too many edits to every order, so far; they are left out.
        num_ambiguous: reads that are as near to two orders; they are left out, too.
    """

    def __init__(self, path: Path, orders: Path | Sequence[str], alphabet: Alphabet) -> None:
        self.path, self._letters = path, alphabet.letters
        found = read_sequences(orders, ("order", "sequence")) if isinstance(orders, Path) else orders
        name = str(orders) if isinstance(orders, Path) else "the list of orders"
        self.orders = list(dict.fromkeys(self._in_alphabet(order, name) for order in found))
        if not self.orders:
            raise DataError("there are no orders; give those that were read, one string each")
        self.num_far = self.num_ambiguous = 0

    def __str__(self) -> str:
        return str(self.path)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Tables with the columns `intended` and `observed`, some reads at a time."""
        size = max(1, min(_CHUNK, _MOST_DISTANCES // len(self.orders)))
        reads = read_reads(self.path)
        while chunk := list(itertools.islice(reads, size)):
            yield self._assigned([self._in_alphabet(read, str(self.path), _UNREAD) for read in chunk])

    def _assigned(self, reads: list[str]) -> pd.DataFrame:
        """The reads that belong to one order."""
        distinct = list(dict.fromkeys(reads))
        indices, ambiguous = nearest(distinct, self.orders)
        table = pd.DataFrame({"index": indices, "ambiguous": ambiguous}, index=distinct).loc[reads]
        far, ambiguous = (table["index"] < 0).to_numpy(), table["ambiguous"].to_numpy()
        self.num_far, self.num_ambiguous = self.num_far + int(far.sum()), self.num_ambiguous + int(ambiguous.sum())
        kept = table[~far & ~ambiguous]
        intended = [self.orders[place] for place in kept["index"]]
        return pd.DataFrame({"intended": intended, "observed": list(kept.index)}, dtype=str)

    def _in_alphabet(self, text: str, name: str, masked: str = "") -> str:
        """A sequence in upper case, with U for T where the alphabet is that of RNA."""
        text = text.upper() if self._letters.isupper() else text
        if "U" in self._letters and "T" not in self._letters:
            text = text.replace("T", "U")  # a sequencer reads DNA
        odd = sorted(set(text) - set(self._letters) - set(masked))
        if odd:
            raise DataError(
                f"{name} has the letter {plain(odd[0])} in {plain(text)}, outside the alphabet {self._letters}; "
                "correct or remove it, or give another --alphabet"
            )
        return text


def holds_reads(path: Path) -> bool:
    """True for a file whose name says FASTQ or FASTA, compressed or not."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith(SUFFIXES)


def read_reads(path: Path) -> Iterator[str]:
    """Sequences of a FASTQ or FASTA file, plain or gzip, in the order of the file; a DataError where it is damaged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "reads.fastq"
    ...     _ = path.write_text("@first\\nACGN\\n+\\nIIII\\n")
    ...     list(read_reads(path))
    ['ACGN']
    """
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path, "rt", encoding="ascii") if packed else path.open(encoding="ascii") as text:
            yield from _records(_lines(path, cast(TextIO, text)), path)
    except FileNotFoundError:
        raise DataError(f"the file of reads {path} does not exist; check the path") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as FASTQ or FASTA ({reason}); fetch or write the file again") from None


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Lines without their ends, of bounded length."""
    while line := file.readline(_MOST_IN_LINE):
        if len(line) == _MOST_IN_LINE:
            raise DataError(f"{path} has a line of more than {_MOST_IN_LINE:,} letters; give reads as FASTQ or FASTA")
        yield line.rstrip()


def _records(lines: Iterator[str], path: Path) -> Iterator[str]:
    first = next((line for line in lines if line), None)
    if first is None:
        raise DataError(f"{path} has no reads; give FASTQ or FASTA")
    if first[0] not in "@>":
        raise DataError(f"{path} begins with '{plain(first)}', not with @ or >; give reads as FASTQ or FASTA")
    found = _fastq(first, lines, path) if first[0] == "@" else _fasta(lines)
    for number, read in enumerate(found, start=1):
        if not 0 < len(read) <= MAX_LENGTH:
            raise DataError(
                f"read {number:,} of {path} has {len(read):,} letters; reads have 1 to {MAX_LENGTH:,}, trimmed to what "
                "was ordered"
            )
        yield read


def _fastq(header: str, lines: Iterator[str], path: Path) -> Iterator[str]:
    """Reads of four lines: @name, letters, +, qualities."""
    for number in itertools.count(1):
        record = list(itertools.islice(lines, 3))
        whole = len(record) == 3 and record[1].startswith("+") and len(record[2]) == len(record[0])
        if not whole or not header.startswith("@"):
            raise DataError(
                f"record {number:,} of {path} is not whole (@name, letters, + and as many qualities); the file was cut "
                "off or damaged, so fetch it again"
            )
        yield record[0]
        following = next((line for line in lines if line), None)
        if following is None:
            return
        header = following


def _fasta(lines: Iterator[str]) -> Iterator[str]:
    """Reads between lines that begin with >."""
    parts: list[str] = []
    for line in lines:
        if line.startswith(">"):
            yield "".join(parts)
            parts = []
        else:
            parts.append("".join(line.split()))
    yield "".join(parts)
