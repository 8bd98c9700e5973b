"""The file `metrics.jsonl`: one JSON record per training step, each with a checksum of itself."""

import json
import zlib
from pathlib import Path
from typing import Any

from stochflow.core.errors import DataError
from stochflow.core.files import read_limited

CHECKSUM = "crc32"
_MAX_BYTES = 512 * 2**20
_CHECKSUM_KEY = f', "{CHECKSUM}": "'


def append_record(path: Path, record: dict[str, Any]) -> None:
    """Append the record of a step."""
    with path.open("a", encoding="utf-8") as file:
        file.write(encode_record(record))


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole records of a file, in order; none where there is no file."""
    if not path.exists():
        return []
    records = []
    try:
        text = read_limited(path, _MAX_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); restore or remove it") from None
    for line in text.splitlines():
        try:
            record = json.loads(_without_checksum(line))
        except (ValueError, RecursionError):
            continue  # cut short when the machine stopped, in which case a resumed run makes it again, or damaged
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    return records


def encode_record(record: dict[str, Any]) -> str:
    """A record as a line of JSON whose last entry is the CRC-32 of the line without it.

    >>> encode_record({"step": 1, "loss": 0.5})
    '{"step": 1, "loss": 0.5, "crc32": "878c5e53"}\\n'
    """
    text = json.dumps(record)
    return f'{text[:-1]}{_CHECKSUM_KEY}{zlib.crc32(text.encode()):08x}"}}\n'


def _without_checksum(line: str) -> str:
    """The record of a line without its checksum; a ValueError if it does not match. Older runs have no checksums."""
    text, key, end = line.rpartition(_CHECKSUM_KEY)
    if not key:
        return line
    text += "}"
    if end != f'{zlib.crc32(text.encode()):08x}"}}':
        raise ValueError("not as it was written")
    return text
