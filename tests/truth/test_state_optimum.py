"""The best distribution of one state: hand-worked water levels, two solvers that agree, and nothing better."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.environments.channels import uniform_slip
from stochflow.truth.state_optimum import StateOptimum, blahut_arimoto, water_filling

VALUES = st.lists(st.floats(-12.0, 12.0), min_size=2, max_size=6)
ALPHAS = st.floats(0.0, 0.95)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_channels(num_states: int, num_tokens: int, generator: torch.Generator) -> Tensor:
    logits = 2.0 * torch.randn(num_states, num_tokens, num_tokens, dtype=torch.float64, generator=generator)
    return torch.softmax(logits, dim=-1)


def soft_value(policies: Tensor, dynamics: Tensor, child_values: Tensor) -> Tensor:
    """Σ_b M_b·(V_b − log M_b) of any policy, [..., K] → [...]."""
    marginals = torch.einsum("...a,...ab->...b", policies, dynamics)
    return (torch.special.entr(marginals) + marginals * child_values).sum(dim=-1)


@pytest.mark.parametrize("solve", [lambda v: water_filling(v, 0.0), lambda v: blahut_arimoto(v, torch.eye(3).double())])
def test_without_noise_the_value_is_logsumexp_and_the_policy_softmax(solve: Callable[[Tensor], StateOptimum]) -> None:
    child_values = torch.tensor([[0.0, 1.0, -2.0], [5.0, 5.0, -30.0]], dtype=torch.float64)
    optimum = solve(child_values)
    torch.testing.assert_close(optimum.values, torch.logsumexp(child_values, dim=-1))
    torch.testing.assert_close(optimum.policies, torch.softmax(child_values, dim=-1))
    torch.testing.assert_close(optimum.log_marginals, torch.log_softmax(child_values, dim=-1))


def test_a_reachable_target_is_reached_exactly() -> None:
    # target (2/3, 1/3) with half of the mass slipping: ½·π + ¼ = M gives π = (5/6, 1/6)
    optimum = water_filling(double(0.0, -math.log(2.0))[None], 0.5)
    torch.testing.assert_close(optimum.values, double(math.log(1.5)))
    torch.testing.assert_close(optimum.policies, double(5 / 6, 1 / 6)[None])


def test_a_child_below_the_water_line_is_never_intended() -> None:
    # target share e^-5/(1 + e^-5) is below α/K = ¼, which the slip delivers anyway
    optimum = water_filling(double(0.0, -5.0)[None], 0.5)
    torch.testing.assert_close(optimum.log_marginals.exp(), double(0.75, 0.25)[None])
    torch.testing.assert_close(optimum.policies, double(1.0, 0.0)[None])
    expected = -0.75 * math.log(0.75) + 0.25 * (-5.0 - math.log(0.25))
    torch.testing.assert_close(optimum.values, double(expected))


def test_lifting_one_child_to_the_floor_can_push_another_below_it() -> None:
    # shares 10 : 3 : 1 over a floor of 0.2: the third is lifted, then 0.8·3/13 < 0.2 lifts the second
    optimum = water_filling(double(10.0, 3.0, 1.0).log()[None], 0.6)
    torch.testing.assert_close(optimum.log_marginals.exp(), double(0.6, 0.2, 0.2)[None])


def test_the_order_of_children_does_not_matter(generator: torch.Generator) -> None:
    child_values = 3.0 * torch.randn(50, 5, dtype=torch.float64, generator=generator)
    order = torch.tensor([3, 0, 4, 1, 2])
    optimum, permuted = water_filling(child_values, 0.4), water_filling(child_values[:, order], 0.4)
    torch.testing.assert_close(permuted.values, optimum.values)
    torch.testing.assert_close(permuted.policies, optimum.policies[:, order])


@given(VALUES, ALPHAS)
def test_water_filling_and_blahut_arimoto_agree(values: list[float], alpha: float) -> None:
    child_values = double(*values)[None]
    exact = water_filling(child_values, alpha)
    iterated = blahut_arimoto(child_values, uniform_slip(len(values), alpha).matrix(0))
    torch.testing.assert_close(iterated.values, exact.values, atol=1e-6, rtol=0)
    # the objective is strictly concave in M: within 1e-6 of the value, M lies within √(2e-6) in L1 (Pinsker)
    distance = (iterated.log_marginals.exp() - exact.log_marginals.exp()).abs().sum().item()
    assert distance < math.sqrt(2e-6)


@given(VALUES, ALPHAS)
def test_the_marginals_are_those_of_the_returned_policy(values: list[float], alpha: float) -> None:
    child_values, matrix = double(*values)[None], uniform_slip(len(values), alpha).matrix(0)
    for optimum in (water_filling(child_values, alpha), blahut_arimoto(child_values, matrix, tolerance=1e-4)):
        torch.testing.assert_close(optimum.policies @ matrix, optimum.log_marginals.exp(), atol=1e-12, rtol=1e-9)
        torch.testing.assert_close(optimum.policies.sum(dim=-1), double(1.0))
        torch.testing.assert_close(
            optimum.values, soft_value(optimum.policies, matrix, child_values), atol=1e-9, rtol=1e-9
        )


@given(VALUES, ALPHAS, st.floats(-100.0, 100.0))
def test_adding_a_constant_to_all_children_adds_it_to_the_value(values: list[float], alpha: float, c: float) -> None:
    child_values = double(*values)[None]
    base, shifted = water_filling(child_values, alpha), water_filling(child_values + c, alpha)
    torch.testing.assert_close(shifted.values, base.values + c, atol=1e-9, rtol=0)
    torch.testing.assert_close(shifted.policies, base.policies, atol=1e-9, rtol=0)


@given(VALUES)
def test_more_noise_never_raises_the_value(values: list[float]) -> None:
    child_values = double(*values)[None]
    by_noise = torch.cat([water_filling(child_values, alpha).values for alpha in (0.0, 0.1, 0.3, 0.6, 0.9)])
    assert (by_noise.diff() <= 1e-12).all()
    assert by_noise[0].item() == pytest.approx(torch.logsumexp(child_values, dim=-1).item())


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_no_random_policy_beats_the_optimum_of_a_random_channel(seed: int, num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dynamics = random_channels(1, num_tokens, generator)[0]
    child_values = 3.0 * torch.randn(1, num_tokens, dtype=torch.float64, generator=generator)
    optimum = blahut_arimoto(child_values, dynamics)
    # sharp and flat policies, and small steps away from the optimum itself
    logits = torch.randn(1000, num_tokens, dtype=torch.float64, generator=generator)
    spreads = torch.logspace(-2, 2, 1000, dtype=torch.float64).unsqueeze(-1)
    anywhere = torch.softmax(logits * spreads, dim=-1)
    nearby = 0.99 * optimum.policies + 0.01 * anywhere
    rivals = soft_value(torch.cat([anywhere, nearby]), dynamics, child_values)
    assert rivals.max().item() <= optimum.values.item() + 1e-7


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_the_largest_gain_of_an_intention_certifies_the_value(seed: int, num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dynamics = random_channels(1, num_tokens, generator)[0]
    child_values = 3.0 * torch.randn(1, num_tokens, dtype=torch.float64, generator=generator)
    optimum = blahut_arimoto(child_values, dynamics, tolerance=1e-6)
    upper = ((child_values - optimum.log_marginals) @ dynamics.T).amax(dim=-1)
    assert optimum.values.item() - 1e-12 <= upper.item() < optimum.values.item() + 1e-6


def test_every_longer_run_of_iterations_improves_the_value(generator: torch.Generator) -> None:
    dynamics = 0.5 * random_channels(40, 4, generator) + 0.5 * torch.eye(4, dtype=torch.float64)
    child_values = 4.0 * torch.randn(40, 4, dtype=torch.float64, generator=generator)
    runs = [blahut_arimoto(child_values, dynamics, 0.0, rounds).values for rounds in (8, 16, 32, 64, 128)]
    improvements = torch.stack(runs).diff(dim=0)
    assert improvements.min().item() > -1e-12
    assert improvements[0].max().item() > 1e-5  # and eight rounds were not the end


def test_one_matrix_per_state_gives_what_each_state_gives_alone(generator: torch.Generator) -> None:
    dynamics = random_channels(6, 3, generator)
    child_values = 3.0 * torch.randn(6, 3, dtype=torch.float64, generator=generator)
    together = blahut_arimoto(child_values, dynamics)
    for state in range(6):
        alone = blahut_arimoto(child_values[state : state + 1], dynamics[state])
        torch.testing.assert_close(together.values[state : state + 1], alone.values, atol=1e-12, rtol=0)
        torch.testing.assert_close(together.policies[state : state + 1], alone.policies, atol=1e-12, rtol=0)


def test_a_world_that_does_not_listen_has_the_value_of_its_own_distribution() -> None:
    row = double(0.2, 0.5, 0.3)
    child_values = double(1.0, -1.0, 4.0)[None]
    optimum = blahut_arimoto(child_values, row.expand(3, 3))
    torch.testing.assert_close(optimum.values, (row * (child_values - row.log())).sum(dim=-1))


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_child_values_ten_thousand_apart_stay_finite(alpha: float) -> None:
    child_values = double(0.0, -1e4, 1e4)[None]
    floor = alpha / 3
    marginals = double(floor, floor, 1.0 - 2 * floor)
    expected = (torch.special.entr(marginals) + marginals * child_values).sum()
    exact, iterated = water_filling(child_values, alpha), blahut_arimoto(child_values, uniform_slip(3, alpha).matrix(0))
    for optimum in (exact, iterated):
        torch.testing.assert_close(optimum.values.squeeze(), expected)
        torch.testing.assert_close(optimum.policies, double(0.0, 0.0, 1.0)[None])
        assert torch.isfinite(optimum.log_marginals).all()


def test_without_noise_the_marginal_is_exact_even_where_its_probability_underflows() -> None:
    values = torch.tensor([[0.0, -1000.0]], dtype=torch.float64)
    assert water_filling(values, 0.0).log_marginals.tolist() == [[0.0, -1000.0]]


def test_what_is_not_allowed_is_as_if_it_did_not_exist(generator: torch.Generator) -> None:
    values = 3.0 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    dynamics = torch.eye(4, dtype=torch.float64)
    dynamics[:3, :3] = 0.7 * dynamics[:3, :3] + 0.1
    allowed = torch.tensor([True, True, False, True]).expand(5, -1)
    found = blahut_arimoto(values, dynamics, 1e-9, allowed=allowed)
    assert not bool(found.policies[:, 2].any())
    # a channel whose third row repeats the first has nothing that the others have not
    repeated = dynamics.clone()
    repeated[2] = dynamics[0]
    torch.testing.assert_close(found.values, blahut_arimoto(values, repeated, 1e-9).values, atol=1e-7, rtol=0)
    assert bool((found.values <= blahut_arimoto(values, dynamics, 1e-9).values + 1e-8).all())


def test_a_good_start_needs_fewer_steps(generator: torch.Generator) -> None:
    values = 3.0 * torch.randn(5, 3, generator=generator, dtype=torch.float64)
    dynamics = 0.7 * torch.eye(3, dtype=torch.float64) + 0.1
    best = blahut_arimoto(values, dynamics, 1e-10)
    again = blahut_arimoto(values, dynamics, 1e-10, 8, start=best.policies)
    torch.testing.assert_close(again.values, best.values, atol=1e-9, rtol=0)
    assert float(best.values.sum()) > float(blahut_arimoto(values, dynamics, 1e-10, 8).values.sum()) + 1e-6
