"""Orders of whole strings: both directions through the channel, the certificate, and the check values of the method."""

import math
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize
from torch import Tensor

import stochflow
from stochflow.core.errors import ConfigError
from stochflow.environments.channels import (
    Channel,
    confusion,
    dna_synthesis,
    noiseless,
    positional,
    positional_slip,
    uniform_slip,
)
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.motifs import motif_task
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.truth.figures import exact_figures
from stochflow.truth.orders import best_orders, channel_factors, contracted, ordered_log_probs, orders_kl
from stochflow.truth.prefix_tree import attainable_optimum
from tests.small_tasks import scored_environment

REWARD = Reward(beta=3.0, floor=1e-6, ramp=0.0)
Matrix = npt.NDArray[np.float64]


def random_channel(num_tokens: int, length: int, seed: int) -> Channel:
    """Another matrix at every position."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(length, num_tokens, num_tokens, generator=generator, dtype=torch.float64)
    weights = weights.square() + 0.5 * torch.eye(num_tokens, dtype=torch.float64)
    return positional(weights / weights.sum(dim=-1, keepdim=True))


def random_log_reward(num: int, seed: int) -> Tensor:
    return torch.randn(num, generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64) * 1.5


def dense(channel: Channel, length: int) -> Matrix:
    """P(x|y), written out letter by letter, [K^L, K^L]."""
    strings = list(product(range(channel.num_tokens), repeat=length))
    rows = [
        [math.prod(float(channel.matrix(t)[a, b]) for t, (a, b) in enumerate(zip(y, x, strict=True))) for x in strings]
        for y in strings
    ]
    return np.array(rows)


def smallest_kl(channel: Channel, length: int, log_reward: Tensor) -> float:
    """min_q KL(qP‖R/Z) by sequential quadratic programming on the dense matrix."""
    matrix = dense(channel, length)
    target = np.exp(log_reward.numpy())
    target /= target.sum()

    def kl(orders: Matrix) -> float:
        made = orders @ matrix
        return float((made * np.log(made / target)).sum())

    def slopes(orders: Matrix) -> Matrix:
        return np.asarray(matrix @ (np.log(orders @ matrix / target) + 1.0))

    num = len(matrix)
    found = minimize(
        kl,
        np.full(num, 1.0 / num),
        jac=slopes,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * num,
        constraints=LinearConstraint(np.ones((1, num)), 1.0, 1.0),
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return kl(np.clip(found.x, 0.0, None) / np.clip(found.x, 0.0, None).sum())


@pytest.mark.parametrize(("num_tokens", "length"), [(2, 2), (2, 7), (3, 4), (6, 2), (5, 1)])
def test_contractions_are_products_with_the_dense_matrix(num_tokens: int, length: int) -> None:
    channel = random_channel(num_tokens, length, seed=0)
    matrix, factors = torch.from_numpy(dense(channel, length)), channel_factors(channel, length)
    values = random_log_reward(num_tokens**length, seed=0)
    torch.testing.assert_close(contracted(values, factors), values @ matrix, atol=1e-12, rtol=0)
    torch.testing.assert_close(contracted(values, [each.T for each in factors]), matrix @ values, atol=1e-12, rtol=0)


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_of_an_independent_solver_lies_within_the_certificate(seed: int) -> None:
    channel, log_reward = random_channel(2, 2, seed), random_log_reward(4, seed)
    found, smallest = best_orders(log_reward, channel, 2), smallest_kl(channel, 2, log_reward)
    assert found.gap < 1e-6
    assert found.lower_bound <= smallest + 1e-9
    assert smallest <= found.kl + 1e-9
    assert found.kl == pytest.approx(smallest, abs=1e-6)
    assert found.kl > 1e-4  # where orders can make R/Z there would be nothing to find


@pytest.mark.parametrize("num_iterations", [1, 2, 5, 20])
def test_the_certificate_holds_wherever_the_search_ends(num_iterations: int) -> None:
    channel, log_reward = random_channel(2, 2, seed=0), random_log_reward(4, seed=0)
    found = best_orders(log_reward, channel, 2, gap=0.0, max_iterations=num_iterations)
    assert found.num_iterations == num_iterations
    assert 0.0 <= found.lower_bound <= smallest_kl(channel, 2, log_reward) + 1e-9 <= found.kl + 2e-9
    assert found.gap == found.kl - found.lower_bound


def test_what_is_returned_belongs_together() -> None:
    channel, log_reward = random_channel(3, 3, seed=1), random_log_reward(27, seed=1)
    found = best_orders(log_reward, channel, 3)
    assert float(found.log_orders.exp().sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(found.log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-12)
    made = found.log_orders.exp() @ torch.from_numpy(dense(channel, 3))
    torch.testing.assert_close(found.log_probs, made.log())
    torch.testing.assert_close(ordered_log_probs(found.log_orders, channel, 3), found.log_probs)
    assert orders_kl(found.log_orders, log_reward, channel, 3) == pytest.approx(found.kl, abs=1e-12)
    assert found.num_orders == int((found.log_orders.exp() > 1e-7).sum())


def test_without_noise_the_target_itself_is_ordered() -> None:
    log_reward = random_log_reward(81, seed=2)
    found = best_orders(log_reward, noiseless(3), 4)
    assert (found.num_iterations, found.num_orders) == (1, 81)
    assert found.kl == pytest.approx(0.0, abs=1e-12)
    torch.testing.assert_close(found.log_probs, torch.log_softmax(log_reward, dim=0))


def test_with_one_letter_there_is_nothing_to_see() -> None:
    """The policy of one step is an order, so both optima are one."""
    for channel in (uniform_slip(4, 0.6), random_channel(4, 1, seed=3)):
        log_reward = 2.0 * random_log_reward(4, seed=3)
        with_feedback = attainable_optimum(log_reward, channel, 1).min_kl
        assert with_feedback > 1e-3
        assert best_orders(log_reward, channel, 1).kl == pytest.approx(with_feedback, abs=2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_feedback_never_harms(seed: int) -> None:
    channel, log_reward = random_channel(3, 3, seed), random_log_reward(27, seed)
    assert best_orders(log_reward, channel, 3).kl > attainable_optimum(log_reward, channel, 3).min_kl


def test_a_channel_that_says_nothing_makes_all_orders_equal() -> None:
    log_reward = random_log_reward(8, seed=4)
    found = best_orders(log_reward, confusion([[0.3, 0.7], [0.3, 0.7]]), 3)
    assert found.gap == pytest.approx(0.0, abs=1e-12)


def test_outcomes_that_cannot_come_about_cost_nothing_but_their_share() -> None:
    """Whatever is ordered, only the letter B is made: KL = −log of the target's share of BB."""
    log_reward = random_log_reward(4, seed=5)
    found = best_orders(log_reward, confusion([[0.0, 1.0], [0.0, 1.0]]), 2)
    assert found.kl == pytest.approx(-float(torch.log_softmax(log_reward, dim=0)[3]), abs=1e-12)
    assert found.gap == pytest.approx(0.0, abs=1e-12)


