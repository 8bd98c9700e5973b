"""What a measured table says of its own rows and of others."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.sequences.lookup_task import Measurements
from stochflow.environments.sequences.task import Alphabet
from stochflow.surrogates.base import HeldOut, Prediction
from stochflow.surrogates.nearest import nearest_rows
from stochflow.surrogates.table_evidence import Scale, TableEvidence, explained_by_distance, noise_of_means, reach

DNA = Alphabet("ACGT")


def rows(num: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, (2 * num, length), generator=generator).unique(dim=0)
    return drawn[torch.randperm(len(drawn), generator=generator)[:num]]


def held_out(scores: Any, predicted: Any) -> HeldOut:
    scores, predicted = (torch.tensor(values, dtype=torch.float64) for values in (scores, predicted))
    return HeldOut(torch.arange(len(scores)), scores, Prediction(predicted, torch.ones_like(scores)))


@pytest.fixture(scope="module")
def evidence() -> TableEvidence:
    """Counts of A, from −1,000 down in steps of 100, in 60 of 1,024 sequences."""
    tokens = rows(60, 5)
    return TableEvidence("counts", DNA, Measurements(tokens, -1000.0 + 100.0 * adenines(tokens).unsqueeze(1)))


def adenines(tokens: Tensor) -> Tensor:
    return (tokens == 0).double().sum(dim=1)


def test_the_nearest_row_is_that_of_a_plain_search() -> None:
    measured, tokens = rows(70, 6), rows(40, 6, seed=1)
    found, distances = nearest_rows(tokens, measured, 4)
    plain = (tokens.unsqueeze(1) != measured).sum(dim=2)
    assert torch.equal(distances, plain.amin(dim=1))
    assert torch.equal(found, plain.argmin(dim=1))
    others = (measured.unsqueeze(1) != measured).sum(dim=2) + 99 * torch.eye(70, dtype=torch.int64)
    assert torch.equal(nearest_rows(measured, measured, 4, others=True)[1], others.amin(dim=1))


def test_predictions_are_on_the_scale_of_the_table(evidence: TableEvidence) -> None:
    unseen = rows(400, 5, seed=2)
    remarks = evidence.remarks(DNA.decode(unseen))
    truth = -1000.0 + 100.0 * adenines(unseen).numpy()
    assert np.corrcoef(remarks["predicted"], truth)[0, 1] > 0.95
    assert abs(remarks["predicted"].mean() - truth.mean()) < 20.0
    assert ((remarks["low"] < remarks["predicted"]) & (remarks["predicted"] < remarks["high"])).all()
    known = remarks[remarks["measured"]]
    assert len(known)
    assert (known["distance"] == 0).all()
    assert known["measured_score"].tolist() == truth[remarks["measured"]].tolist()
    assert remarks[~remarks["measured"]]["measured_score"].isna().all()


def test_facts_follow_from_the_held_out_rows(evidence: TableEvidence) -> None:
    frame, facts = evidence.held_out, evidence.facts
    errors = frame["measured"] - frame["predicted"]
    assert facts["surrogate_r2"] == pytest.approx(
        1.0 - (errors**2).sum() / (len(frame) * frame["measured"].var(ddof=0))
    )
    inside = (frame["low"] <= frame["measured"]) & (frame["measured"] <= frame["high"])
    assert facts["surrogate_coverage"] == pytest.approx(inside.mean())
    assert facts["surrogate_rank_correlation"] == pytest.approx(
        spearmanr(frame["measured"], frame["predicted"]).statistic
    )
    assert (facts["world"], facts["measured"]) == ("measured", 60)


def test_the_same_table_is_fitted_in_the_same_way(evidence: TableEvidence) -> None:
    again = TableEvidence("counts", DNA, Measurements(evidence.tokens, evidence.scores.unsqueeze(1)))
    unseen = DNA.decode(rows(20, 5, seed=3))
    assert again.remarks(unseen).equals(evidence.remarks(unseen))


def test_noise_of_replicates_is_pooled_and_that_of_a_column_divided() -> None:
    tokens = rows(3, 4)
    scores = torch.tensor([[1.0, 3.0], [2.0, 2.0], [0.0, 4.0]]).double()
    assert noise_of_means(Measurements(tokens, scores[:, :1])) is None
    # variances of the pairs are 2, 0 and 8, the mean of two measurements has half of their mean
    torch.testing.assert_close(noise_of_means(Measurements(tokens, scores)), torch.full((3,), 5.0 / 3.0).double())
    column = torch.tensor([1.0, 2.0, 3.0]).double()
    torch.testing.assert_close(noise_of_means(Measurements(tokens, scores, column)), column / 2.0)


def test_reach_is_the_largest_distance_that_is_predicted() -> None:
    scores = [0.0, 1.0] * 15
    predicted = [0.0, 1.0] * 10 + [1.0, 0.0] * 5
    distances = torch.tensor([1] * 10 + [2] * 10 + [3] * 10)
    judged = held_out(scores, predicted)
    assert explained_by_distance(judged, distances) == {1: 1.0, 2: 1.0, 3: -3.0}
    assert reach(judged, distances) == 2
    assert reach(held_out(scores, [1.0, 0.0] * 15), distances) == 0
    assert reach(judged, torch.arange(30)) is None


@pytest.mark.parametrize("scores", [[1.0, 1.0], [-1.7e308, 1.7e308]])
def test_scores_without_a_range_are_refused(scores: list[float]) -> None:
    with pytest.raises(DataError, match=r"the scores of mine run from .*; check the score column"):
        Scale.of(torch.tensor(scores).double(), "mine")


@pytest.mark.parametrize("num", [2, 3, 9])
def test_few_rows_are_predicted_too(num: int) -> None:
    tokens = rows(num, 3)
    evidence = TableEvidence("few", DNA, Measurements(tokens, torch.arange(num).double().unsqueeze(1)))
    assert math.isfinite(evidence.remarks(["ACG"])["predicted"][0])
    assert evidence.facts["measured"] == num
