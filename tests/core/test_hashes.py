"""Hashes of designs: the same on every machine, whatever holds the tokens."""

import numpy as np
import pytest

from stochflow.core.hashes import row_hashes, text_hashes


def test_the_hash_of_a_row_does_not_depend_on_the_others_or_on_the_type() -> None:
    rows = np.array([[0, 1, 2], [3, 1, 2], [0, 1, 3]])
    assert row_hashes(rows)[::-1].tolist() == row_hashes(rows[::-1].astype(np.uint8)).tolist()
    assert len(set(row_hashes(rows).tolist())) == 3


# written down once: another version of pandas that orders ties otherwise shall be noticed
def test_hashes_stay_what_they_are() -> None:
    assert row_hashes(np.array([[0, 1, 2]])).tolist() == [7_551_614_836_109_816_198]
    assert text_hashes(["ACGT"]).tolist() == [6_256_059_276_843_717_596]


@pytest.mark.parametrize("num", [0, 1])
def test_few_rows_have_few_hashes(num: int) -> None:
    assert len(row_hashes(np.zeros((num, 4), dtype=np.int64))) == num
    assert len(text_hashes(["A"] * num)) == num