def test_rewards_of_very_different_size_stay_finite() -> None:
    log_reward = torch.tensor([0.0, -500.0, -1e4, -80.0], dtype=torch.float64)
    found = best_orders(log_reward, uniform_slip(2, 0.2), 2)
    # AB alone is ordered, not AA: what matters is that both letters must slip to make BA, the worst
    expected = 0.81 * math.log(0.81) + 0.18 * math.log(0.09) + 0.01 * math.log(0.01)
    expected += 0.81 * 500.0 + 0.01 * 1e4 + 0.09 * 80.0
    assert found.kl == pytest.approx(expected, abs=1e-6)
    assert found.gap < 1e-6


# SIX6, R = score³: α, min KL with feedback, of the best orders, E[score], TV, KL of ordering R/Z, number of orders
CHECK_VALUES = [
    (0.01, None, 0.00009, 0.647, 0.0002, 0.00117, 64_495),
    (0.10, 0.00026, 0.01885, 0.6399, 0.0357, 0.05732, 45_803),
    (0.25, 0.00302, 0.08590, 0.6189, 0.1277, 0.18827, 19_004),
    (0.50, 0.02455, 0.19804, 0.5757, 0.2218, 0.37455, 2_008),
]


@pytest.mark.parametrize("row", CHECK_VALUES, ids=lambda row: f"{row[0]}")
def test_the_check_values_of_the_method(row: tuple[Any, ...]) -> None:
    noise, with_feedback, min_kl, score, tv, ignoring_noise, num_orders = row
    found = exact_figures(SequenceEnvironment(TFBind8("SIX6"), uniform_slip(4, noise), "none"), REWARD)
    assert found["min_kl_gap"] < 1e-6
    assert found["min_kl_lower_bound"] == found["min_kl"] - found["min_kl_gap"]
    assert round(found["min_kl"], 5) == min_kl
    assert round(found["min_tv"], 4) == tv
    assert found["attainable_score"] == pytest.approx(score, abs=5e-4 if noise == 0.01 else 5e-5)
    assert round(found["kl_ignoring_noise"], 5) == ignoring_noise
    # orders that the optimum does without vanish slowly: a search that ends earlier counts a few per cent more
    assert found["num_orders"] == pytest.approx(num_orders, rel=0.04)
    assert found["value_of_feedback"] == found["min_kl"] - found["min_kl_with_feedback"]
    if with_feedback is not None:
        assert round(found["min_kl_with_feedback"], 5) == with_feedback


