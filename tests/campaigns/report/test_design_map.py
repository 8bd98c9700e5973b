"""The map keeps distances as well as two axes can, and is thinned evenly."""

import numpy as np
import pandas as pd
import pytest
import torch

from stochflow.campaigns.report import design_map as module
from stochflow.campaigns.report.design_map import coordinates, design_map, distance_bars
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")


def test_coordinates_are_the_principal_components_of_one_hot_letters(generator: torch.Generator) -> None:
    tokens = torch.randint(4, (30, 6), generator=generator)
    letters = torch.nn.functional.one_hot(tokens, 4).flatten(1).double().numpy()
    left, sizes, _ = np.linalg.svd(letters - letters.mean(axis=0), full_matrices=False)
    points, share = coordinates(tokens, 4)
    np.testing.assert_allclose(np.abs(points), np.abs(left * sizes)[:, :2], atol=1e-9)
    assert share == pytest.approx((sizes[:2] ** 2).sum() / (sizes**2).sum())


@pytest.mark.parametrize("rows", [["ACGT"], ["ACGT", "ACGT"], ["ACGT", "ACGG"]])
def test_a_few_points_have_a_place(rows: list[str]) -> None:
    points, share = coordinates(DNA.encode(rows), 4)
    assert np.isfinite(points).all()
    assert share == pytest.approx(1.0)
    assert np.linalg.norm(points[0] - points[-1]) == pytest.approx(2**0.5 if rows[-1] == "ACGG" else 0.0)


def test_many_points_are_thinned_and_the_best_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 20)
    designs = DNA.decode(torch.cartesian_prod(*[torch.arange(4)] * 3))
    scores = np.arange(50.0) == 7
    known = pd.DataFrame({"measured": designs[:50], "score": scores, "worth": scores}).astype(
        {"score": float, "worth": float}
    )
    figure = design_map(known, designs[50:], DNA)
    measured, best, pending = figure.traces
    assert len(pending["x"]) == 10
    assert len(measured["x"]) in (10, 11)
    assert best["text"] == [f"{designs[7]}, 1"]
    assert "are drawn, evenly spaced" in figure.text
    assert design_map(known, designs[50:], DNA) == figure


def test_distances_are_counted_in_letters() -> None:
    (bars,) = distance_bars(["AAAA", "AAAC", "TTTT"], ["AAAA", "CCAA"], DNA).traces
    assert dict(zip(bars["x"], bars["y"], strict=True)) == {0: 1, 1: 1, 4: 1}
