"""Whole numbers in, the same whole numbers out."""

import numpy as np
import pytest

from stochflow.environments.sequences.packed import pack, unpack


def test_packing_loses_nothing() -> None:
    columns = [np.array([0, 1, 255, 256]), np.array([65_535, 65_536, 2**24 - 1, 0])]
    assert unpack(pack(columns), 2).tolist() == [column.tolist() for column in columns]


@pytest.mark.parametrize("number", [-1, 2**24])
def test_a_number_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        pack([np.array([0, number])])