@pytest.mark.parametrize(
    "channel", [noiseless(4), dna_synthesis(0.1), positional_slip(4, [0.1, 0.5, 0.0]), random_channel(4, 3, seed=6)]
)
def test_every_channel_of_one_matrix_per_position_has_the_figures(channel: Channel) -> None:
    scores = random_log_reward(64, seed=6).exp()
    found = exact_figures(scored_environment(channel, 3, scores, "none"), REWARD)
    assert None not in found.values()
    assert (found["feedback"], found["min_kl_gap"] < 1e-6) == ("none", True)
    assert 0.0 <= found["min_kl"] <= found["kl_ignoring_noise"] + 1e-12
    assert found["value_of_feedback"] >= 0.0


def test_with_feedback_nothing_is_new() -> None:
    found = exact_figures(scored_environment(uniform_slip(2, 0.3), 3), REWARD)
    assert not {"feedback", "min_kl_gap", "num_orders"} & set(found)


class StateDependent(Channel):
    """Stands for a channel whose matrix is not all that it does."""


def too_large() -> SequenceEnvironment:
    return SequenceEnvironment(motif_task("MAX,12"), uniform_slip(4, 0.1), "none")


def another_channel() -> SequenceEnvironment:
    return scored_environment(StateDependent(uniform_slip(2, 0.1).matrices, "sticky"), 3, feedback="none")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (another_channel, "the channel 'sticky' is no matrix per position"),
        (too_large, "'motifs:MAX,12' is too large to enumerate"),
    ],
)
def test_what_cannot_be_ordered_is_refused_with_a_remedy(environment: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{message}.*add --feedback step"):
        exact_figures(environment(), REWARD)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "hypergrid"}, "only strings of a sequence task"),
        ({"constraints": {"forbid": ["AAA"]}}, "which orders cannot; leave them out"),
        ({"task": "motifs:MAX,12"}, "too large to enumerate"),
    ],
)
def test_the_function_refuses_the_same(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stochflow.exact(feedback="none", **options)


@pytest.mark.parametrize("feedback", ["all", ""])
def test_feedback_is_step_or_none(feedback: Any) -> None:
    with pytest.raises(ConfigError, match="'feedback': input should be 'step' or 'none'"):
        stochflow.exact(feedback=feedback)
