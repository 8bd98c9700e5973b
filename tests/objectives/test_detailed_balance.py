"""Stochastic detailed balance: zero where flow is conserved, exact where it can be, and adrift where it cannot."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.core.logspace import log_marginal, safe_log
from stochflow.environments.channels import positional, uniform_slip
from stochflow.models.dynamics.tabular import DynamicsModel
from stochflow.models.flow_network import FlowNetwork, Heads
from stochflow.objectives.detailed_balance import DetailedBalance, db_residual
from stochflow.objectives.divergence import (
    marginal_balance_residual,
    reward_adjusted_diff,
    state_kl,
    trajectory_kl_loss,
)
from stochflow.objectives.regression_losses import balance_loss
from stochflow.objectives.state_flows import Paths, path_flows
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.prefix_tree import (
    attainable_optimum,
    infeasible_share,
    kl_to_target,
    policy_log_marginals,
    terminal_log_probs,
    tv_to_target,
)
from tests.objectives.stubs import StubNetwork, sequence_learner

NUM_TOKENS, LENGTH = 3, 3
CHANNEL = positional(
    [
        [[0.7, 0.2, 0.1], [0.05, 0.5, 0.45], [0.3, 0.3, 0.4]],
        [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]],
        [[0.4, 0.3, 0.3], [0.25, 0.5, 0.25], [0.1, 0.1, 0.8]],
    ]
)
# every intention at every step of every outcome: [729, 3] each
EPISODES = torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=2 * LENGTH)))
INTENTIONS, OUTCOMES = EPISODES[:, :LENGTH], EPISODES[:, LENGTH:]


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def prefix_codes(outcomes: Tensor) -> Tensor:
    """Row of each prefix on its level, the empty one first; [batch, L] → [batch, L + 1]."""
    codes = [torch.zeros(len(outcomes), dtype=torch.int64)]
    for tokens in outcomes.T:
        codes.append(codes[-1] * NUM_TOKENS + tokens)
    return torch.stack(codes, dim=1)


def along(levels: list[Tensor], codes: Tensor) -> Tensor:
    """Rows that trajectories pass, one level per column of `codes`; [rows, ...] each → [batch, time, ...]."""
    return torch.stack([level[codes[:, column]] for column, level in enumerate(levels)], dim=1)


def balanced_heads(generator: torch.Generator) -> Heads:
    """A random policy, the flow it carries down the noisy tree, and the posterior of its intentions, per episode.

    NaN stands where nothing may be read: the policy of a leaf and the backward policy of the root.
    """
    log_policies, log_flows, log_backwards = [], [torch.randn(1, dtype=torch.float64, generator=generator)], []
    for depth in range(LENGTH):
        logits = torch.randn(NUM_TOKENS**depth, NUM_TOKENS, dtype=torch.float64, generator=generator)
        log_policies.append(torch.log_softmax(logits, dim=-1))
        joint = log_policies[-1].unsqueeze(-1) + CHANNEL.matrix(depth).log()
        log_flows.append((log_flows[-1].unsqueeze(-1) + joint.logsumexp(dim=-2)).flatten())
        log_backwards.append(torch.log_softmax(joint, dim=-2).transpose(-1, -2).flatten(0, 1))
    codes = prefix_codes(OUTCOMES)
    nothing = torch.full((len(OUTCOMES), 1, NUM_TOKENS), torch.nan, dtype=torch.float64)
    return Heads(
        log_policy=torch.cat([along(log_policies, codes), nothing], dim=1),
        log_backward=torch.cat([nothing, along(log_backwards, codes[:, 1:])], dim=1),
        log_flow=along(log_flows, codes),
    )


def pick(log_probs: Tensor, tokens: Tensor) -> Tensor:
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def true_log_dynamics() -> Tensor:
    """log P of every step of every episode."""
    return CHANNEL.log_matrices(LENGTH)[torch.arange(LENGTH).expand_as(OUTCOMES), INTENTIONS, OUTCOMES]


def residual_of(heads: Heads, log_reward: Tensor) -> Tensor:
    everywhere = torch.ones_like(OUTCOMES, dtype=torch.bool)
    log_flow, log_next_flow = path_flows(heads.log_flow[:, :-1], Paths(INTENTIONS, OUTCOMES, everywhere, log_reward))
    return db_residual(
        log_flow,
        pick(heads.log_policy[:, :-1], INTENTIONS),
        true_log_dynamics(),
        log_next_flow,
        pick(heads.log_backward[:, 1:], INTENTIONS),
    )


def make_objective(network: FlowNetwork, dynamics: DynamicsModel | None = None, **settings: Any) -> DetailedBalance:
    config = resolve([{"objective": {"kind": "detailed-balance"}}, settings])
    parts = {} if dynamics is None else {"dynamics": dynamics}
    return DetailedBalance(sequence_learner(network, CHANNEL, config, **parts))


def fixed_network(heads: Heads) -> FlowNetwork:
    """A network that gives these answers whatever it is asked."""

    class Fixed(StubNetwork):
        def at_every_prefix(self, tokens: Tensor) -> Heads:
            return heads

    return Fixed(NUM_TOKENS, LENGTH)


def every_trajectory(log_flow: Tensor, valid: Tensor | None = None) -> Trajectories:
    """All episodes, each scored by the flow that arrives at its end."""
    valid = torch.ones_like(OUTCOMES, dtype=torch.bool) if valid is None else valid
    return Trajectories(INTENTIONS, OUTCOMES, valid, log_flow[:, -1].double().exp(), torch.zeros(OUTCOMES.shape))


def test_the_residual_is_zero_on_a_balanced_flow(generator: torch.Generator) -> None:
    heads = balanced_heads(generator)
    residual = residual_of(heads, heads.log_flow[:, -1])
    torch.testing.assert_close(residual, torch.zeros_like(residual), atol=1e-12, rtol=0)


def test_the_loss_of_the_objective_is_zero_on_a_balanced_flow(generator: torch.Generator) -> None:
    heads = balanced_heads(generator)
    terms = make_objective(fixed_network(heads)).terms(every_trajectory(heads.log_flow), step=0)
    assert terms["loss"].item() < 1e-12  # P̂ is kept in float32: δ is of the order 1e-7


def test_hand_worked_residuals() -> None:
    # 8·½·¾ = 3 flows in where 2·½ = 1 flows out; then 4·½·½ = 1 against 1·⅓; then balance
    residual = db_residual(
        double(8.0, 4.0, 6.0).log()[None],
        double(0.5, 0.5, 0.5).log()[None],
        double(0.75, 0.5, 1 / 3).log()[None],
        double(2.0, 1.0, 1.0).log()[None],
        double(0.5, 1 / 3, 1.0).log()[None],
    )
    torch.testing.assert_close(residual, double(math.log(3), math.log(3), 0.0)[None])


def test_the_loss_is_the_mean_square_over_real_steps() -> None:
    residual = torch.tensor([[1.0, -2.0, 50.0], [3.0, 50.0, 50.0]])
    valid = torch.tensor([[True, True, False], [True, False, False]])
    assert balance_loss(residual, valid).item() == pytest.approx((1.0 + 4.0 + 9.0) / 3)


def test_one_unit_of_excess_at_the_root_costs_one_step_in_three(generator: torch.Generator) -> None:
    heads = balanced_heads(generator)
    excess = heads.log_flow.clone()
    excess[:, 0] += 1.0
    terms = make_objective(fixed_network(heads._replace(log_flow=excess))).terms(every_trajectory(heads.log_flow), 0)
    assert terms["loss"].item() == pytest.approx(1 / LENGTH, abs=1e-6)


def test_the_root_is_trained_and_the_leaves_own_flow_is_not(generator: torch.Generator) -> None:
    heads = balanced_heads(generator)
    log_flow = heads.log_flow.clone()
    log_flow[:, 0] += 0.5  # too much at the root, so δ = 0.5 at the first step
    log_flow[:, LENGTH] = torch.nan  # R(x) must stand in for it
    trained = Heads(*(head.clone().requires_grad_() for head in heads._replace(log_flow=log_flow)))
    trajectories = every_trajectory(heads.log_flow + 1.0)  # more reward than flow arrives: δ = −1 at the last step
    make_objective(fixed_network(trained)).terms(trajectories, 0)["loss"].backward()
    per_step = 2.0 / OUTCOMES.numel()
    expected = double(0.5, 0.0, -1.0, 0.0).expand(len(OUTCOMES), -1) * per_step
    entering = expected.roll(1, 1)  # a flow also ends the step before
    torch.testing.assert_close(trained.log_flow.grad[:, :-1], (expected - entering)[:, :-1], atol=1e-9, rtol=0)
    assert torch.equal(trained.log_flow.grad[:, -1], torch.zeros(len(OUTCOMES), dtype=torch.float64))
    torch.testing.assert_close(trained.log_policy.grad.sum(dim=-1), expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(trained.log_backward.grad.sum(dim=-1).roll(-1, 1), -expected, atol=1e-9, rtol=0)


def test_the_gradient_agrees_with_finite_differences(generator: torch.Generator) -> None:
    shape = (3, 2)
    log_flow, log_next_flow = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    logits, back_logits = (torch.randn((*shape, 4), dtype=torch.float64, generator=generator) for _ in range(2))
    log_dynamics = torch.randn(shape, dtype=torch.float64, generator=generator)
    actions = torch.randint(4, shape, generator=generator)
    valid = torch.tensor([[True, True], [False, True], [True, False]])

    def loss(log_flow: Tensor, logits: Tensor, log_next_flow: Tensor, back_logits: Tensor) -> Tensor:
        forward, backward = (pick(torch.log_softmax(scores, dim=-1), actions) for scores in (logits, back_logits))
        return balance_loss(db_residual(log_flow, forward, log_dynamics, log_next_flow, backward), valid)

    inputs = tuple(tensor.requires_grad_() for tensor in (log_flow, logits, log_next_flow, back_logits))
    assert torch.autograd.gradcheck(loss, inputs)


def test_no_gradient_reaches_the_dynamics_and_each_other_term_gets_its_sign() -> None:
    parts = [torch.zeros(2, 2, requires_grad=True) for _ in range(5)]
    db_residual(*parts).sum().backward()
    log_flow, log_forward, log_dynamics, log_next_flow, log_backward = parts
    assert log_dynamics.grad is None
    for part, sign in ((log_flow, 1.0), (log_forward, 1.0), (log_next_flow, -1.0), (log_backward, -1.0)):
        assert torch.equal(part.grad, torch.full((2, 2), sign))


def test_the_objective_leaves_a_learned_dynamics_model_alone(generator: torch.Generator) -> None:
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1, 2), 8, 1)
    network.initialise(generator)
    dynamics = DynamicsModel(NUM_TOKENS, LENGTH, "state")
    dynamics.initialise(generator)
    objective = make_objective(network, dynamics)
    objective.terms(every_trajectory(torch.zeros(len(OUTCOMES), 1)), 0)["loss"].backward()
    assert all(parameter.grad is None for parameter in dynamics.parameters())
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_padded_equals_unpadded(generator: torch.Generator) -> None:
    lengths = [3, 1, 2]
    parts = [torch.randn(3, 3, dtype=torch.float64, generator=generator) for _ in range(5)]
    valid = torch.arange(3) < torch.tensor(lengths).unsqueeze(-1)
    padded = balance_loss(db_residual(*(part.masked_fill(~valid, 1e6) for part in parts)), valid)
    rows = [db_residual(*(part[row, :length] for part in parts)) for row, length in enumerate(lengths)]
    torch.testing.assert_close(padded, torch.cat(rows).square().mean())


def test_a_random_prefix_costs_nothing_and_is_not_logged(generator: torch.Generator) -> None:
    heads = balanced_heads(generator)
    spoilt = heads.log_flow.clone()
    spoilt[:, 0] += 100.0
    valid = torch.ones_like(OUTCOMES, dtype=torch.bool)
    valid[:, 0] = False
    objective = make_objective(fixed_network(heads._replace(log_flow=spoilt)))
    terms = objective.terms(every_trajectory(heads.log_flow, valid), 0)
    assert terms["loss"].item() < 1e-12
    real = heads.log_flow[:, 1:LENGTH]
    assert terms["log_flow_mean"] == pytest.approx(real.mean().item(), rel=1e-5)
    assert terms["log_flow_std"] == pytest.approx(real.std(correction=0).item(), rel=1e-5)


def test_each_of_the_five_terms_is_logged_by_mean_and_spread(generator: torch.Generator) -> None:
    heads = balanced_heads(generator)
    terms = make_objective(fixed_network(heads)).terms(every_trajectory(heads.log_flow), 0)
    expected = {
        "log_flow": heads.log_flow[:, :-1],
        "log_forward": pick(heads.log_policy[:, :-1], INTENTIONS),
        "log_dynamics": true_log_dynamics(),
        "log_next_flow": heads.log_flow[:, 1:],
        "log_backward": pick(heads.log_backward[:, 1:], INTENTIONS),
    }
    assert set(terms) == {"loss"} | {f"{name}_{kind}" for name in expected for kind in ("mean", "std")}
    for name, part in expected.items():
        assert terms[f"{name}_mean"] == pytest.approx(part.mean().item(), abs=1e-6)
        assert terms[f"{name}_std"] == pytest.approx(part.std(correction=0).item(), abs=1e-6)


def test_value_and_gradient_stay_finite_at_extreme_logits() -> None:
    logits = torch.tensor([1e4, -1e4, 0.0]).expand(len(OUTCOMES), LENGTH + 1, -1).clone().requires_grad_()
    back_logits = (-logits.detach()).requires_grad_()
    log_flow = torch.full((len(OUTCOMES), LENGTH + 1), 1e4).requires_grad_()
    heads = Heads(torch.log_softmax(logits, dim=-1), torch.log_softmax(back_logits, dim=-1), log_flow)
    loss = make_objective(fixed_network(heads)).terms(every_trajectory(torch.zeros(len(OUTCOMES), 1)), 0)["loss"]
    loss.backward()
    assert 1e6 < loss.item() < math.inf
    for leaf in (logits, back_logits, log_flow):
        assert bool(torch.isfinite(leaf.grad).all())
        assert float(leaf.grad.abs().max()) > 0


def test_remembered_batches_follow_the_fresh_one(generator: torch.Generator) -> None:
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1,), 8, 0)
    network.initialise(generator)
    objective = make_objective(network, optimiser={"updates": 3})
    remembered = every_trajectory(torch.ones(len(OUTCOMES), 1))
    objective.learner.replay.add(remembered)
    fresh = every_trajectory(torch.zeros(len(OUTCOMES), 1))
    losses = [terms["loss"].item() for terms in objective.updates(fresh, 0, 0.0)]
    assert len(losses) == 3
    assert losses[0] == pytest.approx(objective.terms(fresh, 0)["loss"].item())
    assert losses[1] != losses[2]
    # draws of 729 rows differ by chance only, by less than the fresh batch does
    assert abs(losses[1] - losses[2]) < abs(losses[0] - objective.terms(remembered, 0)["loss"].item())


# -- what the method says about fixed points, on a small tree with tabular parameters and the true channel


class Tree(NamedTuple):
    """Two tokens, three steps, one logit per entry, [2^t, ...] per level."""

    log_reward: Tensor
    alpha: float

    @property
    def min_kl(self) -> float:
        return attainable_optimum(self.log_reward, uniform_slip(2, self.alpha), 3).min_kl

    @property
    def log_matrix(self) -> Tensor:
        return uniform_slip(2, self.alpha).matrix(0).log()

    def log_marginals(self, logits: Iterable[Tensor]) -> list[Tensor]:
        return [log_marginal(torch.log_softmax(level, dim=-1), self.log_matrix) for level in logits]

    def log_probs(self, logits: Iterable[Tensor]) -> Tensor:
        """log P_π of all leaves, through the code that judges trained samplers."""
        log_policies = (torch.log_softmax(level.detach(), dim=-1) for level in logits)
        return terminal_log_probs(policy_log_marginals(log_policies, uniform_slip(2, self.alpha)))

    def child_flows(self, log_flows: list[Tensor], depth: int) -> Tensor:
        """log F of all children of a level, log R for the leaves, [2^t, 2]."""
        return (log_flows[depth + 1] if depth < 2 else self.log_reward).view(-1, 2)


# shares between 0.4 and 0.6 everywhere, above the floor of 1/8; and shares of 1/10 under a floor of 1/4
FEASIBLE = Tree(double(1.0, 1.2, 0.9, 1.1, 1.3, 1.0, 0.8, 1.1).log(), 0.25)
INFEASIBLE = Tree(double(1.0, 9.0, 1.0, 1.0, 9.0, 1.0, 0.1, 0.1).log(), 0.5)


def parameters(*shape: int) -> list[Tensor]:
    """Zeros that can be trained, [2^t, *shape] for t = 0, 1, 2."""
    return [torch.zeros(2**depth, *shape, dtype=torch.float64, requires_grad=True) for depth in range(3)]


def descend(loss: Callable[[], Tensor], trained: list[Tensor], num_steps: int = 400) -> None:
    optimiser = torch.optim.Adam(trained, fused=True)
    for step in range(num_steps):
        optimiser.param_groups[0]["lr"] = 0.15 * (1.0 + math.cos(math.pi * step / num_steps))
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()


def balanced_policy(tree: Tree) -> list[Tensor]:
    """Logits at the fixed point of SGFN-DB, every (s, a, s') weighted equally."""
    logits, back_logits, log_flows = parameters(2), parameters(2, 2), parameters()

    def loss() -> Tensor:
        residuals = []
        for depth in range(3):
            shape = (2**depth, 2, 2)  # state, intention, outcome
            log_backward = torch.log_softmax(back_logits[depth], dim=-1).transpose(-1, -2)
            residual = db_residual(
                log_flows[depth].view(-1, 1, 1).expand(shape),
                torch.log_softmax(logits[depth], dim=-1).unsqueeze(-1).expand(shape),
                tree.log_matrix.expand(shape),
                tree.child_flows(log_flows, depth).unsqueeze(1).expand(shape),
                log_backward,
            )
            residuals.append(residual.reshape(1, -1))
        every_transition = torch.cat(residuals, dim=1)
        return balance_loss(every_transition, torch.ones_like(every_transition, dtype=torch.bool))

    trained = [*logits, *back_logits, *log_flows]
    descend(loss, trained)
    loss().backward()
    assert max(float(tensor.grad.abs().max()) for tensor in trained) < 1e-2, "not a fixed point yet"
    return logits


def trajectory_kl_policy(tree: Tree) -> list[Tensor]:
    """Logits that minimise the trajectory loss over all leaves with their exact weights."""
    logits = parameters(2)

    def loss() -> Tensor:
        log_probs = terminal_log_probs(tree.log_marginals(logits))
        residual = reward_adjusted_diff(tree.log_reward, log_probs.unsqueeze(-1), torch.ones(8, 1))
        return trajectory_kl_loss(residual, log_probs)

    descend(loss, logits)
    return logits


def state_kl_policy(tree: Tree) -> list[Tensor]:
    """Logits that minimise the state loss, flows learned by marginal balance on the policy's own visits."""
    logits, log_flows = parameters(2), parameters()

    def loss() -> Tensor:
        total, visits = torch.zeros((), dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        for depth, log_marginals in enumerate(tree.log_marginals(logits)):
            children = tree.child_flows(log_flows, depth)
            passing = visits.unsqueeze(-1) * log_marginals.detach().exp()
            residual = marginal_balance_residual(log_flows[depth].unsqueeze(-1), log_marginals, children)
            total = total + (visits * state_kl(log_marginals, children, log_flows[depth])).sum()
            total = total + (passing * residual.square()).sum()
            visits = passing.flatten()
        return total

    descend(loss, logits + log_flows)
    return logits


def test_the_two_trees_are_what_they_are_called() -> None:
    assert max(infeasible_share(FEASIBLE.log_reward, FEASIBLE.alpha, 2)) == 0.0
    assert FEASIBLE.min_kl < 1e-12
    assert max(infeasible_share(INFEASIBLE.log_reward, INFEASIBLE.alpha, 2)) > 0.0
    assert INFEASIBLE.min_kl > 0.1


@pytest.mark.parametrize("solve", [balanced_policy, trajectory_kl_policy, state_kl_policy])
def test_every_objective_reaches_a_strictly_feasible_target(solve: Callable[[Tree], list[Tensor]]) -> None:
    log_probs = FEASIBLE.log_probs(solve(FEASIBLE))
    assert tv_to_target(log_probs, FEASIBLE.log_reward) < 0.001


@pytest.mark.parametrize("solve", [trajectory_kl_policy, state_kl_policy])
def test_the_divergence_reaches_the_best_that_noise_allows(solve: Callable[[Tree], list[Tensor]]) -> None:
    kl = kl_to_target(INFEASIBLE.log_probs(solve(INFEASIBLE)), INFEASIBLE.log_reward)
    assert -1e-9 < kl - INFEASIBLE.min_kl < 1e-3


def test_balance_settles_elsewhere_when_the_target_is_out_of_reach() -> None:
    kl = kl_to_target(INFEASIBLE.log_probs(balanced_policy(INFEASIBLE)), INFEASIBLE.log_reward)
    assert kl - INFEASIBLE.min_kl > 0.01


def test_ignoring_the_noise_is_worse_than_balancing_with_it() -> None:
    blind = [level - level.logsumexp(dim=-1, keepdim=True) for level in _target_children(FEASIBLE.log_reward)]
    log_probs = FEASIBLE.log_probs(blind)
    assert tv_to_target(log_probs, FEASIBLE.log_reward) > 0.01


def _target_children(log_reward: Tensor) -> list[Tensor]:
    """log F of all children from the leaves up, the root's first."""
    levels = [log_reward.view(-1, 2)]
    while len(levels[0]) > 1:
        levels.insert(0, levels[0].logsumexp(dim=-1).view(-1, 2))
    return levels


def test_impossible_outcomes_leave_the_residual_finite() -> None:
    residual = db_residual(*(double(0.0)[None] for _ in range(2)), safe_log(double(0.0)), *([double(0.0)[None]] * 2))
    assert residual.item() == pytest.approx(math.log(1e-30))
