"""Records of metrics.jsonl: read as they were written, and left out where they were not."""

from pathlib import Path

from stochflow.runs.metrics_file import append_record, encode_record, read_records

RECORDS = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.1 + 0.2, "regret": 1e-300}]


def test_records_are_read_as_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    for record in RECORDS:
        append_record(path, record)
    assert read_records(path) == RECORDS


def test_a_record_that_does_not_match_its_checksum_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first, second = map(encode_record, RECORDS)
    path.write_text(first.replace("0.5", "0.6") + second + '{"step": 3, "lo', encoding="utf-8")
    assert read_records(path) == RECORDS[1:]


def test_lines_without_a_checksum_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n[]\n{"loss": 1}\n', encoding="utf-8")
    assert read_records(path) == RECORDS[:1]
