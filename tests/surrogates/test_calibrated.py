"""A surrogate whose deviations depend on what it predicts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.surrogates.base import HeldOut
from stochflow.surrogates.calibrated import Calibrated, local_factors
from stochflow.surrogates.kmer_ridge import KmerRidge

NUM_TOKENS, LENGTH = 4, 6


def floor_and_signal(seed: int, num: int) -> tuple[Tensor, Tensor]:
    """Scores that are nearly zero unless the first letter is a 0, and then noisy."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(NUM_TOKENS, (num, LENGTH), generator=generator)
    noise = torch.randn(num, generator=generator, dtype=torch.float64)
    return tokens, torch.where(tokens[:, 0] == 0, 10.0 + 2.0 * noise, 1.0 + 0.05 * noise).clamp(min=0.0)


def test_intervals_of_the_best_and_of_the_rest_hold_what_they_promise() -> None:
    tokens, scores = floor_and_signal(0, 400)
    plain, calibrated = KmerRidge(NUM_TOKENS, LENGTH), Calibrated(KmerRidge(NUM_TOKENS, LENGTH))
    plain.fit(tokens, scores)
    calibrated.fit(tokens, scores)
    others, truth = floor_and_signal(1, 4000)
    active = others[:, 0] == 0
    for rows in (active, ~active):
        found = HeldOut(rows.nonzero().squeeze(1), truth[rows], calibrated.predict(others[rows]))
        assert found.coverage() == pytest.approx(0.8, abs=0.1)
    assert HeldOut(torch.arange(4000), truth, plain.predict(others)).coverage() > 0.95
    torch.testing.assert_close(calibrated.predict(others).mean, plain.predict(others).mean, atol=0, rtol=0)


def test_factors_are_those_of_sorted_neighbours() -> None:
    errors = torch.rand(37, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = local_factors(errors, 10)
    for row in range(37):
        begin = min(max(row - 5, 0), 27)
        ninth = sorted(errors[begin : begin + 10].tolist())[8]  # ⌈0.8·11⌉ = 9
        assert float(found[row]) == pytest.approx(ninth / 1.2815515655446004)


@given(st.integers(1, 60), st.integers(1, 80))
def test_there_is_a_positive_factor_for_every_row(num: int, neighbours: int) -> None:
    found = local_factors(torch.linspace(0, 1, num, dtype=torch.float64), neighbours)
    assert found.shape == (num,)
    assert bool((found > 0).all())


def test_nothing_is_changed_before_the_first_fit() -> None:
    prediction = Calibrated(KmerRidge(NUM_TOKENS, LENGTH)).predict(torch.zeros(2, LENGTH, dtype=torch.int64))
    assert (prediction.mean.tolist(), prediction.deviation.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_its_state_restores_the_same_predictions() -> None:
    tokens, scores = floor_and_signal(0, 200)
    first, second = Calibrated(KmerRidge(NUM_TOKENS, LENGTH)), Calibrated(KmerRidge(NUM_TOKENS, LENGTH))
    first.fit(tokens, scores)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second.predict(tokens).deviation, first.predict(tokens).deviation, atol=0, rtol=0)
