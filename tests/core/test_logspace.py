"""Formulas in log space against hand-worked values and ordinary arithmetic."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.core.logspace import entropy, log_marginal, log_mean_exp, masked_log_softmax, masked_mean, safe_log

LOG_TINY = math.log(1e-30)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_log_of_zero_is_that_of_1e_minus_30(dtype: torch.dtype) -> None:
    logs = safe_log(torch.tensor([0.0, 1e-35, 0.25, 1.0], dtype=dtype))
    torch.testing.assert_close(logs, torch.tensor([LOG_TINY, LOG_TINY, math.log(0.25), 0.0], dtype=dtype))


def test_safe_log_has_a_finite_gradient_at_zero() -> None:
    probabilities = double(0.0, 0.25).requires_grad_()
    safe_log(probabilities).sum().backward()
    torch.testing.assert_close(probabilities.grad, double(0.0, 4.0))


def test_without_a_mask_it_is_the_ordinary_log_softmax() -> None:
    log_probs = masked_log_softmax(double(0.0, math.log(3.0)))
    torch.testing.assert_close(log_probs.exp(), double(0.25, 0.75))


def test_a_masked_action_takes_no_probability_from_the_valid_ones() -> None:
    logits = double(0.0, 50.0, math.log(3.0))
    log_probs = masked_log_softmax(logits, torch.tensor([True, False, True]))
    torch.testing.assert_close(log_probs, double(math.log(0.25), LOG_TINY, math.log(0.75)))


def test_a_state_without_valid_actions_stays_finite_forward_and_backward() -> None:
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    log_probs = masked_log_softmax(logits, torch.tensor([[False, False, False], [True, True, False]]))
    (log_probs * double(1.0, 2.0, 3.0)).sum().backward()
    torch.testing.assert_close(log_probs[0], torch.full((3,), LOG_TINY, dtype=torch.float64))
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, 0.0, 0.0], [-0.5, 0.5, 0.0]], dtype=torch.float64))


def test_masked_log_softmax_is_finite_at_logits_of_ten_thousand() -> None:
    logits = torch.tensor([1e4, -1e4, 1e4, -1e4], requires_grad=True)
    log_probs = masked_log_softmax(logits, torch.tensor([True, True, True, False]))
    log_probs.sum().backward()
    torch.testing.assert_close(
        log_probs, torch.tensor([-math.log(2.0), -2e4 - math.log(2.0), -math.log(2.0), LOG_TINY])
    )
    assert torch.isfinite(logits.grad).all()


def test_masked_log_softmax_passes_gradcheck(generator: torch.Generator) -> None:
    logits = torch.randn(3, 4, dtype=torch.float64, generator=generator).requires_grad_()
    valid = torch.tensor([[True] * 4, [True, False, True, True], [False, True, False, False]])
    assert torch.autograd.gradcheck(lambda values: masked_log_softmax(values, valid), logits)


def test_the_marginal_of_a_hand_worked_world() -> None:
    log_policy = double(0.75, 0.25).log()
    log_dynamics = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64).log()
    # 0.75·0.8 + 0.25·0.4 = 0.7: rows of the matrix are intentions, columns outcomes
    torch.testing.assert_close(log_marginal(log_policy, log_dynamics).exp(), double(0.7, 0.3))


def test_the_marginal_equals_the_matrix_product_for_every_state(generator: torch.Generator) -> None:
    policies = torch.softmax(torch.randn(5, 6, 3, dtype=torch.float64, generator=generator), dim=-1)
    shared = torch.softmax(torch.randn(6, 3, 4, dtype=torch.float64, generator=generator), dim=-1)
    own = torch.softmax(torch.randn(5, 6, 3, 4, dtype=torch.float64, generator=generator), dim=-1)
    for dynamics in (shared, own):
        expected = torch.einsum("bta,btao->bto", policies, dynamics.expand(5, 6, 3, 4))
        torch.testing.assert_close(log_marginal(policies.log(), dynamics.log()).exp(), expected)


def test_without_noise_the_marginal_is_the_policy() -> None:
    log_policy = double(0.5, 0.3, 0.2).log()
    torch.testing.assert_close(log_marginal(log_policy, safe_log(torch.eye(3, dtype=torch.float64))), log_policy)


def test_the_marginal_is_finite_where_the_policy_gave_up_an_action() -> None:
    log_policy = torch.log_softmax(torch.tensor([1e4, -1e4], requires_grad=True), dim=-1)
    log_outcomes = log_marginal(log_policy, safe_log(torch.eye(2)))
    (gradient,) = torch.autograd.grad(log_outcomes.sum(), log_policy)
    # the second outcome has probability 1e-30, through the channel's own floor
    torch.testing.assert_close(log_outcomes, torch.tensor([0.0, LOG_TINY]))
    assert torch.isfinite(gradient).all()


def test_log_marginal_passes_gradcheck(generator: torch.Generator) -> None:
    log_policy = torch.randn(2, 3, dtype=torch.float64, generator=generator).requires_grad_()
    log_dynamics = torch.randn(3, 4, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(log_marginal, (log_policy, log_dynamics))


def test_entropy_of_hand_worked_distributions() -> None:
    log_probs = torch.tensor([[0.5, 0.25, 0.25], [1 / 3] * 3, [1.0, 0.0, 0.0]], dtype=torch.float64)
    expected = double(1.5 * math.log(2.0), math.log(3.0), 0.0)
    torch.testing.assert_close(entropy(safe_log(log_probs)), expected)


def test_masked_mean_counts_only_what_the_mask_lets_through() -> None:
    values = torch.tensor([[1.0, 3.0, 100.0], [8.0, -50.0, 7.0]])
    valid = torch.tensor([[True, True, False], [True, False, False]])
    assert masked_mean(values, valid).item() == pytest.approx(4.0)
    assert masked_mean(values).item() == pytest.approx(69.0 / 6.0)


def test_masked_mean_of_nothing_is_zero() -> None:
    assert masked_mean(torch.ones(3), torch.zeros(3, dtype=torch.bool)).item() == 0.0


def test_masked_mean_sends_no_gradient_to_padding() -> None:
    values = double(1.0, 2.0, 3.0, 4.0).requires_grad_()
    masked_mean(values, torch.tensor([True, False, True, False])).backward()
    torch.testing.assert_close(values.grad, double(0.5, 0.0, 0.5, 0.0))


@pytest.mark.parametrize("padding", [math.nan, math.inf, -math.inf])
def test_masked_mean_does_not_care_what_padding_holds(padding: float) -> None:
    assert masked_mean(double(1.0, 3.0, padding), torch.tensor([True, True, False])).item() == pytest.approx(2.0)


def test_log_mean_exp_is_the_log_of_the_mean() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    torch.testing.assert_close(log_mean_exp(values.log()), double(math.log(2.0), math.log(5.0)))
    torch.testing.assert_close(log_mean_exp(values.log(), dim=0), double(3.0, 4.0, 3.5).log())


def test_log_mean_exp_neither_overflows_nor_underflows() -> None:
    torch.testing.assert_close(log_mean_exp(torch.tensor([1e4, 1e4])), torch.tensor(1e4))
    torch.testing.assert_close(log_mean_exp(torch.tensor([-1e4, -1e4])), torch.tensor(-1e4))
