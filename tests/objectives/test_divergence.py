"""The KL objectives: their gradients are those of the exact divergence, enumerated on a tree of four leaves."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.config.schema import ObjectiveConfig
from stochflow.core.logspace import log_marginal, safe_log
from stochflow.environments.channels import noiseless, uniform_slip
from stochflow.models.base import ChildFlows
from stochflow.models.dynamics.tabular import DynamicsModel
from stochflow.models.flow_network import Heads
from stochflow.objectives.divergence import (
    BootstrappedKL,
    TrajectoryKL,
    kl_divergence_loss,
    marginal_balance_residual,
    reward_adjusted_diff,
    state_kl,
    trajectory_kl_loss,
)
from stochflow.objectives.entropy import EntropyTerms, entropy_terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.prefix_tree import attainable_optimum, kl_to_target, terminal_log_probs
from tests.objectives.stubs import StubNetwork, sequence_learner

# two tokens, two steps; an intention comes true three times out of four
SLIP = uniform_slip(2, 0.5)
LOG_MATRIX = SLIP.matrix(0).log()
LEAVES = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
REWARDS = torch.tensor([4.0, 1.0, 2.0, 8.0], dtype=torch.float64)
LOG_REWARD = REWARDS.log()
# prefixes in the order ∅, 0, 1: multiples of a quarter, so that whole batches have exact frequencies
POLICY = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]], dtype=torch.float64)
UNIFORM = torch.full((3, 2), 0.5, dtype=torch.float64)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def prefix_rows(tokens: Tensor) -> Tensor:
    """Number of each prefix in the order ∅, 0, 1, 00, …; [batch, time] → [batch, time + 1]."""
    rows = [torch.zeros(len(tokens), dtype=torch.int64)]
    for column in tokens.T:
        rows.append(2 * rows[-1] + 1 + column)
    return torch.stack(rows, dim=1)


class Tables(StubNetwork):
    """A network that is a table: logits and log F of every prefix."""

    def __init__(self, logits: Tensor, log_flow: Tensor | None = None) -> None:
        super().__init__(2, 2)
        self.logits = logits
        self.log_flow = torch.zeros(7, dtype=torch.float64) if log_flow is None else log_flow

    def at_every_prefix(self, tokens: Tensor) -> Heads:
        rows = prefix_rows(tokens)
        log_policy = torch.log_softmax(self.logits, dim=-1)[rows[:, :2]]
        num_leaves = tokens.shape[1] + 1 - log_policy.shape[1]
        nothing = torch.full((len(tokens), num_leaves, 2), torch.nan, dtype=self.logits.dtype)  # a leaf decides nothing
        return Heads(torch.cat([log_policy, nothing], dim=1), torch.empty(0), self.log_flow[rows])

    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        parents = prefix_rows(outcomes)[:, :-1]
        return ChildFlows(self.log_flow[2 * parents.unsqueeze(-1) + torch.tensor([1, 2])].detach())


def log_marginals_of(logits: Tensor) -> Tensor:
    """log M of the three internal prefixes, [3, 2]."""
    return log_marginal(torch.log_softmax(logits, dim=-1), LOG_MATRIX.to(logits.dtype))


def leaf_log_probs(logits: Tensor) -> Tensor:
    """log P_π of the four leaves."""
    log_marginals = log_marginals_of(logits)
    return terminal_log_probs([log_marginals[:1], log_marginals[1:]])


def residuals_of(logits: Tensor) -> Tensor:
    """log R − Σ log M of the four leaves, through the code under test."""
    log_marginals = log_marginals_of(logits)
    steps = torch.stack([log_marginals[0, LEAVES[:, 0]], log_marginals[1 + LEAVES[:, 0], LEAVES[:, 1]]], dim=1)
    return reward_adjusted_diff(LOG_REWARD.to(logits.dtype), steps, torch.ones_like(LEAVES, dtype=torch.bool))


def gradient_of(loss: Tensor, parameter: Tensor) -> Tensor:
    return torch.autograd.grad(loss, parameter)[0]


def exact_kl_gradient(logits: Tensor) -> Tensor:
    """∇ Σ_x P_π(x)·(log P_π(x) − log R(x)), nothing detached."""
    log_probs = leaf_log_probs(logits)
    return gradient_of((log_probs.exp() * (log_probs - LOG_REWARD)).sum(), logits)


def balanced_flow(logits: Tensor) -> Tensor:
    """log F of all seven prefixes: five units at the root, carried down by M."""
    log_marginals = log_marginals_of(logits)
    first = math.log(5.0) + log_marginals[0]
    return torch.cat([double(math.log(5.0)), first, (first.unsqueeze(-1) + log_marginals[1:]).flatten()])


def random_logits(generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 2, dtype=dtype, generator=generator).requires_grad_()


def exact_batch(behaviour: Tensor) -> Trajectories:
    """Each (a, b, a', b') as often as the behaviour and the channel bring it about, in 256 trajectories."""
    rows = []
    for first, outcome, second, last in itertools.product(range(2), repeat=4):
        share = behaviour[0, first] * SLIP.matrix(0)[first, outcome]
        share = share * behaviour[1 + outcome, second] * SLIP.matrix(0)[second, last]
        rows += [(first, second, outcome, last)] * round(256 * share.item())
    table = torch.tensor(rows)
    assert len(table) == 256
    intentions, outcomes = table[:, :2], table[:, 2:]
    log_behaviour = behaviour.log()[prefix_rows(outcomes)[:, :2], intentions]
    valid = torch.ones_like(outcomes, dtype=torch.bool)
    return Trajectories(intentions, outcomes, valid, REWARDS[2 * outcomes[:, 0] + outcomes[:, 1]], log_behaviour)


def make_learner(network: Tables, dynamics: DynamicsModel | None = None, **settings: Any) -> SequenceLearner:
    parts = {} if dynamics is None else {"dynamics": dynamics}
    return sequence_learner(network, SLIP, resolve([settings]), REWARDS, **parts)


# -- trajectory scope


def test_the_residual_is_reward_against_the_probability_of_the_path() -> None:
    # R = 6 reached with probability ½·¼; R = 2 with ½ in one real step
    log_marginals = double(0.5, 0.25, 0.5, 0.001).log().view(2, 2)
    valid = torch.tensor([[True, True], [True, False]])
    residual = reward_adjusted_diff(double(6.0, 2.0).log(), log_marginals, valid)
    torch.testing.assert_close(residual, double(math.log(48), math.log(4)))


def test_the_residual_of_a_perfect_sampler_is_log_z_everywhere(generator: torch.Generator) -> None:
    logits = random_logits(generator).detach()
    log_marginals = log_marginals_of(logits)
    steps = torch.stack([log_marginals[0, LEAVES[:, 0]], log_marginals[1 + LEAVES[:, 0], LEAVES[:, 1]]], dim=1)
    residual = reward_adjusted_diff(balanced_flow(logits)[3:], steps, torch.ones(4, 2))
    torch.testing.assert_close(residual, torch.full_like(residual, math.log(5.0)), atol=1e-12, rtol=0)
    assert trajectory_kl_loss(residual).item() < 1e-24


def test_the_trajectory_loss_is_half_the_sample_variance() -> None:
    assert trajectory_kl_loss(double(1.0, 1.0, 4.0)).item() == pytest.approx(1.5)
    # weights ¾ and ¼: mean 1, variance ¾·1 + ¼·9 = 3, times 2/(2 − 1)
    assert trajectory_kl_loss(double(0.0, 4.0), double(3.0, 1.0).log()).item() == pytest.approx(3.0)


def test_equal_weights_are_no_weights_whatever_their_size() -> None:
    residual = double(0.3, -1.0, 2.0, 0.7)
    for log_weight in (-1e4, 0.0, 50.0):
        weighted = trajectory_kl_loss(residual, torch.full((4,), log_weight))
        assert weighted.item() == pytest.approx(trajectory_kl_loss(residual).item())


@pytest.mark.parametrize("batch_size", [2, 3, 4])
def test_the_expected_gradient_over_all_batches_is_that_of_the_divergence(
    batch_size: int, generator: torch.Generator
) -> None:
    logits = random_logits(generator)
    probabilities = leaf_log_probs(logits).exp().detach()
    expected = torch.zeros_like(logits)
    for leaves in itertools.product(range(4), repeat=batch_size):
        batch = torch.tensor(leaves)
        loss = trajectory_kl_loss(residuals_of(logits)[batch])
        expected += probabilities[batch].prod() * gradient_of(loss, logits)
    exact = exact_kl_gradient(logits)
    assert exact.abs().max() > 0.05
    torch.testing.assert_close(expected, exact, atol=1e-12, rtol=0)


def test_exact_importance_weights_give_the_gradient_of_the_divergence(generator: torch.Generator) -> None:
    logits = random_logits(generator)
    # one of each leaf: the behaviour is uniform, the weights are P_π up to a constant
    loss = trajectory_kl_loss(residuals_of(logits), leaf_log_probs(logits) + math.log(4))
    torch.testing.assert_close(gradient_of(loss, logits) * 3 / 4, exact_kl_gradient(logits), atol=1e-12, rtol=0)
    unweighted = gradient_of(trajectory_kl_loss(residuals_of(logits)), logits) * 3 / 4
    assert (unweighted - exact_kl_gradient(logits)).abs().max() > 0.01


def test_importance_weights_carry_no_gradient() -> None:
    residual, log_weights = double(0.0, 1.0, 3.0).requires_grad_(), double(0.0, -1.0, 1.0).requires_grad_()
    trajectory_kl_loss(residual, log_weights).backward()
    assert log_weights.grad is None
    assert residual.grad.abs().min() > 0


@pytest.mark.parametrize("log_weights", [None, torch.tensor([-3.0])])
def test_a_batch_of_one_is_finite(log_weights: Tensor | None) -> None:
    residual = torch.tensor([2.5], requires_grad=True)
    loss = trajectory_kl_loss(residual, log_weights)
    loss.backward()
    assert loss.item() == 0.0
    assert residual.grad.item() == 0.0


@pytest.mark.parametrize("weighted", [False, True])
def test_the_trajectory_gradient_agrees_with_finite_differences(weighted: bool, generator: torch.Generator) -> None:
    log_weights = torch.randn(4, dtype=torch.float64, generator=generator) if weighted else None
    assert torch.autograd.gradcheck(
        lambda logits: trajectory_kl_loss(residuals_of(logits), log_weights), (random_logits(generator),)
    )


def test_padding_does_not_change_the_residual(generator: torch.Generator) -> None:
    steps = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    log_reward = torch.randn(3, dtype=torch.float64, generator=generator)
    lengths = torch.tensor([4, 1, 3])
    valid = torch.arange(4) < lengths.unsqueeze(-1)
    padded = reward_adjusted_diff(log_reward, steps.masked_fill(~valid, 1e6), valid)
    for row, length in enumerate(lengths.tolist()):
        alone = reward_adjusted_diff(log_reward[row], steps[row, :length], torch.ones(length, dtype=torch.bool))
        torch.testing.assert_close(padded[row], alone)


def updates_of(objective: TrajectoryKL | BootstrappedKL, batch: Trajectories) -> Iterator[dict[str, Tensor]]:
    return objective.updates(batch, step=0, progress=0.5)


@pytest.mark.parametrize(
    ("behaviour", "exploration"),
    [(POLICY, {}), (UNIFORM, {"epsilon": 1.0}), (UNIFORM, {"temperature": 1e9})],
    ids=["on-policy", "uniform intentions", "hot intentions"],
)
def test_the_objective_has_the_exact_gradient_on_a_batch_with_exact_frequencies(
    behaviour: Tensor, exploration: dict[str, float]
) -> None:
    logits = POLICY.log().requires_grad_()
    batch = exact_batch(behaviour)
    objective = TrajectoryKL(make_learner(Tables(logits), exploration=exploration))
    (terms,) = updates_of(objective, batch)
    unbiased = (len(batch) - 1) / len(batch)
    exact = exact_kl_gradient(logits)
    assert exact.abs().max() > 0.05
    torch.testing.assert_close(gradient_of(terms["loss"], logits) * unbiased, exact, atol=1e-6, rtol=0)


def test_remembered_trajectories_stay_out_of_the_trajectory_scope() -> None:
    objective = TrajectoryKL(make_learner(Tables(POLICY.log().requires_grad_()), optimiser={"updates": 5}))
    objective.learner.replay.add(exact_batch(UNIFORM))
    assert len(list(updates_of(objective, exact_batch(POLICY)))) == 1


def test_the_mean_residual_estimates_log_z_less_the_divergence_and_is_kept() -> None:
    objective = TrajectoryKL(make_learner(Tables(POLICY.log().requires_grad_())))
    list(updates_of(objective, exact_batch(POLICY)))
    divergence = kl_to_target(leaf_log_probs(POLICY.log()), LOG_REWARD)
    assert objective.log_z() == pytest.approx(math.log(15.0) - divergence, abs=1e-6)
    restored = TrajectoryKL(objective.learner)
    restored.load_state_dict(objective.state_dict())
    assert restored.log_z() == objective.log_z()


def test_the_trajectory_objective_warns_of_nothing() -> None:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # torch says some things only once per process; here every time
    try:
        list(updates_of(TrajectoryKL(make_learner(Tables(POLICY.log().requires_grad_()))), exact_batch(POLICY)))
    finally:
        torch.set_warn_always(before)


# -- state scope


def test_the_state_divergence_is_zero_at_balance(generator: torch.Generator) -> None:
    logits = random_logits(generator).detach()
    flow = balanced_flow(logits)
    divergence = state_kl(log_marginals_of(logits), flow[1:].view(3, 2), flow[:3])
    torch.testing.assert_close(divergence, torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_hand_worked_state_divergence() -> None:
    # M = (¾, ¼) against equal children: ¾·log(3/2) + ¼·log(1/2); then one nat too much at the state itself
    log_marginals = double(0.75, 0.25).log().expand(2, 2)
    divergence = state_kl(log_marginals, torch.zeros(2, 2), double(math.log(2.0), math.log(2.0) + 1.0))
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    torch.testing.assert_close(divergence, double(expected, expected + 1.0))


def test_the_flows_of_the_state_divergence_are_held_fixed(generator: torch.Generator) -> None:
    logits = random_logits(generator)
    children = torch.randn(3, 2, dtype=torch.float64, generator=generator).requires_grad_()
    flow = torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_()
    state_kl(log_marginals_of(logits), children, flow).sum().backward()
    assert children.grad is None
    assert flow.grad is None
    assert logits.grad.abs().min() > 0


def test_the_state_gradients_agree_with_finite_differences(generator: torch.Generator) -> None:
    children = torch.randn(3, 2, dtype=torch.float64, generator=generator)
    flow = torch.randn(3, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(
        lambda logits: state_kl(log_marginals_of(logits), children, flow), (random_logits(generator),)
    )
    log_marginals = torch.randn(3, dtype=torch.float64, generator=generator)
    inputs = tuple(torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda flow, after: marginal_balance_residual(flow, log_marginals, after).square().mean(), inputs
    )


def test_marginal_balance_holds_on_a_constructed_flow_and_counts_what_is_missing(generator: torch.Generator) -> None:
    logits = random_logits(generator).detach()
    flow, log_marginals = balanced_flow(logits), log_marginals_of(logits)
    residual = marginal_balance_residual(flow[:3].unsqueeze(-1), log_marginals, flow[1:].view(3, 2))
    torch.testing.assert_close(residual, torch.zeros_like(residual), atol=1e-12, rtol=0)
    # 6·½ flows in where 2 flows out
    off = marginal_balance_residual(double(6.0).log(), double(0.5).log(), double(2.0).log())
    assert off.item() == pytest.approx(math.log(1.5))


def test_only_flows_learn_from_marginal_balance() -> None:
    parts = [torch.zeros(2, 2, requires_grad=True) for _ in range(3)]
    marginal_balance_residual(*parts).sum().backward()
    log_flow, log_marginals, log_next_flow = parts
    assert log_marginals.grad is None
    assert torch.equal(log_flow.grad, torch.ones(2, 2))
    assert torch.equal(log_next_flow.grad, -torch.ones(2, 2))


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("channel", [SLIP, noiseless(2)], ids=["slip", "noiseless"])
def test_value_and_gradient_stay_finite_at_extreme_logits(channel: Any, scale: float) -> None:
    logits = torch.tensor([[scale, -scale], [0.0, scale], [-scale, 0.0]], requires_grad=True)
    log_marginals = log_marginal(torch.log_softmax(logits, dim=-1), safe_log(channel.matrix(0)).float())
    residual = reward_adjusted_diff(torch.zeros(3), log_marginals, torch.ones(3, 2))
    flows = torch.tensor([1e4, -1e4, 0.0])
    for loss in (
        state_kl(log_marginals, flows.unsqueeze(-1).expand(3, 2).flip(0), flows).sum(),
        trajectory_kl_loss(residual),
        trajectory_kl_loss(residual, flows),
    ):
        gradient = torch.autograd.grad(loss, logits, retain_graph=True)[0]
        assert math.isfinite(loss.item())
        assert bool(torch.isfinite(gradient).all())


def test_the_loss_adds_the_entropy_terms_with_their_weights_and_signs(generator: torch.Generator) -> None:
    divergence = torch.tensor(0.25)
    penalty = EntropyTerms(penalty=torch.tensor(-2.0), log_ratio=torch.tensor(9.0), dynamics=torch.tensor(9.0))
    assert kl_divergence_loss(divergence, penalty).item() == -1.75
    config = ObjectiveConfig(lambda_ratio=0.3, lambda_dynamics=0.7, lambda_schedule="constant", gammas=[0.25, 0.5])
    log_policy = torch.log_softmax(2.0 * torch.randn(8, 3, 4, generator=generator), dim=-1)
    entropy = entropy_terms(log_policy, torch.ones(8, 3), config, progress=0.9)
    assert entropy.log_ratio.item() > 0.1
    assert entropy.dynamics.item() > 0.1
    expected = divergence - 0.3 * entropy.log_ratio + 0.7 * entropy.dynamics
    torch.testing.assert_close(kl_divergence_loss(divergence, entropy), expected)


@pytest.mark.parametrize("kind", [TrajectoryKL, BootstrappedKL])
def test_objectives_carry_the_entropy_terms_into_the_loss(kind: type[TrajectoryKL | BootstrappedKL]) -> None:
    weights = {"lambda_ratio": 0.3, "lambda_dynamics": 0.7, "lambda_schedule": "linear", "flow_weight": 0.2}
    objective = kind(make_learner(Tables(POLICY.log().requires_grad_()), objective=weights, optimiser={"updates": 1}))
    (terms,) = objective.updates(exact_batch(POLICY), 0, 0.75)
    expected = terms["kl_loss"] + 0.25 * (0.7 * terms["dynamics_loss"] - 0.3 * terms["log_entropy_ratio"])
    expected = expected + 0.2 * terms.get("flow_loss", torch.zeros(()))
    assert abs(terms["dynamics_loss"].item()) > 0.1
    torch.testing.assert_close(terms["loss"], expected)


# -- bootstrapped flows


def balanced_objective(logits: Tensor, log_flow: Tensor, **settings: Any) -> tuple[BootstrappedKL, Trajectories]:
    """All leaves paid for and scored by the flow that a balanced network brings them."""
    objective = BootstrappedKL(make_learner(Tables(logits, log_flow), **settings))
    rewards = balanced_flow(logits)[3:].exp()
    objective.learner.memory.pay(LEAVES, lambda tokens: rewards[2 * tokens[:, 0] + tokens[:, 1]])
    batch = exact_batch(UNIFORM)
    scores = rewards[2 * batch.outcomes[:, 0] + batch.outcomes[:, 1]]
    return objective, Trajectories(batch.intentions, batch.outcomes, batch.valid, scores, batch.log_behaviour)


def test_the_bootstrapped_loss_is_zero_at_balance(generator: torch.Generator) -> None:
    logits = random_logits(generator).detach()
    objective, batch = balanced_objective(logits, balanced_flow(logits))
    terms = objective.terms(batch, 0, 1.0)
    # rewards and P̂ are kept in float32: residuals are of the order 1e-7
    assert abs(terms["kl_loss"].item()) < 1e-6
    assert terms["flow_loss"].item() < 1e-12


def test_one_unit_of_excess_at_the_root_costs_one_step_in_two(generator: torch.Generator) -> None:
    logits = random_logits(generator).detach()
    flow = balanced_flow(logits)
    flow[0] += 1.0
    objective, batch = balanced_objective(logits, flow)
    terms = objective.terms(batch, 0, 1.0)
    assert terms["flow_loss"].item() == pytest.approx(0.5, abs=1e-6)
    assert terms["kl_loss"].item() == pytest.approx(0.5, abs=1e-6)
    batch.valid[:, 0] = False  # a random prefix: the root decided nothing
    terms = objective.terms(batch, 0, 1.0)
    assert terms["flow_loss"].item() < 1e-12
    assert abs(terms["kl_loss"].item()) < 1e-6


def test_a_leafs_own_flow_learns_its_reward(generator: torch.Generator) -> None:
    logits = random_logits(generator).detach()
    flow = balanced_flow(logits)
    flow[3:] += 2.0  # balance looks at log R instead, so only the leaves' own term sees it
    flow.requires_grad_()
    objective, batch = balanced_objective(logits, flow)
    terms = objective.terms(batch, 0, 1.0)
    assert terms["flow_loss"].item() == pytest.approx(4.0, abs=1e-5)
    assert gradient_of(terms["flow_loss"], flow)[3:].min() > 0


def test_policy_flow_and_dynamics_each_learn_from_their_own_loss(generator: torch.Generator) -> None:
    logits, flow = random_logits(generator), torch.randn(7, dtype=torch.float64, generator=generator).requires_grad_()
    dynamics = DynamicsModel(2, 2, "position")
    torch.nn.init.eye_(dynamics.intention)
    objective = BootstrappedKL(make_learner(Tables(logits, flow), dynamics))
    terms = objective.terms(exact_batch(UNIFORM), 0, 1.0)
    assert not bool(torch.autograd.grad(terms["kl_loss"], flow, retain_graph=True)[0].any())
    assert not bool(torch.autograd.grad(terms["flow_loss"], logits, retain_graph=True)[0].any())
    terms["loss"].backward()
    assert flow.grad.abs().min() > 0
    assert logits.grad.abs().min() > 0
    assert all(parameter.grad is None for parameter in dynamics.parameters())


def test_bootstrapping_learns_from_the_fresh_batch_then_from_memory() -> None:
    flow = double(7.0, *[0.0] * 6)
    objective = BootstrappedKL(make_learner(Tables(POLICY.log().requires_grad_(), flow), optimiser={"updates": 3}))
    remembered, fresh = exact_batch(UNIFORM), exact_batch(POLICY)
    objective.learner.replay.add(remembered)
    losses = [terms["flow_loss"].item() for terms in updates_of(objective, fresh)]
    assert len(losses) == 3
    assert losses[0] == pytest.approx(objective.terms(fresh, 0, 0.5)["flow_loss"].item())
    assert losses[1] != losses[2]
    assert objective.log_z() == 7.0


def test_any_trajectories_lead_the_bootstrapped_objective_to_the_optimum() -> None:
    # out of reach: the share of 0.1 beside 9 and of 1 beside 9 lie below the floor of ¼
    rewards = double(1.0, 9.0, 9.0, 0.1)
    logits = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    flow = double(4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0).log().requires_grad_()  # the number of completions
    objective = BootstrappedKL(make_learner(Tables(logits, flow), objective={"flow_weight": 1.0}))
    objective.learner.memory.pay(LEAVES, lambda tokens: rewards[2 * tokens[:, 0] + tokens[:, 1]])
    drawn = exact_batch(UNIFORM)
    scores = rewards[2 * drawn.outcomes[:, 0] + drawn.outcomes[:, 1]]
    batch = Trajectories(drawn.intentions, drawn.outcomes, drawn.valid, scores, drawn.log_behaviour)
    optimiser = torch.optim.Adam([logits, flow], fused=True)
    for step in range(400):
        optimiser.param_groups[0]["lr"] = 0.15 * (1.0 + math.cos(math.pi * step / 400))
        optimiser.zero_grad()
        objective.terms(batch, 0, 1.0)["loss"].backward()
        optimiser.step()
    divergence = kl_to_target(leaf_log_probs(logits.detach()), rewards.log())
    best = attainable_optimum(rewards.log(), SLIP, 2)
    assert divergence - best.min_kl < 1e-3
    assert objective.log_z() == pytest.approx(best.value, abs=1e-3)
