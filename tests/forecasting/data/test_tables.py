"""Reading long tables: what the files may be, and one sentence for each that cannot be used."""

import gzip
import lzma
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.tables import read_frame

TEXT = "unique_id,ds,y\n007,2020-01-01,0.1\n007,2020-01-02,\nNA,2020-01-01,2\n"


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    content = text.encode()
    path.write_bytes({".gz": gzip.compress(content), ".xz": lzma.compress(content)}.get(path.suffix, content))
    return path


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data.csv.xz", "of.2020.csv", "DATA.CSV"])
def test_csv_is_read_plain_or_packed_with_ids_as_written(tmp_path: Path, name: str) -> None:
    frame = read_frame(write(tmp_path, TEXT, name))
    assert frame["unique_id"].tolist() == ["007", "007", "NA"]
    np.testing.assert_array_equal(frame["y"], [0.1, np.nan, 2.0])


def test_csv_numbers_are_the_very_decimals(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=200) * 1e-5
    text = "ds,y\n" + "".join(f"{day},{float(number)!r}\n" for day, number in enumerate(numbers))
    assert read_frame(write(tmp_path, text))["y"].tolist() == numbers.tolist()


def test_parquet_comes_back_as_it_was_written(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"unique_id": ["a", "b"], "ds": pd.to_datetime(["2020-01-01", "2020-01-02"]), "y": [0.1, 2]})
    frame.to_parquet(tmp_path / "data.parquet")
    pd.testing.assert_frame_equal(read_frame(tmp_path / "data.parquet"), frame)


def test_parquet_with_damaged_metadata_is_one_sentence(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"ds": [1], "y": [1.0]}).replace_schema_metadata({"pandas": '{"index_columns": ["x"]}'})
    parquet.write_table(table, tmp_path / "data.parquet")
    with pytest.raises(DataError, match=r"data\.parquet: cannot be read .*; check that the file is whole"):
        read_frame(tmp_path / "data.parquet")


def test_parquet_without_pyarrow_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "data.parquet").touch()
    with pytest.raises(ConfigError, match=r"pyarrow is not installed; run `pip install 'stochflow\[parquet\]'`$"):
        read_frame(tmp_path / "data.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", b"", r"data\.csv: cannot be read \(No columns to parse from file\); check"),
        ("data.csv", b"unique_id,ds,y\n", r"data\.csv: the table has no rows"),
        (
            "data.csv",
            b"unique_id,ds,z\na,1,2\n",
            r"data\.csv: there is no column 'y'; the columns are: unique_id, ds, z$",
        ),
        ("data.csv", b"ds,y\n1,2\n1,2,3,4\n", r"data\.csv: cannot be read .*line 3"),
        ("data.csv", b"ds,y\n\xff\xfe,2\n", r"data\.csv: cannot be read .*utf-8"),
        ("data.csv.gz", b"ds,y\n1,2\n", r"data\.csv\.gz: cannot be read"),
        ("data.csv.xz", b"ds,y\n1,2\n", r"data\.csv\.xz: cannot be read"),
        ("data.csv.gz", gzip.compress(b"ds,y\n1,2\n" * 50, mtime=0)[:-9], r"data\.csv\.gz: cannot be read"),
        ("data.parquet", b"no parquet", r"data\.parquet: cannot be read"),
        ("data.csv.zip", b"no zip", r"data\.csv\.zip: cannot be read \(File is not a zip file\)"),
        ("data.csv.tar", b"no tar" * 200, r"data\.csv\.tar: cannot be unpacked"),
        ("data.csv.zst", b"no zst", r"data\.csv\.zst: cannot be (read|unpacked)"),
        (
            "data.csv",
            b"unique_id,ds,y\na,1,2,\nb,1,2,\n",
            r"data\.csv: rows have more fields than the header's 3; name",
        ),
        ("data.csv", b"ds,y,y\n1,2,3\n", r"data\.csv: there are two columns 'y'; keep one of them"),
        ("data.csv", b"ds;y\n1;2,5\n2;3,5,1\n", r"data\.csv: the file seems to be separated by semicolons; write it"),
        ("data.csv", b"ds\ty\n1\t2\n", r"data\.csv: the file seems to be separated by tabs"),
        ("data.xlsx", b"", r"data\.xlsx: unknown kind of file; give \.csv"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_frame(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_frame(tmp_path / "nothing.csv")


def test_rows_of_the_future_need_no_target(tmp_path: Path) -> None:
    path = write(tmp_path, "unique_id,ds,price\na,2020-01-01,3\n")
    assert len(read_frame(path, Columns(future=("price",)), with_target=False)) == 1
    with pytest.raises(DataError, match="no column 'holiday'"):
        read_frame(path, Columns(future=("price", "holiday")), with_target=False)
