"""Bins: values to indices and back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stochflow.forecasting.model.bins import REACH, TAIL, Bins, place_bins

PLACED = st.builds(
    place_bins,
    st.lists(st.floats(-1e4, 1e4), max_size=60).map(np.array),
    st.integers(4, 100).map(lambda half: 2 * half + 1),
)


def edges_of(bins: Bins, index: int) -> tuple[float, float]:
    padded = [-np.inf, *bins.edges.tolist(), np.inf]
    return padded[index], padded[index + 1]


@given(PLACED)
def test_every_centre_encodes_to_its_own_bin(bins: Bins) -> None:
    index = torch.arange(bins.num_bins)
    assert torch.equal(bins.encode(bins.centres), index)


@given(PLACED)
def test_edges_increase_and_mirror_each_other(bins: Bins) -> None:
    assert (bins.edges.diff() > 0).all()
    torch.testing.assert_close(bins.edges, -bins.edges.flip(0))


@given(PLACED, st.floats(0, 1, exclude_max=True))
def test_a_value_drawn_from_a_bin_lies_inside_it(bins: Bins, uniform: float) -> None:
    index = torch.arange(bins.num_bins)
    drawn = bins.sample(index, torch.full((bins.num_bins,), uniform, dtype=torch.float64))
    for number, value in enumerate(drawn.tolist()):
        low, high = edges_of(bins, number)
        assert low <= value <= high


def test_values_are_uniform_inside_a_bin() -> None:
    bins = place_bins(np.linspace(-3, 3, 50), 9)
    low, high = edges_of(bins, 4)
    drawn = bins.sample(torch.full((5,), 4), torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64))
    torch.testing.assert_close(drawn, torch.linspace(low, high, 5, dtype=torch.float64))
    assert drawn[2] == pytest.approx(float(bins.centres[4]))


def test_open_bins_hold_exponential_tails_with_the_stated_mean_excess() -> None:
    bins = place_bins(np.append(np.linspace(-1, 1, 50), 6.0), 17)
    assert float(bins.edges[-1]) == pytest.approx(REACH * 6)
    assert bins.tail == pytest.approx(TAIL * REACH * 6)
    uniform = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    for index, edge, sign in ((0, bins.edges[0], -1), (bins.num_bins - 1, bins.edges[-1], 1)):
        excess = sign * (bins.sample(torch.full((100_000,), index), uniform) - edge)
        assert (excess >= 0).all()
        assert float(excess.mean()) == pytest.approx(bins.tail, rel=1e-3)
        assert float(excess.median()) == pytest.approx(bins.tail * np.log(2), rel=1e-3)
        assert float(excess.max()) > 10 * bins.tail  # there is no last value


def test_bins_are_narrow_where_the_values_lie() -> None:
    bins = place_bins(np.append(np.linspace(-1, 1, 100), 40.0), 33)
    widths = bins.edges.diff()
    assert widths[len(widths) // 2] < 0.1 * widths[0]
    assert (widths[len(widths) // 2 :].diff() > 0).all()


def test_missing_values_place_nothing() -> None:
    values = np.array([0.5, np.nan, -2.0, 1.0])
    assert torch.equal(place_bins(values, 9).edges, place_bins(values[np.isfinite(values)], 9).edges)
    assert float(place_bins(np.array([np.nan]), 9).edges[-1]) == pytest.approx(4.0)


def test_values_that_are_all_alike_still_get_bins() -> None:
    bins = place_bins(np.zeros(10), 9)
    assert (bins.edges.diff() > 0).all()
    assert bins.encode(torch.zeros(1, dtype=torch.float64)).item() in (3, 4)
