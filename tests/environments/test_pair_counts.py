"""Tables of pairs: what is counted, what is left out, and what is refused."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import ConfigError, DataError
from stochflow.environments import pair_counts
from stochflow.environments.pair_counts import PairColumns, PairCounts, count_pairs
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")
GOOD = "intended,observed\nACG,ACG\nACG,AAG\n"


def counts_of(
    tmp_path: Path, text: str | bytes, columns: PairColumns | None = None, name: str = "pairs.csv"
) -> PairCounts:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return count_pairs(path, columns or PairColumns(), DNA)


def test_letters_are_counted_by_position(tmp_path: Path) -> None:
    expected = np.zeros((3, 4, 4), dtype=np.int64)
    expected[0, 0, 0], expected[1, 1, 1], expected[1, 1, 0], expected[2, 2, 2] = 2, 1, 1, 2
    found = counts_of(tmp_path, GOOD)
    np.testing.assert_array_equal(found.by_position.total, expected)
    assert (found.num_pairs, found.num_unaligned, found.lengths) == (2, 0, {3})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("intended,observed\nacg,Acg\nACG , aag\n", "pairs.csv"),
        ("intended\tobserved\nACG\tACG\nACG\tAAG\n", "pairs.tsv"),
        ("\ufeffplate,observed,intended\n7,ACG,ACG\n7,AAG,ACG\n\n", "pairs.csv"),
        ("intended,observed,count\nACG,ACG,1\nACG,AAG,1.0\nTTT,AAA,0\n", "pairs.csv"),
    ],
)
def test_the_same_pairs_in_other_words(text: str, name: str, tmp_path: Path) -> None:
    found = counts_of(tmp_path, text, name=name)
    np.testing.assert_array_equal(found.by_position.total, counts_of(tmp_path, GOOD).by_position.total)


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    text = "design,read,n\nAC,AC,3\nAC,AA,2\n"
    found = counts_of(tmp_path, text, PairColumns("design", "read", "n"))
    assert found.by_position.total.sum(axis=0)[:2, :2].tolist() == [[5, 0], [2, 3]]
    assert counts_of(tmp_path, text, PairColumns("design", "read")).num_pairs == 2


def test_every_fifth_pair_is_held_out(tmp_path: Path) -> None:
    rows = ["A,A"] * 4 + ["A,C"] + ["A,A"] * 4 + ["A,G"]
    found = counts_of(tmp_path, "intended,observed\n" + "\n".join(rows) + "\n")
    assert found.by_position.held_out[0, 0].tolist() == [0, 1, 1, 0]
    assert found.by_position.total[0, 0].tolist() == [8, 1, 1, 0]


def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        pair = ["".join(draw.choice(list("ACGT"), draw.integers(1, 4))) for _ in range(2)]
        rows.append(f"{pair[0]},{pair[1]},{draw.integers(0, 7)}")
    text = "intended,observed,count\n" + "\n".join(rows) + "\n"
    whole = counts_of(tmp_path, text)
    monkeypatch.setattr(pair_counts, "_CHUNK_ROWS", 7)
    for found in (counts_of(tmp_path, text), count_pairs(pd.read_csv(tmp_path / "pairs.csv"), PairColumns(), DNA)):
        np.testing.assert_array_equal(found.by_position.total, whole.by_position.total)
        np.testing.assert_array_equal(found.by_position.held_out, whole.by_position.held_out)
        assert (found.num_pairs, found.num_unaligned) == (whole.num_pairs, whole.num_unaligned)
    with pytest.raises(DataError, match="N, first in line 202"):
        counts_of(tmp_path, text + "A,N,1\n")


def test_pairs_of_two_lengths_are_aligned(tmp_path: Path) -> None:
    found = counts_of(tmp_path, "intended,observed,count\nACG,AC,7\nACG,ACG,1\nACG,AACG,2\nACG,ACTG,3\n")
    assert (found.num_pairs, found.num_unaligned, found.num_letters) == (13, 0, 39)
    assert found.edits.tolist() == [7, 2, 3]  # deletions, duplications, other insertions
    assert np.diagonal(found.by_position.total.sum(axis=0)).tolist() == [13, 13, 6, 0]
    assert found.by_position.total[:, 2, 2].tolist() == [0, 0, 6]  # by intended position


def test_pairs_with_too_many_edits_are_left_out(tmp_path: Path) -> None:
    found = counts_of(tmp_path, "intended,observed,count\nACGTAC,ACTAC,7\nACGTAC,TTGGT,2\nACGTAC,TTTTTT,1\n")
    assert (found.num_pairs, found.num_unaligned) == (7, 3)
    assert found.by_position.total.sum() == 7 * 5


def test_letters_are_counted_by_the_letter_before(tmp_path: Path) -> None:
    found = counts_of(tmp_path, "intended,observed\nACG,AAG\nAAA,AAC\n")
    expected = np.zeros((5, 4, 4), dtype=np.int64)
    expected[4, 0, 0] = 2  # the first letters
    expected[0, 1, 0] = expected[1, 2, 2] = 1  # C after A, and G after the intended C
    expected[0, 0, 0] = expected[0, 0, 1] = 1
    np.testing.assert_array_equal(found.by_context.total, expected)
    np.testing.assert_array_equal(found.by_context.total.sum(axis=0), found.by_position.total.sum(axis=0))


def test_letters_of_any_script_and_either_case() -> None:
    frame = pd.DataFrame({"intended": ["αΑ", "ΑΑ"], "observed": ["Αβ", "ΒΑ"]})
    found = count_pairs(frame, PairColumns(), Alphabet("αβ"))
    assert found.by_position.total.sum(axis=0).tolist() == [[2, 2], [0, 0]]
    both = count_pairs(pd.DataFrame({"intended": ["aA"], "observed": ["aa"]}), PairColumns(), Alphabet("Aa"))
    assert both.by_position.total.sum(axis=0).tolist() == [[0, 1], [0, 1]]


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "is empty; give a table with a header and rows"),
    "a header alone": ("intended,observed\n", "has no row below its header"),
    "no column": ("design,observed\nA,A\n", "no column 'intended', only design, observed; name yours with --intended"),
    "a column twice": ("intended,intended,observed\nA,A,A\n", "several columns 'intended'"),
    "counts twice": ("intended,observed,count,count\nA,A,1,1\n", "several columns 'count'"),
    "no value": ("intended,observed\nA,A\nA,\n", "no value in the column 'observed' in line 3; fill it in or remove"),
    "spaces": ("intended,observed\n  ,A\n", "no value in the column 'intended' in line 2"),
    "letters": ("intended,observed\nA,A\nA,N\n", r"outside the alphabet ACGT in the column 'observed' \(N, first in l"),
    "two alphabets": ("intended,observed\nAT,AU\n", r"'observed' \(U, first in line 2\).*give another --alphabet"),
    "one of two lengths": ("intended,observed\nA,A\nAA,N\n", r"\(N, first in line 3\)"),
    "no letter": ("intended,observed\nA,A\nA?,AÄ\n", r"'intended' \(\?, first in line 3\)"),
    "negative": ("intended,observed,count\nA,A,1\nA,A,-1\n", "the count '-1' in line 3; counts .* are whole numbers"),
    "half": ("intended,observed,count\nA,A,1.5\n", "the count '1.5' in line 2"),
    "words": ("intended,observed,count\nA,A,many\n", "the count 'many' in line 2"),
    "nothing": ("intended,observed,count\nA,A,\n", "the count '' in line 2"),
    "huge": ("intended,observed,count\nA,A,10000000000000\n", "the count '10000000000000' in line 2"),
    "sums": ("intended,observed,count\n" + "A,A,999999999999\n" * 2, "add up to more than 1,000,000,000,000 pairs"),
    "zeros": ("intended,observed,count\nA,A,0\n", "all counts of .* are 0"),
    "strangers": ("intended,observed\nACACAC,GG\nA,CGG\n", "all 2 pairs of .* differ in more than a third"),
    "too long": ("intended,observed\n" + "A" * 1001 + ",A\n", "a string of 1,001 letters in line 2; 1,000 is the most"),
    "ragged": ("intended,observed\nA,A\nA,A,A\n", "cannot be read as a table"),
    "binary": (bytes(range(256)), "is not a text file"),
    "latin": ("intended,observed\nA,é\n".encode("latin-1"), "is not UTF-8 text"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_refused_with_one_sentence(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        counts_of(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_a_column_with_two_roles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must differ"):
        counts_of(tmp_path, GOOD, PairColumns("intended", "intended"))


def test_a_refused_table_leaves_no_warning_filter_behind(tmp_path: Path) -> None:
    before = list(warnings.filters)
    with pytest.raises(DataError) as caught:  # which keeps the frames of the reader alive
        counts_of(tmp_path, "intended,observed\nA,N\n")
    assert list(warnings.filters) == before
    assert caught.value


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv does not exist; check the path"):
        count_pairs(tmp_path / "none.csv", PairColumns(), DNA)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"intended": ["A"]}), "the frame has no column 'observed', only intended"),
        (pd.DataFrame({"intended": [], "observed": []}), "the frame has no row"),
        (pd.DataFrame({"intended": ["A", None], "observed": ["A", "A"]}), "no value in the column 'intended' in row 1"),
        (pd.DataFrame({"intended": ["A"], "observed": ["A"], "count": [float("nan")]}), "the count '' in row 0"),
        (pd.DataFrame([["A", "A", "A"]], columns=["intended", "intended", "observed"]), "must differ"),
        (pd.DataFrame({"intended": ["A"], "observed": [5]}), r"\(5, first in row 0\)"),
    ],
)
def test_a_bad_frame_is_refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        count_pairs(frame, PairColumns(), DNA)
