"""Tables of text: the columns that are found, and names in messages."""

from pathlib import Path

import pandas as pd
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.text_table import check_header, check_text_file, number_fault, plain, readable, shown, text_options


def test_cells_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("\ufeffa\tb\n007\tNA\n1e3\t\n", encoding="utf-8")
    assert check_header(path, ["b"], "name yours") == ["a", "b"]
    with readable(path):
        frame = pd.read_csv(path, **text_options(path))
    assert frame.to_numpy().tolist() == [["007", "NA"], ["1e3", ""]]


def test_columns_are_there_once(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b,b\n1,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"has no column 'c', only a, b, b\.1; name yours"):
        check_header(path, ["a", "c"], "name yours")
    with pytest.raises(DataError, match="has several columns 'b'"):
        check_header(path, ["b"], "name yours")
    with pytest.raises(ConfigError, match="must differ"):
        check_header(path, ["a", "a"], "name yours")


def test_a_large_file_is_refused_with_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"a\n" * 2**20)
    with pytest.raises(DataError, match="has 2 MB, and a table may have 1 MB"):
        check_text_file(path, 2**20, "1 MB")


def test_names_in_messages_are_short_and_printable() -> None:
    assert shown([f"c{number}" for number in range(10)]) == "c0, c1, c2, c3, c4, c5, c6, c7, …"
    assert plain("a\x1b[31m" + "b" * 50) == "a�[31m" + "b" * 34 + "…"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "table.csv",
            "a;b\n1,5;2\n",
            "separates its columns by semicolons; save it with commas between columns and poi",
        ),
        ("table.csv", "a\tb\n1\t2\n", "by tabs; save it with commas between columns .*, or name it .tsv"),
        ("table.tsv", "a,b\n1,2\n", "by commas; save it with tabs between columns .* and name it .csv|name it .csv"),
        ("table.csv", "a,b\n1,5,2\n", "a line has more cells than the header.; write numbers with a decimal point"),
        ("table.csv", "a,b\n1,2\n1,2,3\n", "line 3 has more cells than the header"),
        ("table.csv", 'a,b\n1,"2\n', "a quotation mark is never closed.; close or remove it"),
    ],
)
def test_what_is_no_table_with_commas_is_told_how_to_become_one(
    name: str, text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    def read() -> None:
        with readable(path):
            check_header(path, ["a", "b"], "name yours")
            pd.read_csv(path, **text_options(path))

    with pytest.raises(DataError, match=sentence) as caught:
        read()
    assert "pandas" not in str(caught.value)
    assert "index_col" not in str(caught.value)


def test_a_cell_that_is_no_number_is_told_why() -> None:
    assert number_fault("-1,25") == "which has a decimal comma; write -1.25"
    assert number_fault("-1e308") == "which is too large; correct it"
    for text in ("nan", "inf", "1_000", "0x10", "1,2,3", ""):
        assert number_fault(text) == "which is no number; correct it"
