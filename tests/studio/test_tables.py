from pathlib import Path

import pytest

from stochflow import DataError
from stochflow.studio.tables import describe_table


def table(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_a_form_can_be_filled_in_from_a_table(tmp_path: Path) -> None:
    found = describe_table(table(tmp_path, "sequence,score\nACGT,1\nACGA,2\nACGC,3\nACGG,4\n"))
    assert found == {
        **{"columns": ["sequence", "score"], "rows": 4, "sequence": "sequence", "score": "score"},
        **{"first": [["ACGT", "1"], ["ACGA", "2"], ["ACGC", "3"]], "alphabet": "dna", "shortest": 4, "longest": 4},
    }


def test_columns_are_known_by_what_they_hold_where_names_say_nothing(tmp_path: Path) -> None:
    found = describe_table(table(tmp_path, "n\tpeptide\tKd\n1\tMKV\t0.5\n2\tMKVW\t0.7\n", "t.tsv"))
    assert (found["sequence"], found["score"]) == ("peptide", "n")
    assert (found["alphabet"], found["shortest"], found["longest"]) == ("protein", 3, 4)


@pytest.mark.parametrize("text", ["", "\0\0", 'a,b\n"x', "a,b\n1,2,3\n"])
def test_what_is_no_table_is_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        describe_table(table(tmp_path, text))


def test_a_header_alone_is_described(tmp_path: Path) -> None:
    assert describe_table(table(tmp_path, "sequence,score\n"))["rows"] == 0
