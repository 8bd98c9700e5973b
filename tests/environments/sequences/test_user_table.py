"""Tables of a user's own: what is read, what is refused, and with which words."""

import itertools
import os
from pathlib import Path

import pandas as pd
import pytest
import torch

from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.sequences import user_table as tables
from stochflow.environments.sequences.user_table import Table, TableColumns, read_user_table

GOOD = "sequence,score\nACG,0.5\nTTT,1.0\n"


def read(tmp_path: Path, content: str | bytes, alphabet: str = "auto", **columns: object) -> Table:
    path = tmp_path / "own.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_user_table(path, TableColumns(**columns), alphabet)  # type: ignore[arg-type]


def test_a_score_is_looked_up_by_sequence_and_what_is_missing_scores_zero(tmp_path: Path) -> None:
    words = ["".join(letters) for letters in itertools.product("ACGT", repeat=3)]
    kept = {word: number + 1.0 for number, word in enumerate(words) if number % 3}
    rows = "".join(f"{word},{score}\n" for word, score in reversed(kept.items()))
    task = read(tmp_path, "sequence,score\n" + rows).task("own", "none", "")
    assert task.num_measured == len(kept)
    assert task.all_scores.tolist() == [kept.get(word, 0.0) for word in words]
    assert task.is_measured(task.all_sequences).tolist() == [word in kept for word in words]


def test_a_space_too_large_to_enumerate_is_looked_up_as_well(tmp_path: Path) -> None:
    word, other = "ACDEFGHIKLMNPQRSTVWY" * 5, "Y" * 100
    task = read(tmp_path, f"sequence,score\n{word},2\n{other},3\n").task("own", "none", "")
    assert not task.enumerable
    assert task.score(task.alphabet.encode([other, word, "A" * 100])).tolist() == [3.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("sequences", "letters"),
    [(("AC", "GT"), "ACGT"), (("AC", "GU"), "ACGU"), (("MK", "WY"), "ACDEFGHIKLMNPQRSTVWY"), (("AC", "AA"), "ACGT")],
)
def test_the_alphabet_is_the_first_that_fits(tmp_path: Path, sequences: tuple[str, str], letters: str) -> None:
    first, second = sequences
    assert read(tmp_path, f"sequence,score\n{first},1\n{second},2\n").letters == letters


def test_an_alphabet_can_be_named_or_spelt_out(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, "protein").letters == "ACDEFGHIKLMNPQRSTVWY"
    assert read(tmp_path, GOOD.replace("T", "x"), "xACG").letters == "xACG"


def test_other_columns_other_separators_and_marks_of_excel_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("\ufeffid\tseq\tfit\n1\t ACG \t 0.5\n2\tTTT\t1e0\n", encoding="utf-8")
    table = read_user_table(path, TableColumns("seq", ("fit",)), "dna")
    assert table.sha256 == read(tmp_path, GOOD).sha256


def test_columns_that_do_not_count_may_share_a_name(tmp_path: Path) -> None:
    assert read(tmp_path, "note,sequence,score,note\nx,AC,1,y\nx,GT,2,y\n").scores.tolist() == [[1.0], [2.0]]


def test_several_score_columns_are_replicates(tmp_path: Path) -> None:
    table = read(tmp_path, "sequence,a,b,v\nAC,1,3,0.25\nGT,0,0,0\n", scores=("a", "b"), variance="v")
    task = table.task("own", "none", "")
    tokens = task.alphabet.encode(["AC", "GT", "AA"])
    assert task.score(tokens).tolist() == [2.0, 0.0, 0.0]
    replicates, deviations = task.replicates(tokens), task.deviations(tokens)
    assert replicates is not None
    assert deviations is not None
    assert replicates.tolist() == [[1.0, 3.0], [0.0, 0.0], [0.0, 0.0]]
    assert deviations.tolist() == [0.5, 0.0, 0.0]


def test_scaling_to_the_unit_interval_takes_negative_scores(tmp_path: Path) -> None:
    table = read(tmp_path, "sequence,score,v\nA,-3,4\nC,1,4\nG,-1,4\n", variance="v")
    task = table.task("own", "unit", "")
    assert task.all_scores.tolist() == [0.0, 1.0, 0.5, 0.0]
    deviations = task.deviations(task.all_sequences)
    assert deviations is not None
    assert deviations.tolist() == [0.5, 0.5, 0.5, 0.0]


def test_the_copy_says_the_same_as_the_original(tmp_path: Path) -> None:
    content = "x,a,b\nAC,0.1,0.30000000000000004\nGT,1e-17,12345.678901234567\n"
    table = read(tmp_path, content, sequence="x", scores=("a", "b"))
    copy = read(tmp_path, table.text, sequence="sequence", scores=table.columns.scores)
    assert copy.sha256 == table.sha256
    assert torch.equal(torch.from_numpy(copy.scores), torch.from_numpy(table.scores))


