"""Entropy ratio and dynamics loss: hand-worked values, the bounds of the formulas, and gradients through quantiles."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.config.schema import ObjectiveConfig
from stochflow.core.logspace import masked_log_softmax
from stochflow.objectives.entropy import (
    dynamics_loss,
    entropy_gradient,
    entropy_ratio,
    entropy_terms,
    normalised_entropy,
    weighted_quantiles,
)

LOGITS = st.lists(st.floats(-50.0, 50.0), min_size=2, max_size=6)
COLUMN = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)
QUANTILES = st.floats(0.0, 1.0)
UNIT = st.floats(0.0, 1.0)
GAMMAS = st.floats(0.01, 0.99)


def weighted_quantile(values: Tensor, weights: Tensor, quantile: float) -> Tensor:
    return weighted_quantiles(values, weights, (quantile,))[0]


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def column(*values: float) -> Tensor:
    return double(*values).unsqueeze(-1)


def settings(**changes: Any) -> ObjectiveConfig:
    return ObjectiveConfig(**{"lambda_ratio": 1.0, "lambda_schedule": "constant"} | changes)


def random_log_policy(generator: torch.Generator, *shape: int) -> Tensor:
    """Policies of all degrees of openness, [*shape]."""
    logits = 2.0 * torch.randn(shape, dtype=torch.float64, generator=generator)
    return torch.log_softmax(logits, dim=-1)


# -- h(s)


@given(LOGITS)
def test_normalised_entropy_lies_between_zero_and_one(logits: list[float]) -> None:
    openness = normalised_entropy(torch.log_softmax(double(*logits), dim=-1)).item()
    assert -1e-12 <= openness <= 1.0 + 1e-12


@pytest.mark.parametrize("num_actions", [2, 3, 4, 20])
def test_a_uniform_policy_is_fully_open_and_a_certain_one_closed(num_actions: int) -> None:
    logits = torch.zeros(2, num_actions, dtype=torch.float64)
    logits[1, 0] = 1e4
    openness = normalised_entropy(torch.log_softmax(logits, dim=-1))
    torch.testing.assert_close(openness, double(1.0, 0.0))


def test_hand_worked_entropy() -> None:
    # (½, ¼, ¼) has 1.5 bits of log2 3
    openness = normalised_entropy(double(0.5, 0.25, 0.25).log())
    assert openness.item() == pytest.approx(1.5 / math.log2(3))


def test_a_single_action_leaves_nothing_to_decide() -> None:
    assert torch.equal(normalised_entropy(torch.zeros(2, 3, 1)), torch.zeros(2, 3))


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_entropy_and_its_gradient_are_finite_at_extreme_logits(scale: float) -> None:
    logits = torch.tensor([scale, 0.0, -scale], requires_grad=True)
    openness = normalised_entropy(torch.log_softmax(logits, dim=-1))
    openness.backward()
    assert openness.item() == 0.0
    assert bool(torch.isfinite(logits.grad).all())


# -- quantiles


@given(COLUMN, QUANTILES, st.floats(1e-3, 1e3))
def test_equal_weights_give_the_ordinary_quantile(values: list[float], quantile: float, weight: float) -> None:
    rows = column(*values)
    result = weighted_quantile(rows, torch.full_like(rows, weight), quantile)
    torch.testing.assert_close(result, torch.quantile(rows, quantile, dim=0), atol=1e-8, rtol=1e-8)


@given(COLUMN, COLUMN, QUANTILES)
def test_entries_of_weight_zero_do_not_count(values: list[float], ignored: list[float], quantile: float) -> None:
    rows = column(*ignored, *values, *ignored)
    weights = column(*[0.0] * len(ignored), *[1.0] * len(values), *[0.0] * len(ignored))
    alone = weighted_quantile(column(*values), column(*[1.0] * len(values)), quantile)
    torch.testing.assert_close(weighted_quantile(rows, weights, quantile), alone)


@given(COLUMN, st.randoms(use_true_random=False), QUANTILES)
def test_the_order_of_rows_does_not_matter(values: list[float], random: Any, quantile: float) -> None:
    assume(len(set(values)) == len(values))
    weights = [1.0 + index for index in range(len(values))]
    order = list(range(len(values)))
    random.shuffle(order)
    shuffled = [values[i] for i in order], [weights[i] for i in order]
    first = weighted_quantile(column(*values), column(*weights), quantile)
    torch.testing.assert_close(weighted_quantile(*(column(*part) for part in shuffled), quantile), first)


def test_several_quantiles_at_once_are_those_asked_for_one_by_one(generator: torch.Generator) -> None:
    values, weights = (torch.rand(9, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    weights[torch.rand(9, 5, generator=generator) < 0.4] = 0.0
    weights[:, 2] = 0.0
    together = weighted_quantiles(values, weights, (0.9, 0.1, 0.5))
    for row, quantile in zip(together, (0.9, 0.1, 0.5), strict=True):
        torch.testing.assert_close(row, weighted_quantile(values, weights, quantile), atol=0, rtol=0)
    assert not torch.equal(together[0], together[1])


def test_hand_worked_weighted_quantiles() -> None:
    # middles of the weights 1, 2, 1 lie at ½, 2, 3½; the target of q = ¾ at ½ + ¾·3 = 2.75, halfway to the last
    values, weights = column(10.0, 20.0, 40.0), column(1.0, 2.0, 1.0)
    assert weighted_quantile(values, weights, 0.75).item() == pytest.approx(30.0)
    assert weighted_quantile(values, weights, 0.5).item() == pytest.approx(20.0)
    assert weighted_quantile(values, weights, 0.0).item() == 10.0
    assert weighted_quantile(values, weights, 1.0).item() == 40.0


@pytest.mark.parametrize("quantile", [0.1, 0.25, 0.5, 0.75, 0.9])
def test_a_weight_counts_like_so_many_copies(quantile: float, generator: torch.Generator) -> None:
    values = torch.rand(400, dtype=torch.float64, generator=generator).sort().values
    # heavy at the top, so that forgotten weights would show
    copies = torch.randint(1, 4, (400,), generator=generator) + (values > 0.5) * 6
    weighted = weighted_quantile(values.unsqueeze(-1), copies.double().unsqueeze(-1), quantile).item()
    repeated = torch.quantile(values.repeat_interleave(copies), quantile)
    # the two definitions place a heavy row at its middle or on all of its length: they differ by one neighbour at most
    rank = int(torch.searchsorted(values, repeated))
    assert values[max(rank - 2, 0)] <= weighted <= values[min(rank + 2, 399)]
    assert abs(weighted - torch.quantile(values, quantile).item()) > 0.03


def test_columns_are_apart_and_an_empty_one_is_zero() -> None:
    values = torch.tensor([[1.0, 9.0, 5.0], [3.0, 8.0, 6.0], [2.0, 7.0, 7.0]], requires_grad=True)
    weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 2.0], [1.0, 0.0, 0.0]])
    result = weighted_quantile(values, weights, 0.75)
    torch.testing.assert_close(result, torch.tensor([2.5, 0.0, 6.0]))
    result.sum().backward()
    expected = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 1.0], [0.5, 0.0, 0.0]])
    torch.testing.assert_close(values.grad, expected)


@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.6, 1.0])
def test_the_quantiles_gradient_agrees_with_finite_differences(quantile: float, generator: torch.Generator) -> None:
    values = torch.rand(7, 3, dtype=torch.float64, generator=generator).requires_grad_()
    weights = torch.rand(7, 3, dtype=torch.float64, generator=generator)
    weights[2] = 0.0
    assert torch.autograd.gradcheck(lambda values: weighted_quantile(values, weights, quantile), (values,))
    gradient = torch.autograd.grad(weighted_quantile(values, weights, quantile).sum(), values)[0]
    torch.testing.assert_close(gradient.sum(dim=0), torch.ones(3, dtype=torch.float64))
    assert torch.equal(gradient[2], torch.zeros(3, dtype=torch.float64))


# -- r_γ


@given(UNIT, UNIT, GAMMAS)
def test_the_ratio_lies_between_one_and_one_over_gamma(first: float, second: float, gamma: float) -> None:
    high, low = max(first, second), min(first, second)
    ratio = entropy_ratio(double(high), double(low), double(gamma)).item()
    assert 1.0 - 1e-12 <= ratio <= 1.0 / gamma + 1e-9


@given(st.floats(1e-6, 1.0), GAMMAS)
def test_equally_uncertain_states_have_ratio_one(openness: float, gamma: float) -> None:
    assert entropy_ratio(double(openness), double(openness), double(gamma)).item() == pytest.approx(1.0)


def test_hand_worked_ratios_of_several_gammas() -> None:
    # H_high = 0.8 over γ·0.8 + (1 − γ)·0.2; then H_low = 0, the largest ratio; then 0/0
    ratios = entropy_ratio(double(0.8, 0.5, 0.0), double(0.2, 0.0, 0.0), double(0.25, 0.5, 0.75))
    assert ratios.shape == (3, 3)
    expected = [[0.8 / 0.35, 1.6, 0.8 / 0.65], [4.0, 2.0, 4 / 3], [1.0, 1.0, 1.0]]
    torch.testing.assert_close(ratios, torch.tensor(expected, dtype=torch.float64))


def test_gamma_near_one_switches_the_ratio_off_and_a_smaller_one_strengthens_it() -> None:
    ratios = entropy_ratio(double(0.9), double(0.1), double(0.01, 0.5, 0.99, 1.0 - 1e-9))[0]
    assert ratios[-1].item() == pytest.approx(1.0, abs=1e-8)
    assert bool((ratios.diff() < 0).all())


def test_nothing_over_nothing_has_a_finite_gradient() -> None:
    high, low = (torch.zeros(2, requires_grad=True) for _ in range(2))
    entropy_ratio(high, low, torch.tensor([0.25, 0.75])).log().sum().backward()
    assert bool(torch.isfinite(high.grad).all())
    assert bool(torch.isfinite(low.grad).all())


def test_the_ratio_and_dynamics_gradients_agree_with_finite_differences(generator: torch.Generator) -> None:
    gammas = double(0.25, 0.6)
    high = 0.6 + 0.3 * torch.rand(3, dtype=torch.float64, generator=generator)
    low = 0.5 * torch.rand(3, dtype=torch.float64, generator=generator)
    inputs = (high.requires_grad_(), low.requires_grad_())
    assert torch.autograd.gradcheck(lambda high, low: entropy_ratio(high, low, gammas), inputs)
    entropies = torch.rand(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    ratios = (1.0 + 0.6 * torch.rand(3, 2, dtype=torch.float64, generator=generator)).requires_grad_()
    visits = torch.full((4, 3), 1 / 12, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda h, r: dynamics_loss(h, visits, r, gammas), (entropies, ratios))


# -- L_dyn


def test_hand_worked_dynamics_loss() -> None:
    # one state, h = ½, γ = ½, r = 4/3: ρ = ⅔ and −½·[log ⅔ + ½·½·log ⅓]
    loss = dynamics_loss(column(0.5), column(1.0), column(4 / 3), double(0.5))
    assert loss.item() == pytest.approx(-0.5 * (math.log(2 / 3) + 0.25 * math.log(1 / 3)))


def test_the_dynamics_loss_weighs_states_by_visits_and_averages_gammas() -> None:
    # open states, h = 1, pay −log ρ alone; the closed one, h = 0, pays nothing
    entropies, visits = column(1.0, 0.0), column(0.25, 0.75)
    loss = dynamics_loss(entropies, visits, double(1.6, 1.2)[None], double(0.25, 0.5))
    assert loss.item() == pytest.approx(-0.25 * (math.log(0.4) + math.log(0.6)) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("openness", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_the_dynamics_loss_is_finite_at_its_extremes(openness: float, ratio: float, dtype: torch.dtype) -> None:
    entropies = torch.tensor([[openness]], dtype=dtype, requires_grad=True)
    ratios = torch.tensor([[ratio]], dtype=dtype, requires_grad=True)
    loss = dynamics_loss(entropies, torch.ones(1, 1, dtype=dtype), ratios, torch.tensor([0.5], dtype=dtype))
    loss.backward()
    share = min(0.5 * ratio, 1.0 - 1e-6)
    expected = -openness * (math.log(share) + 0.5 * (1.0 - openness) * math.log(1.0 - share))
    assert loss.item() == pytest.approx(expected, rel=0.02)  # 1 − 1e-6 has two digits left in float32
    assert bool(torch.isfinite(entropies.grad).all())
    assert bool(torch.isfinite(ratios.grad).all())


# -- both terms of a batch


@pytest.mark.parametrize("quantile", [0.75, 0.9])
def test_every_visited_state_weighs_the_same_and_padding_nothing(quantile: float, generator: torch.Generator) -> None:
    log_policy = random_log_policy(generator, 6, 2, 4)
    weights = torch.ones(6, 2, dtype=torch.float64)
    weights[4:, 0] = 0.0
    config = settings(lambda_dynamics=1.0, gammas=[0.3], quantile=quantile)
    terms = entropy_terms(log_policy, weights, config, 0.0)
    entropies, gammas = normalised_entropy(log_policy), double(0.3)
    high, low = (
        torch.stack([torch.quantile(entropies[:4, 0], q), torch.quantile(entropies[:, 1], q)])
        for q in (quantile, 1.0 - quantile)
    )
    ratios = entropy_ratio(high, low, gammas)
    torch.testing.assert_close(terms.log_ratio, ratios.log().mean())
    # ten visited states, a tenth each
    visits = weights / 10
    torch.testing.assert_close(terms.dynamics, dynamics_loss(entropies, visits, ratios, gammas))
    # the weights are shares: their unit does not matter
    torch.testing.assert_close(entropy_terms(log_policy, 7.0 * weights, config, 0.0), terms)


def test_the_penalty_subtracts_the_ratio_and_adds_the_dynamics(generator: torch.Generator) -> None:
    log_policy, weights = random_log_policy(generator, 6, 2, 4), torch.ones(6, 2)
    terms = entropy_terms(log_policy, weights, settings(lambda_ratio=0.3, lambda_dynamics=0.7), 0.5)
    assert terms.log_ratio.item() > 0.05
    assert terms.dynamics.item() > 0.05
    torch.testing.assert_close(terms.penalty, 0.7 * terms.dynamics - 0.3 * terms.log_ratio)


def penalty_gradient(log_policy: Tensor, progress: float = 0.0, **changes: Any) -> Tensor:
    """∂ penalty/∂ log π, [rows, time, K]."""
    leaf = log_policy.clone().requires_grad_()
    weights = torch.ones(leaf.shape[:2], dtype=leaf.dtype)
    return torch.autograd.grad(entropy_terms(leaf, weights, settings(**changes), progress).penalty, leaf)[0]


def test_the_ratios_gradient_flows_through_both_quantiles_and_nothing_else(generator: torch.Generator) -> None:
    log_policy = random_log_policy(generator, 5, 1, 4)
    # of five rows the second and the fourth in order are the quantiles at ¼ and ¾
    order = normalised_entropy(log_policy)[:, 0].argsort()
    touched = penalty_gradient(log_policy, gammas=[0.5]).abs().sum(dim=(1, 2)) > 1e-9
    assert touched[order].tolist() == [False, True, False, True, False]


def test_descending_opens_the_uncertain_states_and_closes_the_certain_ones(generator: torch.Generator) -> None:
    log_policy = random_log_policy(generator, 5, 1, 4)
    before = normalised_entropy(log_policy)[:, 0]
    stepped = log_policy - 1e-4 * penalty_gradient(log_policy, gammas=[0.5])
    change = (normalised_entropy(stepped)[:, 0] - before)[before.argsort()]
    assert change[1] < 0 < change[3]


def test_the_linear_schedule_fades_to_zero_and_the_constant_one_stays(generator: torch.Generator) -> None:
    log_policy = random_log_policy(generator, 5, 2, 4)
    weights = {"lambda_dynamics": 0.5}
    full = penalty_gradient(log_policy, 0.0, lambda_schedule="linear", **weights)
    assert full.abs().max() > 1e-3
    quarter = penalty_gradient(log_policy, 0.75, lambda_schedule="linear", **weights)
    torch.testing.assert_close(quarter, 0.25 * full)
    faded = penalty_gradient(log_policy, 1.0, lambda_schedule="linear", **weights)
    assert torch.equal(faded, torch.zeros_like(faded))
    torch.testing.assert_close(penalty_gradient(log_policy, 1.0, lambda_schedule="constant", **weights), full)


@pytest.mark.parametrize("term", [{"lambda_ratio": 1.0}, {"lambda_ratio": 0.0, "lambda_dynamics": 1.0}])
@pytest.mark.parametrize("change", [{"gammas": [0.2]}, {"gammas": [0.5, 0.9]}, {"quantile": 0.9}])
def test_gamma_and_quantile_change_the_gradient(
    term: dict[str, float], change: dict[str, Any], generator: torch.Generator
) -> None:
    log_policy = random_log_policy(generator, 8, 2, 4)
    before = penalty_gradient(log_policy, **{"gammas": [0.5], **term})
    after = penalty_gradient(log_policy, **{"gammas": [0.5], **term, **change})
    assert (before - after).abs().max() > 1e-3


def test_without_weights_the_terms_are_reported_but_not_differentiated(generator: torch.Generator) -> None:
    log_policy = random_log_policy(generator, 8, 2, 4).requires_grad_()
    terms = entropy_terms(log_policy, torch.ones(8, 2), settings(lambda_ratio=0.0), 0.0)
    assert terms.penalty.item() == 0.0
    assert not terms.penalty.requires_grad
    reported = entropy_terms(log_policy, torch.ones(8, 2), settings(lambda_dynamics=1.0), 0.0)
    torch.testing.assert_close((terms.log_ratio, terms.dynamics), (reported.log_ratio, reported.dynamics))


def test_the_penaltys_gradient_agrees_with_finite_differences(generator: torch.Generator) -> None:
    logits = torch.randn(5, 2, 3, dtype=torch.float64, generator=generator).requires_grad_()
    weights = torch.rand(5, 2, dtype=torch.float64, generator=generator)
    config = settings(lambda_dynamics=0.7, gammas=[0.25, 0.75])
    assert torch.autograd.gradcheck(
        lambda logits: entropy_terms(torch.log_softmax(logits, dim=-1), weights, config, 0.3).penalty, (logits,)
    )


def test_entropy_is_relative_to_the_number_of_possible_actions(generator: torch.Generator) -> None:
    choices = torch.tensor([[1, 2], [3, 2], [3, 1]])
    possible = torch.arange(3) < choices.unsqueeze(-1)
    uniform = masked_log_softmax(torch.zeros(3, 2, 3, dtype=torch.float64), possible)
    torch.testing.assert_close(normalised_entropy(uniform, choices), (choices > 1).double(), atol=1e-12, rtol=0)
    logits = torch.randn(3, 2, 3, dtype=torch.float64, generator=generator).requires_grad_()
    everything = torch.full_like(choices, 3)
    log_policy = torch.log_softmax(logits, dim=-1)
    torch.testing.assert_close(normalised_entropy(log_policy, everything), normalised_entropy(log_policy))
    weights = torch.rand(3, 2, dtype=torch.float64, generator=generator)
    config = settings(lambda_dynamics=0.7, gammas=[0.25, 0.75])

    def penalty(logits: Tensor) -> Tensor:
        return entropy_terms(masked_log_softmax(logits, possible), weights, config, 0.3, choices).penalty

    assert torch.autograd.gradcheck(penalty, (logits,))


def test_depths_without_weight_are_left_out_of_the_ratio(generator: torch.Generator) -> None:
    log_policy = random_log_policy(generator, 5, 4, 3)
    weights = torch.ones(5, 4)
    weights[:, 2:] = 0.0
    longer, shorter = (entropy_terms(log_policy[:, :num], weights[:, :num], settings(), 0.0) for num in (4, 2))
    torch.testing.assert_close(longer, shorter)


@pytest.mark.parametrize("scale", [0.0, 1e4, -1e4])
def test_penalty_and_gradient_are_finite_at_extreme_logits(scale: float) -> None:
    logits = torch.tensor([[scale, 0.0, 0.0], [scale, 0.0, -scale], [0.0, 0.0, 0.0]]).unsqueeze(1).requires_grad_()
    log_policy = torch.log_softmax(logits, dim=-1)
    terms = entropy_terms(log_policy, torch.ones(3, 1), settings(lambda_dynamics=1.0), 0.0)
    terms.penalty.backward()
    assert all(math.isfinite(term.item()) for term in terms)
    assert bool(torch.isfinite(logits.grad).all())


# -- the same with a closed-form gradient

EXTREMES = pytest.mark.parametrize(
    "openness",
    [
        lambda shape, generator: torch.rand(shape, generator=generator, dtype=torch.float64),
        lambda shape, _: torch.zeros(shape, dtype=torch.float64),
        lambda shape, _: torch.ones(shape, dtype=torch.float64),
        lambda shape, generator: torch.rand(shape, generator=generator, dtype=torch.float64).round(),
    ],
    ids=["anything", "closed", "open", "closed or open"],
)


@EXTREMES
@pytest.mark.parametrize("size", [1, 2, 13])
@pytest.mark.parametrize("quantile", [0.6, 0.75, 1.0])
def test_a_closed_form_gradient_is_that_of_autograd(
    openness: Any, size: int, quantile: float, generator: torch.Generator
) -> None:
    config = settings(
        lambda_ratio=0.7, lambda_dynamics=1.3, gammas=[0.3, 0.5, 0.95], quantile=quantile, lambda_schedule="linear"
    )
    entropies = openness((size, 4), generator)
    with np.errstate(all="raise"):
        closed = entropy_gradient(entropies.numpy(), config, 0.25)
    assert closed.gradient is not None
    values = entropies.clone().requires_grad_()
    weights = torch.ones_like(values)
    high, low = weighted_quantiles(values, weights, (config.quantile, 1.0 - config.quantile))
    gammas = double(*config.gammas)
    ratios = entropy_ratio(high, low, gammas)
    dynamics = dynamics_loss(values, weights / weights.sum(), ratios, gammas)
    penalty = 0.75 * (1.3 * dynamics - 0.7 * ratios.log().mean())
    penalty.backward()
    assert closed.log_ratio == pytest.approx(float(ratios.detach().log().mean()), abs=1e-12)
    assert closed.dynamics == pytest.approx(float(dynamics.detach()), abs=1e-12)
    assert closed.penalty == pytest.approx(float(penalty.detach()), abs=1e-12)
    assert values.grad is not None
    # which of equal entropies has the quantile's gradient is open, so depths are compared by their sums
    found = torch.from_numpy(closed.gradient)
    torch.testing.assert_close(found.sum(dim=0), values.grad.sum(dim=0), atol=1e-9, rtol=1e-9)
    if len(entropies.unique()) == entropies.numel():
        torch.testing.assert_close(found, values.grad, atol=1e-9, rtol=1e-9)


def test_a_closed_form_gradient_is_left_out_where_nothing_weighs() -> None:
    assert entropy_gradient(np.full((3, 2), 0.5), settings(lambda_ratio=0.0, lambda_dynamics=0.0), 0.0).gradient is None
