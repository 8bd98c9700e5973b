"""Ridge regression as it should be, an honest spread, and expectations under it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.surrogates.kmer_ridge import RIDGE, KmerRidge

NUM_TOKENS, LENGTH = 4, 8
CUBIC = Reward(beta=3.0, floor=1e-6, ramp=0.0)


def random_tokens(num_rows: int, seed: int, length: int = LENGTH) -> Tensor:
    return torch.randint(NUM_TOKENS, (num_rows, length), generator=torch.Generator().manual_seed(seed))


def additive_scores(tokens: Tensor) -> Tensor:
    """A landscape that sums position-specific letters and neighbouring pairs, roughly in [0, 1]."""
    generator = torch.Generator().manual_seed(42)
    letters = torch.rand(LENGTH, NUM_TOKENS, dtype=torch.float64, generator=generator)
    pairs = torch.rand(LENGTH - 1, NUM_TOKENS**2, dtype=torch.float64, generator=generator)
    codes = tokens[:, :-1] * NUM_TOKENS + tokens[:, 1:]
    positions = torch.arange(LENGTH)
    return (letters[positions, tokens].mean(dim=-1) + pairs[positions[:-1], codes].mean(dim=-1)) / 2


def error(model: KmerRidge, tokens: Tensor) -> float:
    return (model.predict_mean(tokens) - additive_scores(tokens)).square().mean().sqrt().item()


def test_features_are_positional_when_short_and_shared_when_long() -> None:
    model = KmerRidge(2, 5)
    # positions 5, 4, 3 for k = 1, 2, 3 and one table each for k = 4, 5
    num_weights = 5 * 2 + 4 * 4 + 3 * 8 + 16 + 32
    indices, total = model.features(torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]))
    assert total == num_weights == len(model.weights)
    assert indices.shape == (2, 5 + 4 + 3 + 2 + 1)
    # a run of equal letters: the short k-mers differ by place, the two 4-mers are one and the same
    assert [len(row.unique()) for row in indices] == [5 + 4 + 3 + 1 + 1] * 2
    assert not set(indices[0].tolist()) & set(indices[1].tolist())


def test_a_model_that_saw_nothing_predicts_nothing() -> None:
    model = KmerRidge(NUM_TOKENS, LENGTH)
    assert torch.equal(model.predict_mean(random_tokens(5, 0)), torch.zeros(5, dtype=torch.float64))


def test_the_fit_solves_the_ridge_equations() -> None:
    tokens = random_tokens(60, 0, length=3)
    scores = torch.rand(60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = KmerRidge(NUM_TOKENS, 3)
    model.fit(tokens, scores)
    indices, num_weights = model.features(tokens)
    design = torch.zeros(60, num_weights, dtype=torch.float64).scatter_add_(
        1, indices, torch.ones(indices.shape).double()
    )
    normal = design.T @ design + RIDGE * torch.eye(num_weights, dtype=torch.float64)
    exact = torch.linalg.solve(normal, design.T @ (scores - scores.mean()))
    residual = normal @ (model.weights - exact)
    assert residual.norm().item() < 2e-3 * (design.T @ (scores - scores.mean())).norm().item()
    torch.testing.assert_close(model.predict_mean(tokens), design @ exact + scores.mean(), atol=1e-3, rtol=0)


def test_a_constant_landscape_is_predicted_exactly() -> None:
    tokens = random_tokens(50, 0)
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens, torch.full((50,), 0.3, dtype=torch.float64))
    torch.testing.assert_close(model.predict_mean(random_tokens(20, 1)), torch.full((20,), 0.3, dtype=torch.float64))
    assert model.spread == pytest.approx(0.0, abs=1e-12)


def test_predictions_improve_with_data_on_an_additive_landscape() -> None:
    unseen = random_tokens(2000, 99)
    errors = []
    for num_rows in (50, 500, 5000):
        tokens = random_tokens(num_rows, 7)
        model = KmerRidge(NUM_TOKENS, LENGTH)
        model.fit(tokens, additive_scores(tokens))
        errors.append(error(model, unseen))
    spread = additive_scores(unseen).std().item()
    assert spread > errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2]
    assert errors[2] < 0.1 * spread


def test_refitting_on_more_rows_is_as_good_as_fitting_afresh() -> None:
    tokens, unseen = random_tokens(1000, 3), random_tokens(500, 4)
    grown, fresh = KmerRidge(NUM_TOKENS, LENGTH), KmerRidge(NUM_TOKENS, LENGTH)
    for num_rows in (100, 400, 1000):
        grown.fit(tokens[:num_rows], additive_scores(tokens[:num_rows]))
    fresh.fit(tokens, additive_scores(tokens))
    torch.testing.assert_close(grown.predict_mean(unseen), fresh.predict_mean(unseen), atol=2e-3, rtol=0)


def test_the_first_spread_is_that_of_the_scores() -> None:
    tokens = random_tokens(200, 0)
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens, additive_scores(tokens))
    assert model.spread == pytest.approx(additive_scores(tokens).std(correction=0).item())


def test_the_spread_is_measured_on_scores_that_arrived_after_the_fit() -> None:
    tokens = random_tokens(300, 0)
    scores = additive_scores(tokens)
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens[:200], scores[:200])
    before = error(model, tokens[200:])
    fitted = error(model, tokens[:200])
    model.fit(tokens, scores)
    assert model.spread == pytest.approx(before)
    assert model.spread > 1.2 * fitted  # what was fitted looks better than it is
    # nothing new, nothing to measure
    model.fit(tokens, scores)
    assert model.spread == pytest.approx(before)


def constant_model(prediction: float, spread: float) -> KmerRidge:
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.mean, model.spread = prediction, spread
    return model


def test_a_certain_prediction_has_the_log_reward_of_its_mean() -> None:
    tokens = random_tokens(300, 0)
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens, additive_scores(tokens))
    model.spread = 0.0
    torch.testing.assert_close(
        model.expected_log_reward(tokens, CUBIC, None), CUBIC.log_reward(model.predict_mean(tokens)), atol=1e-12, rtol=0
    )


@given(st.floats(0.3, 1.0), st.floats(0.01, 0.075))
def test_uncertainty_lowers_the_expected_log_reward(prediction: float, spread: float) -> None:
    # Jensen: the logarithm is concave where no node of the rule (at most 3.75 spreads away) reaches the floor
    (expected,) = constant_model(prediction, spread).expected_log_reward(random_tokens(1, 0), CUBIC, None).tolist()
    certain = 3.0 * math.log(prediction)
    assert expected < certain
    # to second order the loss is β·σ²/(2·μ²)
    assert certain - expected > 3.0 * spread**2 / (2.0 * prediction**2)


def test_the_expectation_is_that_of_a_normal_error() -> None:
    (expected,) = constant_model(0.6, 0.05).expected_log_reward(random_tokens(1, 0), CUBIC, None).tolist()
    grid = np.linspace(-8.0, 8.0, 100_001)
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    integral = float(np.sum(density * 3.0 * np.log(0.6 + 0.05 * grid)) * (grid[1] - grid[0]))
    assert expected == pytest.approx(integral, abs=1e-7)


def test_the_expectation_respects_the_floor_and_the_step() -> None:
    hopeless = constant_model(-5.0, 0.1).expected_log_reward(random_tokens(1, 0), CUBIC, None)
    assert hopeless.item() == pytest.approx(math.log(1e-6))
    ramped = Reward(beta=3.0, floor=1e-6, ramp=10.0)
    by_step = [
        constant_model(0.5, 0.0).expected_log_reward(random_tokens(1, 0), ramped, step).item() for step in (0, 10, None)
    ]
    assert by_step == pytest.approx([1.0 * math.log(0.5), 2.0 * math.log(0.5), 3.0 * math.log(0.5)])


def test_leave_one_out_is_a_refit_without_the_row() -> None:
    tokens = random_tokens(25, 0, length=4)
    scores = 7.0 * torch.rand(25, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = KmerRidge(NUM_TOKENS, 4)
    model.fit(tokens, scores)
    held_out = model.leave_one_out()
    indices, num_weights = model.features(tokens)
    design = torch.zeros(25, num_weights, dtype=torch.float64)
    design.scatter_add_(1, indices, torch.ones(indices.shape).double())
    for row in range(25):
        others = torch.arange(25) != row
        normal = design[others].T @ design[others] + RIDGE * torch.eye(num_weights, dtype=torch.float64)
        weights = torch.linalg.solve(normal, design[others].T @ (scores[others] - scores.mean()))
        refit = float(scores.mean() + design[row] @ weights)
        assert held_out.prediction.mean[row].item() == pytest.approx(refit, abs=1e-9)


def test_many_rows_are_held_out_by_a_fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = random_tokens(400, 0)
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens, additive_scores(tokens))
    closed_form = model.leave_one_out()
    monkeypatch.setattr("stochflow.surrogates.kmer_ridge.MAX_CLOSED_FORM", 100)
    held_out = model.leave_one_out()
    assert held_out.rows.tolist() == list(range(4, 400, 5))
    assert torch.equal(held_out.scores, additive_scores(tokens[held_out.rows]))
    assert closed_form.r_squared - 0.15 < held_out.r_squared < closed_form.r_squared + 0.05


def test_noisier_scores_count_less() -> None:
    tokens = random_tokens(200, 0)
    scores, variances = additive_scores(tokens), torch.zeros(200, dtype=torch.float64)
    wrong = scores.clone()
    wrong[50:100] += 2.0
    variances[50:100] = 4.0
    trusting, warned = KmerRidge(NUM_TOKENS, LENGTH), KmerRidge(NUM_TOKENS, LENGTH)
    trusting.fit(tokens, wrong)
    warned.fit(tokens, wrong, variances)
    unseen = random_tokens(200, 9)
    assert error(warned, unseen) < 0.5 * error(trusting, unseen)


def test_a_state_restores_predictions_held_out_rows_and_the_next_fit() -> None:
    tokens = random_tokens(200, 0)
    scores = additive_scores(tokens)
    model, restored = KmerRidge(NUM_TOKENS, LENGTH), KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens[:120], scores[:120], torch.full((120,), 0.01, dtype=torch.float64))
    restored.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
    for _ in range(2):
        assert torch.equal(model.predict(tokens).mean, restored.predict(tokens).mean)
        assert torch.equal(model.predict(tokens).deviation, restored.predict(tokens).deviation)
        assert torch.equal(model.leave_one_out().prediction.mean, restored.leave_one_out().prediction.mean)
        model.fit(tokens, scores)
        restored.fit(tokens, scores)


def test_equal_scores_have_a_wide_deviation() -> None:
    tokens = random_tokens(20, 0)
    model = KmerRidge(NUM_TOKENS, LENGTH)
    model.fit(tokens, torch.full((20,), 0.25, dtype=torch.float64))
    assert model.predict(tokens).deviation.tolist() == [0.25] * 20