BAD = {
    "empty": (b"", "is empty"),
    "header only": (b"sequence,score\n", "has no row below its header"),
    "one row": (b"sequence,score\nACG,1\n", "has one row only"),
    "no score column": (b"sequence,fit\nACG,1\nTTT,2\n", "has no column 'score', only sequence, fit; name yours"),
    "a column twice": (b"sequence,score,score\nAC,1,5\nGT,2,6\n", "has several columns 'score'; rename all but one"),
    "duplicates": (b"sequence,score\nAC,1\nGT,2\nAC,3\n", "lists 1 sequences again, the first of them AC"),
    "mixed lengths": (b"sequence,score\nAC,1\nGTT,2\n", "has sequences of 2 to 3 letters.*give --variable-length"),
    "no sequence": (b"sequence,score\nAC,1\n,2\n", "has no sequence in line 3"),
    "odd letters": (b"sequence,score\nAC,1\nA?,2\n", r"letters of no known alphabet \(\?\)"),
    "nan": (b"sequence,score\nAC,1\nGT,nan\n", "no finite number, the first 'nan' in line 3"),
    "nothing": (b"sequence,score\nAC,\nGT,2\n", "no finite number, the first '' in line 2"),
    "inf": (b"sequence,score\nAC,1\nGT,inf\n", "no finite number, the first 'inf' in line 3"),
    "words": (b"sequence,score\nAC,high\nGT,low\n", "has 2 entries in the column 'score' that are no finite number"),
    "binary": (bytes(range(256)) * 20, "is not a text file"),
    "latin": ("sequence,score\nAC,1\nGé,2\n".encode("latin-1"), "is not UTF-8 text"),
    "utf-16": ("sequence,score\nAC,1\nGT,2\n".encode("utf-16"), "is not a text file"),
    "ragged": (b"sequence,score\nAC,1\nGT,2,3,4\n", "cannot be read as a table"),
    "decimal commas": (b"sequence,score\nAC,0,5\nGT,0,7\n", "cannot be read as a table"),
    "open quote": (b'sequence,score\n"AC,1\nGT,2\n', "cannot be read as a table"),
    "too long": (b"sequence,score\n" + b"A" * 1001 + b",1\n" + b"C" * 1001 + b",1\n", "sequences of 1,001 letters"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_refused_with_one_sentence(tmp_path: Path, case: str) -> None:
    content, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_letters_outside_a_named_alphabet_are_named_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"outside the alphabet ACGT \(N, U, first in line 3\)"):
        read(tmp_path, "sequence,score\nAC,1\nUN,2\n", "dna")


@pytest.mark.parametrize(
    ("scale", "scores", "message"),
    [
        ("none", "1,-2", r"negative scores \(-2 for GT\).*table.scale=unit"),
        ("none", "0,0", "no score of own is above 0"),
        ("unit", "3,3", "all scores of own are alike"),
    ],
)
def test_scores_that_make_no_reward_are_refused(tmp_path: Path, scale: str, scores: str, message: str) -> None:
    first, second = scores.split(",")
    table = read(tmp_path, f"sequence,score\nAC,{first}\nGT,{second}\n")
    with pytest.raises(DataError, match=message):
        table.task("own", scale, "")


def test_a_negative_variance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="negative variance in the column 'v'"):
        read(tmp_path, "sequence,score,v\nAC,1,-1\nGT,2,1\n", variance="v")


@pytest.mark.parametrize(
    ("alphabet", "sentence"),
    [("", "has 0 letters"), ("A", "has 1 letters"), ("AAC", "the letter 'A' twice"), ("A\nC", "cannot be seen")],
)
def test_an_alphabet_that_is_none_is_refused(tmp_path: Path, alphabet: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, GOOD, alphabet)


def test_a_column_with_two_roles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must differ"):
        read(tmp_path, GOOD, scores=("score", "score"))


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.write(GOOD.encode())
        os.truncate(file.fileno(), 10 * 2**30)  # sparse: it takes no space
    monkeypatch.setattr(pd, "read_csv", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(DataError, match="has 10,240 MB, and a table may have 256 MB and 2,000,000 rows"):
        read_user_table(path, TableColumns(), "auto")


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 1)
    with pytest.raises(DataError, match="has more than 1 rows"):
        read(tmp_path, GOOD)


def test_a_folder_a_pipe_and_nothing_are_no_tables(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for name, message in {".": "is not a file", "pipe.csv": "is not a file", "none.csv": "does not exist"}.items():
        with pytest.raises(DataError, match=message):
            read_user_table(tmp_path / name, TableColumns(), "auto")
