"""Orders of whole designs against sums that are written out: P(x) = Σ_y q(y)·P(x|y) of three letters of two kinds."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.core.codes import decode
from stochflow.environments.channels import Channel, confusion, uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.evaluation.elbo import elbo
from stochflow.evaluation.orders import bounded_log_probs, outcome_log_probs, prospects
from stochflow.evaluation.samples import draw, dynamics_metrics, samples_frame
from stochflow.models.flow_network import FlowNetwork
from stochflow.objectives.planning.order_values import OrderDraws
from stochflow.sampling.policies import NetworkPolicy, OpenLoopPolicy
from stochflow.truth.truth import OrdersTruth, truth_of
from tests.small_tasks import scored_environment

LENGTH = 3
SKEWED = confusion([[0.8, 0.2], [0.05, 0.95]])
STRINGS = list(product(range(2), repeat=LENGTH))
REWARD = Reward(beta=2.0, floor=1e-6, ramp=0.0)
SCORES = torch.tensor([0.9, 0.1, 0.4, 0.2, 0.8, 0.3, 0.05, 1.0], dtype=torch.float64)


def ordering(channel: Channel = SKEWED) -> SequenceEnvironment:
    return scored_environment(channel, LENGTH, SCORES, feedback="none")


def a_policy(seed: int = 0) -> NetworkPolicy:
    """One that depends strongly on the letters before."""
    network = FlowNetwork(2, LENGTH, kmers=(1, 2), width=8, num_layers=1)
    generator = torch.Generator().manual_seed(seed)
    network.initialise(generator)
    with torch.no_grad():
        for weight in network.policy_head.parameters():
            weight.copy_(2.0 * torch.randn(weight.shape, generator=generator))
    return NetworkPolicy(network)


def order_probs(policy: NetworkPolicy) -> dict[tuple[int, ...], float]:
    """q(y), one letter after the other."""
    tree = [level.exp() for level in policy._tree()]
    found = {}
    for order in STRINGS:
        prefix, probability = 0, 1.0
        for depth, letter in enumerate(order):
            probability *= float(tree[depth][prefix, letter])
            prefix = 2 * prefix + letter
        found[order] = probability
    return found


def chance(order: tuple[int, ...], made: tuple[int, ...], channel: Channel) -> float:
    return math.prod(float(channel.matrix(t)[a, b]) for t, (a, b) in enumerate(zip(order, made, strict=True)))


def made_probs(policy: NetworkPolicy, channel: Channel) -> list[float]:
    orders = order_probs(policy)
    return [sum(share * chance(order, made, channel) for order, share in orders.items()) for made in STRINGS]


def test_probabilities_of_outcomes_are_sums_over_orders() -> None:
    environment, policy = ordering(), a_policy()
    expected = made_probs(policy, SKEWED)
    truth = truth_of(environment, REWARD)
    assert isinstance(truth, OrdersTruth)
    np.testing.assert_allclose(truth.log_probs(policy).exp(), expected, rtol=1e-5)
    drawn = draw(policy, environment, 50, torch.Generator().manual_seed(0))
    numbers = [STRINGS.index(tuple(row)) for row in drawn.walk.outcomes.tolist()]
    np.testing.assert_allclose(drawn.log_probs.exp(), [expected[number] for number in numbers], rtol=1e-5)
    kl = sum(p * math.log(p / r) for p, r in zip(expected, SCORES**2 / (SCORES**2).sum(), strict=True))
    assert truth.evaluate(policy)["kl"] == pytest.approx(kl, rel=1e-4)
    # somebody who looks would make something else of the same network
    closed = scored_environment(SKEWED, LENGTH, SCORES)
    assert float((policy.terminal_log_probs(closed).exp() - torch.tensor(expected)).abs().max()) > 0.01


def test_draws_have_the_probabilities_that_are_computed() -> None:
    policy, num = a_policy(), 40_000
    walk = draw(policy, ordering(), num, torch.Generator().manual_seed(1)).walk
    orders, expected = order_probs(policy), made_probs(policy, SKEWED)
    for rows, probs in ((walk.intentions, list(orders.values())), (walk.outcomes, expected)):
        counts = np.array([int((rows == torch.tensor(string)).all(dim=1).sum()) for string in STRINGS])
        deviations = np.sqrt(np.array(probs) * (1.0 - np.array(probs)) / num)
        assert np.all(np.abs(counts / num - probs) < 5.0 * deviations + 1e-9)


def test_a_list_of_orders_is_exact_at_any_length() -> None:
    orders = torch.tensor([[0, 0, 1], [1, 1, 1], [1, 1, 1]])
    policy, environment = OpenLoopPolicy(orders, 2), ordering()
    walk = draw(policy, environment, 20, torch.Generator().manual_seed(0)).walk
    found = outcome_log_probs(policy, walk, environment, torch.Generator())
    for log_prob, made in zip(found.tolist(), walk.outcomes.tolist(), strict=True):
        expected = chance((0, 0, 1), tuple(made), SKEWED) / 3 + 2 * chance((1, 1, 1), tuple(made), SKEWED) / 3
        assert math.exp(log_prob) == pytest.approx(expected)


@pytest.mark.parametrize("channel", [SKEWED, uniform_slip(2, 0.4)])
def test_the_bound_of_log_m_lies_above_it_and_tightens(channel: Channel) -> None:
    environment, policy = ordering(channel), a_policy()
    exact = torch.tensor(made_probs(policy, channel), dtype=torch.float64).log()
    generator = torch.Generator().manual_seed(0)
    walk = draw(policy, environment, 20_000, generator).walk
    truth = exact[(walk.outcomes * torch.tensor([4, 2, 1])).sum(dim=1)]
    gaps, errors = [], []
    for num_orders in (1, 4, 64):
        over = bounded_log_probs(policy, walk, environment, generator, num_orders) - truth
        gaps.append(float(over.mean()))
        errors.append(float(over.std()) / math.sqrt(len(over)))
    assert gaps[0] > 10 * errors[0]
    assert gaps[1] < gaps[0] - 5 * errors[0]
    assert gaps[2] < gaps[1] - 5 * errors[1]
    assert -4 * errors[2] < gaps[2] < 0.05
    # with one order it is E[log q(y)P(x|y)/r(y|x)] − E[log m], of which every part is known
    backward = {
        (order, made): chance(order, made, channel) / sum(chance(other, made, channel) for other in STRINGS)
        for order in STRINGS
        for made in STRINGS
    }
    expected = sum(
        share * chance(order, made, channel) * (math.log(share * chance(order, made, channel) / backward[order, made]))
        for order, share in order_probs(policy).items()
        for made in STRINGS
    ) - float((exact.exp() * exact).sum())
    assert gaps[0] == pytest.approx(expected, abs=5 * errors[0])


def test_j_of_a_space_that_cannot_be_listed_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    environment, policy = ordering(), a_policy()
    truth = truth_of(environment, REWARD)
    assert truth is not None
    exact = truth.attainable.log_z - truth.evaluate(policy)["kl"]
    listed = elbo(draw(policy, environment, 4000, torch.Generator().manual_seed(2)), environment, REWARD)
    monkeypatch.setattr(environment, "enumerable", False)
    bounded = elbo(draw(policy, environment, 4000, torch.Generator().manual_seed(2)), environment, REWARD)
    assert listed["j"] is not None
    assert bounded["j"] is not None
    assert listed["j_se"] is not None
    assert abs(listed["j"] - exact) < 4 * listed["j_se"]
    assert exact - 0.1 < bounded["j"] < exact + 4 * listed["j_se"]


@pytest.mark.parametrize("listed", [True, False])
def test_prospects_of_orders(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = ordering()
    monkeypatch.setattr(environment, "enumerable", listed)
    uniform = torch.rand(20_000, LENGTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = prospects(torch.tensor(STRINGS), environment, OrderDraws(uniform), threshold=0.35)
    for row, order in zip(found.to_dict("records"), STRINGS, strict=True):
        chances = [chance(order, made, SKEWED) for made in STRINGS]
        expected = {
            "exact_probability": chance(order, order, SKEWED),
            "expected_score": float(torch.tensor(chances, dtype=torch.float64) @ SCORES),
            "share_above": sum(p for p, score in zip(chances, SCORES.tolist(), strict=True) if score > 0.35),
        }
        assert row == pytest.approx(expected, abs=1e-9 if listed else 0.02)


def test_scores_that_would_have_to_be_paid_for_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = ordering()
    monkeypatch.setattr(environment, "enumerable", False)
    monkeypatch.setattr(environment, "known", lambda made: made[:, 0] == 0)
    uniform = torch.tensor([[0.1, 0.1, 0.1], [0.9, 0.1, 0.1]], dtype=torch.float64)  # 0 stays 0, or becomes 1
    found = prospects(torch.tensor([[0, 0, 0]]), environment, OrderDraws(uniform), 0.5)
    assert math.isnan(found["expected_score"][0])
    assert math.isnan(found["share_above"][0])
    known = prospects(torch.tensor([[0, 0, 0]]), environment, OrderDraws(uniform[:1]), 0.5)
    assert (known["expected_score"][0], known["share_above"][0]) == (0.9, 1.0)


def test_samples_list_the_order_beside_what_came() -> None:
    environment, policy = ordering(), a_policy()
    sampled = draw(policy, environment, 30, torch.Generator().manual_seed(0))
    frame = samples_frame(sampled, environment, REWARD)
    assert list(frame)[:2] == ["order", "sequence"]
    assert frame["order"].tolist() == environment.task.alphabet.decode(sampled.walk.intentions)
    assert (frame["order"] != frame["sequence"]).any()
    # the dynamics are those at prefixes of orders, whatever came
    figures: dict[str, Any] = dynamics_metrics(policy, environment.channel.log_matrices(3), environment, sampled.walk)
    assert figures["dynamics_ce"] == pytest.approx(figures["dynamics_ce_floor"])


def test_known_orders_decode_in_lexicographic_order() -> None:
    tokens: Tensor = decode(torch.arange(8), 2, LENGTH)
    assert list(map(tuple, tokens.tolist())) == STRINGS
