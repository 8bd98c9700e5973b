"""The fair CRPS against its definition."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from stochflow.forecasting.evaluation.crps import fair_crps


def test_it_equals_the_double_sum_over_all_pairs(generator: torch.Generator) -> None:
    members = torch.randn(3, 7, 4, dtype=torch.float64, generator=generator)
    truth = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    distance = (members - truth.unsqueeze(-2)).abs().mean(dim=-2)
    pairs = (members.unsqueeze(-2) - members.unsqueeze(-3)).abs().sum(dim=(-3, -2))
    torch.testing.assert_close(fair_crps(members, truth), distance - pairs / (2 * 7 * 6))


def test_two_members_around_the_truth_by_hand() -> None:
    members = torch.tensor([[0.0], [4.0]])
    # (1 + 3)/2 − ½·4
    assert fair_crps(members, torch.tensor([1.0])).item() == pytest.approx(0.0)
    assert fair_crps(members, torch.tensor([6.0])).item() == pytest.approx(4.0 - 2.0)


def test_small_ensembles_are_right_on_average(generator: torch.Generator) -> None:
    num = 40_000
    members = torch.randn(num, 3, 1, dtype=torch.float64, generator=generator)
    scores = fair_crps(members, torch.full((num, 1), 0.7, dtype=torch.float64))
    y = 0.7
    exact = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    assert float(scores.mean()) == pytest.approx(exact, abs=4 * float(scores.std()) / np.sqrt(num))


def test_the_order_of_the_members_does_not_matter(generator: torch.Generator) -> None:
    members = torch.randn(6, 2, generator=generator)
    truth = torch.zeros(2)
    torch.testing.assert_close(fair_crps(members.flip(0), truth), fair_crps(members, truth))
